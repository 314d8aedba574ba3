"""reference -- rubato-train held to plain equations in numpy (reference_rules.py).

usage: reference.py RUBATO-TRAIN [RULE...]

The same problem, order, first parameters and options go to both; after 200 steps the parameters
may differ by 1e-4 of the reference's length, which is more than float32 and another order of sums
cost. Each case must also be ten times as far from a neighbour ("unlike"): so an option that did
nothing would be seen.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

try:
    import numpy as np
except ImportError:
    print("skipped: numpy (python3-numpy) is not installed")
    sys.exit(77)

from reference_rules import RULES, Outer, Setting

LIMIT = 1e-4
STEPS, BATCH = 200, 4
SHORT = os.environ.get("TEST_LENGTH") == "short"  # Each rule, not each case of it.
ROWS, FEATURES, CLASSES, HIDDEN = 331, 20, 5, 9  # Not a multiple of any batch: epochs are cut.


class Problem:
    """Softmax regression (hidden = 0), or with one layer of rectifiers before it."""

    def __init__(self, x, y, hidden, ranks):
        self.x, self.y, self.hidden, self.ranks = x.astype(np.float64), y, hidden, ranks
        self.first = first_parameters(hidden)

    def start(self):
        return self.first.astype(np.float64)

    def rows(self, rank, step):
        """docs/trainer.md, Order, without shuffling."""
        within = step % (len(self.y) // (self.ranks * BATCH))
        first = (within * self.ranks + rank) * BATCH
        return slice(first, first + BATCH)

    def cut(self, w):
        """The flat vector as weights [outputs][inputs] and biases, layer by layer."""
        widths = [FEATURES, *([self.hidden] if self.hidden else []), CLASSES]
        parts, at = [], 0
        for inputs, outputs in zip(widths, widths[1:]):
            parts.append((w[at:at + inputs * outputs].reshape(outputs, inputs),
                          w[at + inputs * outputs:at + (inputs + 1) * outputs]))
            at += (inputs + 1) * outputs
        assert at == len(w), (at, len(w))
        return parts

    def gradient(self, w, rank, step):
        rows = self.rows(rank, step)
        x, y = self.x[rows], self.y[rows]
        layers = self.cut(w)
        inputs = [x]
        for weight, bias in layers[:-1]:
            inputs.append(np.maximum(inputs[-1] @ weight.T + bias, 0.0))
        weight, bias = layers[-1]
        scores = inputs[-1] @ weight.T + bias
        power = np.exp(scores - scores.max(axis=1, keepdims=True))
        delta = power / power.sum(axis=1, keepdims=True)
        delta[np.arange(len(y)), y] -= 1.0
        delta /= len(y)
        parts = []
        for (weight, bias), inside in zip(layers[::-1], inputs[::-1]):
            parts.append(np.concatenate([(delta.T @ inside).ravel(), delta.sum(axis=0)]))
            delta = (delta @ weight) * (inside > 0.0)
        return np.concatenate(parts[::-1])


class Quadratic:
    """f_i(x) = (x - a_i)^2 / 2: what can be computed by hand."""

    def __init__(self, *targets):
        self.targets = targets

    def start(self):
        return np.zeros(1)

    def gradient(self, w, rank, step):
        return w - self.targets[rank]


def parameter_count(hidden):
    if hidden:
        return (FEATURES + 1) * hidden + (hidden + 1) * CLASSES
    return (FEATURES + 1) * CLASSES


def first_parameters(hidden):
    generator = np.random.default_rng(7)
    return (0.3 * generator.standard_normal(parameter_count(hidden))).astype(np.float32)


def data_make(folder):
    """Two thirds of the labels follow a linear rule, the rest are noise."""
    generator = np.random.default_rng(3)
    x = generator.standard_normal((ROWS, FEATURES)).astype(np.float32)
    y = np.argmax(x @ generator.standard_normal((FEATURES, CLASSES)), axis=1).astype(np.int32)
    noise = generator.random(ROWS) < 1 / 3
    y[noise] = generator.integers(0, CLASSES, noise.sum())
    y[:CLASSES] = np.arange(CLASSES)
    np.save(folder / "x.npy", x)
    np.save(folder / "y.npy", y)
    return x, y


def case(rule, ranks, model="logistic", words="", unlike=None, **setting):
    """`unlike`: options that make the rule another one, which the case must not be near to."""
    return {"rule": rule, "ranks": ranks, "model": model, "words": words.split(),
            "unlike": unlike, "setting": {"lr": 0.1, **setting}}


# Options of rubato-train that are not called as in a Setting.
NAMES = {"decay": "--weight-decay"}
SYNC = {"rule": "sync"}
HEAVY = {"momentum": 0.9, "decay": 0.01, "lr": 0.02}
HALF = {"momentum": 0.5, "decay": 0.01, "lr": 0.05, "lr_schedule": "cosine"}

CASES = {
    "sync": [
        case("sync", 2), case("sync", 3, "mlp", **HEAVY),
        case("sync", 4, "mlp", **HEAVY, lr_schedule="cosine", warmup=20),
        case("sync", 2, lr_schedule="linear", momentum=0.5),
        case("sync", 2, lr_schedule="step:60:0.3", decay=0.05),
        case("sync", 3, momentum=0.9, lr=0.05, clip=0.2, unlike={"clip": 0.0}),
        case("sync", 2, optimizer="adam", lr=0.01, decay=0.01, unlike={"decay": 0.0}),
        case("sync", 3, "mlp", optimizer="adam", lr=0.005, lr_schedule="cosine"),
        case("sync", 2, "mlp", optimizer="adamw", lr=0.005, decay=0.1,
             unlike={"optimizer": "adam"}),
    ],
    "laga": [
        case("laga", 2, accumulate=1, unlike=SYNC),
        case("laga", 3, accumulate=3, unlike={"accumulate": 2}),
        case("laga", 2, accumulate=1, lag=2, unlike={"lag": 1}),
        case("laga", 4, "mlp", accumulate=3, lag=2, **HALF, unlike={"lag": 1}),
        case("laga", 2, "mlp", accumulate=1, first_step="zero", decay=0.3,
             unlike={"first_step": "skip"}),
        case("laga", 3, accumulate=3, lag=2, first_step="zero", decay=0.3, lr_schedule="linear",
             unlike={"first_step": "skip"}),
        case("laga", 2, "mlp", accumulate=2, **HEAVY, warmup=30, unlike={"momentum": 0.8}),
        case("laga", 2, lag_comp="lookahead", **HALF, unlike={"lag_comp": "none"}),
        case("laga", 3, lag=3, lag_comp="lookahead", **HALF, unlike={"lag_comp": "none"}),
        case("laga", 2, accumulate=4, rate_by_count=True, unlike={"rate_by_count": False}),
        case("laga", 3, clip=0.2, unlike={"clip": 0.0}),
        case("laga", 2, optimizer="adam", lr=0.01, accumulate=2, unlike={"accumulate": 1}),
        case("laga", 2, optimizer="adam", lr=0.01, first_step="zero", lag=2,
             unlike={"first_step": "skip"}),
    ],
    "kavg": [
        case("kavg", 3, k=8, unlike={"k": 4}),
        case("kavg", 2, k=7, **HALF, unlike={"k": 8}),
        case("kavg", 4, "mlp", k=7, **HEAVY, unlike={"k": 8}),
        case("kavg", 3, k=1, unlike={"k": 2}),
        case("kavg", 3, k=8, opt_state="average", **HEAVY, unlike={"opt_state": "local"}),
        case("kavg", 3, k=8, opt_state="reset", **HEAVY, unlike={"opt_state": "local"}),
        case("kavg", 2, k=8, optimizer="adam", lr=0.01, unlike={"k": 4}),
        case("kavg", 2, k=8, optimizer="adam", lr=0.01, opt_state="average",
             unlike={"opt_state": "local"}),
        case("kavg", 2, k=8, optimizer="adamw", lr=0.01, decay=0.1, opt_state="reset",
             unlike={"opt_state": "local"}),
        *(case("kavg", ranks, k=k, outer=outer, outer_momentum=0.4, **more, **HALF,
               unlike={"outer_momentum": 0.3})
          for ranks, k, outer, more in (
              (2, 8, "block", {}), (3, 7, "block", {"outer_gain": "1-mu"}),
              (4, 8, "block", {"outer_lr": 0.7}), (2, 7, "slowmo", {}),
              (3, 8, "slowmo", {"outer_lr": 0.8}), (2, 7, "nesterov", {}),
              (4, 8, "nesterov", {"outer_lr": 0.7, "outer_gain": "1-mu"}),
              (3, 7, "nesterov", {"nesterov_base": "shifted", "outer_lr": 0.7}))),
        case("kavg", 2, "mlp", k=8, outer="slowmo", outer_momentum=0.5, lr=0.05,
             lr_schedule="step:60:0.3", unlike={"outer": "block"}),
    ],
    "hier": [
        case("hier", 4, k1=4, k2=16, group=2, unlike={"group": 4}),
        case("hier", 4, k1=3, k2=14, group=2, **HALF, unlike={"k1": 4}),
        case("hier", 3, "mlp", k1=2, k2=9, group=2, **HEAVY, unlike={"group": 1}),
        case("hier", 4, k1=4, k2=16, group=2, opt_state="average", **HEAVY,
             unlike={"opt_state": "local"}),
        *(case("hier", 4, k1=4, k2=16, group=2, outer=outer, outer_momentum=0.4, **HALF,
               unlike={"outer": "none"}) for outer in ("block", "slowmo", "nesterov")),
    ],
    "periodic": [
        case("periodic", 3, period=8, unlike={"period": 4}),
        case("periodic", 2, "mlp", period=7, **HALF, unlike={"period": 8}),
        case("periodic", 4, schedule="post-local", period=9, adapt_sample_steps=50, **HEAVY,
             unlike={"schedule": "const"}),
    ],
    "adpsgd": [
        case("adpsgd", 4, lr_schedule="step:80:0.3",
             unlike={"rule": "periodic", "schedule": "const", "period": 4}),
        case("adpsgd", 2, "mlp", lr_schedule="step:60:0.2", period=3, adapt_low=0.8, adapt_high=1.2,
             adapt_sample_steps=40, unlike={"rule": "periodic", "schedule": "const"}),
        case("adpsgd", 3, lr_schedule="cosine", momentum=0.5, period_max=6,
             unlike={"period_max": 99}),
    ],
    "local": [
        case("local", 3, k=20, unlike={"k": 10}),
        case("local", 2, "mlp", k=20, outer="nesterov", nesterov_base="shifted", outer_lr=0.7,
             outer_momentum=0.9, optimizer="adamw", decay=0.1, lr=0.005,
             unlike={"outer_momentum": 0.8}),
        case("local", 4, k=16, pull=0.3, unlike={"pull": 0.0}),
        case("local", 2, k=15, pull=0.2, outer="slowmo", outer_momentum=0.4,
             unlike={"outer": "none"}),
        case("local", 3, "mlp", k=20, pull=0.2, **HEAVY, unlike={"pull": 0.3}),
    ],
}


def option_words(setting):
    words = []
    for name, value in setting.items():
        option = NAMES.get(name) or "--" + name.replace("_", "-")
        words += [option] if value is True else [option, str(value)]
    return words


def reference(problem, case):
    """The reference's parameters and its Setting."""
    s = Setting(problem, case["ranks"], STEPS, **case["setting"])
    return RULES[case["rule"]](s), s


def train(program, folder, case, simulate):
    """rubato-train's parameters, and its summary."""
    out, saved = folder / "out", folder / "saved.npy"
    initial = folder / "initial.npy"
    hidden = HIDDEN if case["model"] == "mlp" else 0
    np.save(initial, first_parameters(hidden))
    saved.unlink(missing_ok=True)
    command = [program, "--ranks", case["ranks"], "--algorithm", case["rule"], "--model",
               case["model"], "--data", f"npy:{folder}", "--no-shuffle", "--batch", BATCH,
               "--steps", STEPS, "--init", initial, "--save", saved, "--out", out,
               "--no-report", "--quiet",
               *(["--hidden", HIDDEN] if hidden else []), *(["--simulate"] if simulate else []),
               *option_words(case["setting"]), *case["words"]]
    got = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                         stdin=subprocess.DEVNULL, timeout=120, check=False,
                         env={**os.environ, "OMP_NUM_THREADS": "1"})
    text = " ".join(map(str, command[1:]))
    assert got.returncode == 0, f"exit {got.returncode}: {text}\n{got.stderr}"
    return np.load(saved).astype(np.float64), json.loads((out / "summary.json").read_text()), text


def distance(a, b):
    return np.linalg.norm(a - b) / np.linalg.norm(b)


def judge(program, folder, data, case, simulate):
    """How far this case is off, and what is wrong with it, or nothing."""
    hidden = HIDDEN if case["model"] == "mlp" else 0
    problem = Problem(*data, hidden, case["ranks"])
    expected, setting = reference(problem, case)
    got, summary, command = train(program, folder, case, simulate)
    found = distance(got, expected)
    wrong = []
    if not found <= LIMIT:
        wrong.append(f"differs by {found:.2e}")
    if case["rule"] != "sync" or case["unlike"]:
        other = {**case, "rule": (case["unlike"] or {}).get("rule", case["rule"])}
        changed = {k: v for k, v in (case["unlike"] or {}).items() if k != "rule"}
        other["setting"] = {**case["setting"], **changed}
        if not distance(reference(problem, other)[0], expected) > 10 * LIMIT:
            wrong.append(f"the case shows nothing: unlike {case['unlike']} is as near")
    counts = [scope for _, scope in setting.averages]
    if counts:
        wrong += count_wrong(summary, setting)
    print(f"{'WRONG' if wrong else 'right'} {found:.1e}  {command}")
    return found, [f"{text}: {command}" for text in wrong]


def count_wrong(summary, setting):
    """Averages that were taken, the last one of the run included."""
    last = setting.averages[-1] if setting.averages else (0, "")
    scopes = [scope for _, scope in setting.averages]
    more = max((t for t, scope in setting.averages if scope == "global"), default=0) < STEPS
    expected = scopes.count("global") + more, scopes.count("local")
    got = summary["global_reductions"], summary["local_reductions"]
    return [] if got == expected else [f"reductions {got}, not {expected} (last: {last})"]


def check_by_hand():
    """Figures of the papers' equations that were computed on paper."""
    two = Quadratic(1.0, 3.0)

    def laga_at(steps):
        s = Setting(two, 2, steps, 0.1)
        return RULES["laga"](s)[0]

    # 0, 0, 0.2, 0.4, 0.58 in flight, each with the gradients before it flushed: 0.74 after four.
    assert np.isclose(laga_at(4), 0.74), laga_at(4)
    assert np.isclose(RULES["sync"](Setting(two, 2, 2, 0.1))[0], 0.38)

    # Reduction momentum: mean displacements of 0.3 and then 0.2, each from the stored model.
    for kind, starts in ("block", (0.3, 0.65)), ("nesterov", (0.45, 0.825)):
        outer = Outer(Setting(two, 2, 1, 0.1, outer=kind, outer_momentum=0.5))
        for displacement, start in zip((0.3, 0.2), starts):
            assert np.isclose(outer.reduce(outer.base + displacement, 0.1), start), kind
    # What may not change anything: momentum 0 under any outer rule, equal periods, groups of one.
    four = Quadratic(0.0, 2.0, 4.0, 6.0)
    plain = RULES["kavg"](Setting(four, 4, 9, 0.1, k=3))
    for own in ({"outer": "block"}, {"outer": "slowmo"}, {"outer": "nesterov"},
                {"outer": "nesterov", "nesterov_base": "shifted"}):
        s = Setting(four, 4, 9, 0.1, k=3, outer_momentum=0.0, **own)
        assert np.isclose(RULES["kavg"](s), plain), own
    for k1, k2, group in (3, 3, 2), (1, 3, 1), (3, 9, 4):
        assert np.isclose(RULES["hier"](Setting(four, 4, 9, 0.1, k1=k1, k2=k2, group=group)), plain)
    assert np.isclose(RULES["periodic"](Setting(four, 4, 9, 0.1, period=3)), plain)


def rules_of(program):
    """What --algorithm takes."""
    said = subprocess.run([program, "--algorithm", "none"], capture_output=True, text=True).stderr
    return set(re.search(r"takes one of (.*), not", said)[1].split(", "))


def main():
    program, *wanted = sys.argv[1:]
    check_by_hand()
    assert RULES.keys() == CASES.keys(), f"equations or cases lack: {RULES.keys() ^ CASES.keys()}"
    # The rounds of eager depend on time: what it applied is replayed from its ledger.
    lacking = rules_of(program) - CASES.keys() - {"eager"}
    assert not lacking, f"no equations for --algorithm {lacking}"
    wrong = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        data = data_make(folder)
        for rule in wanted or CASES:
            sizes, off = set(), []
            for one in CASES[rule][::3] if SHORT else CASES[rule]:
                # Simulated all, on real ranks one of each size.
                for simulate in (True,) if one["ranks"] in sizes else (True, False):
                    far, texts = judge(program, folder, data, one, simulate)
                    off.append(far)
                    wrong += texts
                sizes.add(one["ranks"])
            print(f"{rule}: {len(off)} runs, at most {max(off):.1e} off")
    if wrong:
        print("\n".join(wrong), file=sys.stderr)
        sys.exit(1)


main()
