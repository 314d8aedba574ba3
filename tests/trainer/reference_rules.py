"""reference_rules.py -- the update rules as plain equations, in float64, on one thread.

Written from the papers' equations and the definitions in docs/trainer.md, not from the C code. A
problem says what a gradient is: problem.gradient(w, rank, step) is the mean over that rank's batch.
Each rule is one function that takes a Setting and returns the parameters at the end of the run, the
same for all ranks; what else is worth comparing (steps of averages) it appends to setting.averages.
"""

import math

import numpy as np


class Setting:
    """A run: the problem, its ranks and steps, the local optimiser, the options of the rule."""

    def __init__(self, problem, ranks, steps, lr, momentum=0.0, decay=0.0, optimizer="sgd",
                 lr_schedule="constant", warmup=0, clip=0.0, **own):
        self.problem, self.ranks, self.steps = problem, ranks, steps
        self.lr, self.momentum, self.decay = lr, momentum, decay
        self.optimizer, self.lr_schedule = optimizer, lr_schedule
        self.warmup, self.clip = warmup, clip
        self.own = own
        self.averages = []  # (local steps done, "global" or "local")

    def rate(self, t):
        """The learning rate of local step t, counted from 0."""
        if t < self.warmup:
            return self.lr * (t + 1) / self.warmup
        if self.lr_schedule == "constant":
            return self.lr
        if self.lr_schedule.startswith("step:"):
            _, every, factor = self.lr_schedule.split(":")
            return self.lr * float(factor) ** (t // int(every))
        passed = min(1.0, (t - self.warmup) / (self.steps - self.warmup))
        if self.lr_schedule == "cosine":
            return self.lr * 0.5 * (1 + math.cos(math.pi * passed))
        assert self.lr_schedule == "linear", self.lr_schedule
        return self.lr * (1 - passed)

    def new_optimizer(self):
        kinds = {"sgd": Sgd, "adam": Adam, "adamw": AdamW}
        return kinds[self.optimizer](self.momentum, self.decay)

    def clipped(self, gradient):
        """At most as long as --clip says."""
        norm = np.linalg.norm(gradient)
        return gradient * (self.clip / norm) if self.clip and norm > self.clip else gradient


# ---- Local optimisers: parameters after one update ----

class Sgd:
    def __init__(self, momentum, decay):
        self.momentum, self.decay = momentum, decay
        self.state = {"v": 0.0}

    def apply(self, w, gradient, rate):
        self.state["v"] = self.momentum * self.state["v"] + gradient + self.decay * w
        return w - rate * self.state["v"]


class Adam:
    """Kingma and Ba 2015; weight decay is part of the gradient."""

    coupled = True

    def __init__(self, _, decay):
        self.decay, self.t = decay, 0
        self.state = {"m": 0.0, "v": 0.0}

    def apply(self, w, gradient, rate):
        s = self.state
        self.t += 1
        g = gradient + self.decay * w if self.coupled else gradient
        s["m"] = 0.9 * s["m"] + 0.1 * g
        s["v"] = 0.999 * s["v"] + 0.001 * g * g
        first = s["m"] / (1 - 0.9**self.t)
        second = s["v"] / (1 - 0.999**self.t)
        if not self.coupled:
            w = w - rate * self.decay * w
        return w - rate * first / (np.sqrt(second) + 1e-8)


class AdamW(Adam):
    """Loshchilov and Hutter 2019: the decay goes past the moments."""

    coupled = False


# ---- Gradient rules: all ranks hold the same parameters ----

def mean_gradient(s, w, step):
    return sum(s.problem.gradient(w, rank, step) for rank in range(s.ranks)) / s.ranks


def sync(s):
    w, optimizer = s.problem.start(), s.new_optimizer()
    for t in range(s.steps):
        w = optimizer.apply(w, s.clipped(mean_gradient(s, w, t)), s.rate(t))
    return w


def laga(s):
    """x_{k+1} = Opt(x_k, gbar_{k-lag}), gbar_j the mean over ranks and the A micro-batches of
    accumulation j, all taken at x_j. The rest is applied, one after the other, at the end."""
    accumulate, lag = s.own.get("accumulate", 1), s.own.get("lag", 1)
    w, optimizer = s.problem.start(), s.new_optimizer()
    in_flight = []

    def apply(w, t):
        gradient, count = in_flight.pop(0)
        rate = s.rate(t) * (math.sqrt(count) if s.own.get("rate_by_count") else 1.0)
        return optimizer.apply(w, s.clipped(gradient), rate)

    for first in range(0, s.steps, accumulate):
        batches = range(first, min(first + accumulate, s.steps))
        rate = s.rate(batches[-1])
        at = w
        if s.own.get("lag_comp") == "lookahead":
            # Where momentum alone leads within the `lag` updates that are still to come, at the
            # rate of the last one.
            ahead = sum(s.momentum**i for i in range(1, lag + 1))
            at = w - s.rate(max(first - 1, 0)) * ahead * optimizer.state["v"]
        gbar = sum(mean_gradient(s, at, t) for t in batches) / len(batches)
        in_flight.append((gbar, len(batches)))
        if len(in_flight) > lag:
            w = apply(w, batches[-1])
        elif s.own.get("first_step", "skip") == "zero":
            w = optimizer.apply(w, 0.0, rate)
    while in_flight:
        w = apply(w, s.own.get("flush_step", s.steps - 1))
    return w


# ---- Averaging of models ----

class Replicas:
    """A model and an optimiser for each rank."""

    def __init__(self, s):
        self.s = s
        self.w = [s.problem.start() for _ in range(s.ranks)]
        self.optimizers = [s.new_optimizer() for _ in range(s.ranks)]

    def step(self, t):
        s = self.s
        for rank in range(s.ranks):
            gradient = s.clipped(s.problem.gradient(self.w[rank], rank, t))
            self.w[rank] = self.optimizers[rank].apply(self.w[rank], gradient, s.rate(t))

    def step_together(self, t):
        """As under sync: all take the mean gradient."""
        gradient = self.s.clipped(mean_gradient(self.s, self.w[0], t))
        for rank in range(self.s.ranks):
            self.w[rank] = self.optimizers[rank].apply(self.w[rank], gradient, self.s.rate(t))

    def mean(self, ranks=None):
        chosen = range(self.s.ranks) if ranks is None else ranks
        return sum(self.w[rank] for rank in chosen) / len(chosen)

    def put(self, w, ranks=None):
        for rank in range(self.s.ranks) if ranks is None else ranks:
            self.w[rank] = w.copy()

    def states(self, ranks=None):
        """What becomes of momentum (Adam: of both moments) where models are averaged."""
        kind = self.s.own.get("opt_state", "local")
        chosen = [self.optimizers[r] for r in (range(self.s.ranks) if ranks is None else ranks)]
        for name in chosen[0].state:
            average = sum(optimizer.state[name] for optimizer in chosen) / len(chosen)
            for optimizer in chosen:
                if kind == "average":
                    optimizer.state[name] = average
                elif kind == "reset":
                    optimizer.state[name] = 0.0
                    optimizer.t = 0


class Outer:
    """What a reduction makes of the mean of the models; returns where the ranks go on. base: the
    model that displacements d are measured from."""

    def __init__(self, s):
        self.kind, self.mu = s.own.get("outer", "none"), s.own.get("outer_momentum", 0.5)
        self.lr = s.own.get("outer_lr", 1.0)
        self.gain = 1 - self.mu if s.own.get("outer_gain") == "1-mu" else 1.0
        self.shifted = s.own.get("nesterov_base") == "shifted"
        self.base, self.v = s.problem.start(), 0.0

    def reduce(self, mean, rate):
        d = mean - self.base
        if self.kind == "none" or (self.kind == "slowmo" and rate == 0.0):
            self.base = mean
            return self.base
        if self.kind == "slowmo":  # u <- beta u + (x - mean)/gamma, x <- x - alpha gamma u
            self.v = self.mu * self.v - d / rate
            self.base = self.base - self.lr * rate * self.v
            return self.base
        if self.kind == "nesterov" and self.shifted:  # torch.optim.SGD(nesterov=True) on -d
            self.v = self.mu * self.v + self.gain * d
            self.base = self.base + self.lr * (self.gain * d + self.mu * self.v)
            return self.base
        # block: v <- mu v + gain d, w <- w + v
        self.v = self.mu * self.v + self.gain * self.lr * d
        self.base = self.base + self.v
        if self.kind == "nesterov":  # CNTK: training starts where v leads, d is taken from w.
            return self.base + self.mu * self.v
        return self.base


def hier(s):
    """K1, K2, groups of S neighbours; where both are due the global average alone is taken."""
    k1, k2, group = s.own["k1"], s.own["k2"], s.own["group"]
    replicas, outer = Replicas(s), Outer(s)
    for t in range(s.steps):
        replicas.step(t)
        if (t + 1) % k2 == 0:
            replicas.put(outer.reduce(replicas.mean(), s.rate(t)))
            replicas.states()
            s.averages.append((t + 1, "global"))
        elif (t + 1) % k1 == 0:
            for first in range(0, s.ranks, group):
                members = range(first, min(first + group, s.ranks))
                replicas.put(replicas.mean(members), members)
                replicas.states(members)
            s.averages.append((t + 1, "local"))
    return replicas.mean()  # The last plain average, if there was a step since.


def kavg(s):
    s.own.update(k1=s.own["k"], k2=s.own["k"], group=1)
    return hier(s)


def adapted(s, spread, rate, t, memory):
    """ADPSGD's next period. memory: period, C2, and how many samples C2 is the mean of."""
    low, high = s.own.get("adapt_low", 0.7), s.own.get("adapt_high", 1.3)
    if rate == 0.0:
        return
    if t < s.own.get("adapt_sample_steps", s.steps // 4):
        memory["samples"] += 1
        memory["c2"] += (spread / rate - memory["c2"]) / memory["samples"]
    elif memory["samples"] == 0:
        return
    elif spread < low * rate * memory["c2"]:
        memory["period"] = min(memory["period"] + 1, s.own.get("period_max") or math.inf)
    elif spread > high * rate * memory["c2"]:
        memory["period"] = max(1, memory["period"] - 1)


def periodic(s):
    """const, adp (ADPSGD) or post-local."""
    schedule = s.own.get("schedule", "const")
    memory = {"period": s.own.get("period", 8), "c2": 0.0, "samples": 0}
    replicas, since = Replicas(s), 0
    for t in range(s.steps):
        if schedule == "post-local" and t < s.own.get("adapt_sample_steps", s.steps // 4):
            replicas.step_together(t)
            s.averages.append((t + 1, "global"))
            continue
        replicas.step(t)
        since += 1
        if since < memory["period"]:
            continue
        mean = replicas.mean()
        spread = sum(np.sum((w - mean) ** 2) for w in replicas.w) / s.ranks
        replicas.put(mean)
        replicas.states()
        s.averages.append((t + 1, "global"))
        since = 0
        if schedule == "adp":
            adapted(s, spread, s.rate(t), t, memory)
    return replicas.mean()


def adpsgd(s):
    s.own["schedule"] = "adp"
    s.own.setdefault("period", 4)
    return periodic(s)


def overlap_local(s):
    """Overlap-Local-SGD (Wang, Liang, Joshi 2020): an anchor z, whose average is on its way during
    the next K steps. x is pulled back towards it; the outer momentum is the anchor's."""
    a, b = s.own["pull"], s.own["outer_momentum"] if s.own.get("outer") == "slowmo" else 0.0
    replicas = Replicas(s)
    anchor, coming = s.problem.start(), s.problem.start()
    buffers = [0.0] * s.ranks
    for t in range(s.steps):
        replicas.step(t)
        if (t + 1) % s.own["k"]:
            continue
        rate = s.rate(t)
        anchor = coming
        for rank in range(s.ranks):
            replicas.w[rank] = (1 - a) * replicas.w[rank] + a * anchor
            buffers[rank] = b * buffers[rank] - (replicas.w[rank] - anchor) / rate
        if t + 1 < s.steps:
            coming = sum(anchor - rate * buffer for buffer in buffers) / s.ranks
            s.averages.append((t + 1, "global"))
    if s.steps % s.own["k"]:  # What is on its way is applied once.
        replicas.w = [(1 - a) * w + a * coming for w in replicas.w]
    return replicas.mean()


def local(s):
    if s.own.get("pull", 0.0) > 0.0:
        return overlap_local(s)
    return kavg(s)


RULES = {"sync": sync, "laga": laga, "kavg": kavg, "hier": hier, "periodic": periodic,
         "adpsgd": adpsgd, "local": local}
