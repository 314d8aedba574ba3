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
import subprocess
import sys
import tempfile

try:
    import numpy as np
except ImportError:
    print("skipped: numpy (python3-numpy) is not installed")
    sys.exit(77)

from reference_rules import RULES, Setting

LIMIT = 1e-4
STEPS, BATCH = 200, 4
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


# Options of rubato-train that follow from a Setting's names.
NAMES = {"lr": "--lr", "momentum": "--momentum", "decay": "--weight-decay",
         "optimizer": "--optimizer", "schedule": "--lr-schedule", "warmup": "--warmup",
         "clip": "--clip"}
SYNC = {"rule": "sync"}
HEAVY = {"momentum": 0.9, "decay": 0.01, "lr": 0.02}

CASES = {
    "sync": [
        case("sync", 2), case("sync", 3, "mlp", **HEAVY), case("sync", 4, "mlp", **HEAVY,
                                                              schedule="cosine", warmup=20),
        case("sync", 2, schedule="linear", momentum=0.5),
        case("sync", 2, schedule="step:60:0.3", decay=0.05),
        case("sync", 3, momentum=0.9, lr=0.05, clip=0.2, unlike={"clip": 0.0}),
        case("sync", 2, optimizer="adam", lr=0.01, decay=0.01, unlike={"decay": 0.0}),
        case("sync", 3, "mlp", optimizer="adam", lr=0.005, schedule="cosine"),
        case("sync", 2, "mlp", optimizer="adamw", lr=0.005, decay=0.1,
             unlike={"optimizer": "adam"}),
    ],
}
AVAILABLE = {}


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
               "--steps", STEPS, "--init", initial, "--save", saved, "--out", out, "--quiet",
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
    """What is wrong with this case, or nothing."""
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
    return [f"{text}: {command}" for text in wrong]


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


def main():
    program, *wanted = sys.argv[1:]
    check_by_hand()
    wrong = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        data = data_make(folder)
        for rule in wanted or CASES:
            for number, one in enumerate(CASES[rule]):
                # Simulated all, on real ranks one of each rule's.
                for simulate in (True, False) if number == 0 else (True,):
                    wrong += judge(program, folder, data, one, simulate)
    if wrong:
        print("\n".join(wrong), file=sys.stderr)
        sys.exit(1)


main()
