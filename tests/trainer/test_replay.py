"""test_replay -- tools/replay recomputes what rubato-train computed, and says so only then.

usage: test_replay.py RUBATO-TRAIN REPLAY [RULE]

Each run, simulated and with real ranks, must be replayed within the tolerance. Each change of its
ledger (an entry altered, dropped or doubled) must be found: by a law, or by other parameters.
"""

import array
import copy
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

TRAIN, REPLAY = (os.path.abspath(path) for path in sys.argv[1:3])
PYTHONS = [sys.executable, "/usr/bin/python3"]
ROWS, FEATURES, CLASSES = 130, 16, 3
SHORT = os.environ.get("TEST_EFFORT") == "short"
TOLERANCE = "2e-5"  # The worst of these runs has 4e-6.


def find_python():
    for python in PYTHONS:
        if subprocess.run([python, "-c", "import numpy"], capture_output=True).returncode == 0:
            return python
    print("skipped: no Python here has numpy (python3-numpy)")
    sys.exit(77)


def npy_write(path, descr, shape, values):
    head = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"
    head = head.ljust(117) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode())
        values.tofile(file)


def data_make(folder, targets):
    """Labels (or a target) that can be learned, and noise."""
    os.mkdir(folder)
    state, x, y = 7, array.array("f"), array.array("f" if targets else "i")
    for row in range(ROWS):
        for k in range(FEATURES):
            state = state * 6364136223846793005 + 1442695040888963407 & (1 << 64) - 1
            x.append((state >> 40) / (1 << 23) - 1.0 + (row % CLASSES == k))
        y.append(row % CLASSES)
    npy_write(f"{folder}/x.npy", "<f4", (ROWS, FEATURES), x)
    npy_write(f"{folder}/y.npy", "<f4" if targets else "<i4", (ROWS,), y)


def train(line, out):
    shutil.rmtree(out, ignore_errors=True)
    command = [TRAIN, "--quiet", "--out", out] + line.split()
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, f"'{line}': status {done.returncode}: {done.stderr}"
    return pathlib.Path(out)


def replay(python, out, *more):
    command = [python, REPLAY, str(out), "--tolerance", TOLERANCE, *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    lines = (done.stdout + done.stderr).splitlines()
    assert len(lines) == 1, f"more than a line: {lines}"
    return done.returncode, lines[0]


def ledger_read(out):
    return [json.loads(line) for line in open(out / "ledger.jsonl")]


def ledger_write(out, lines):
    (out / "ledger.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


# ---- Changes of a ledger; None: this ledger has nothing to change so ----

def dropped_line(lines, at):
    del lines[at]
    return True


def doubled_line(lines, at):
    lines.insert(at, copy.deepcopy(lines[at]))
    return True


def dropped_share(lines, at):
    if len(lines[at].get("contributions", [])) < 1:
        return None
    del lines[at]["contributions"][-1]
    return True


def doubled_share(lines, at):
    if len(lines[at].get("contributions", [])) < 1:
        return None
    lines[at]["contributions"].append(lines[at]["contributions"][0])
    return True


def swapped_shares(lines, at):
    """Two gradients of one rank change places: every gradient is still there, once."""
    for other in range(at + 1, len(lines)):
        for mine in lines[at].get("contributions", []):
            for its in lines[other].get("contributions", []):
                if mine[0] == its[0]:
                    mine[1:], its[1:] = its[1:], mine[1:]
                    return True
    return None


def earlier_application(lines, at):
    """One rank applied it a step earlier: what it then computes is at other parameters."""
    for pair in lines[at].get("applied", []):
        if pair[1] > 0:
            pair[1] -= 1
            return True
    return None


def another_rate(lines, at):
    if "rate" not in lines[at]:
        return None
    lines[at]["rate"] *= 1.1
    return True


def another_divisor(lines, at):
    if "weight_denominator" not in lines[at]:
        return None
    lines[at]["weight_denominator"] += 1
    return True


def another_step(lines, at):
    """Models were averaged a step earlier."""
    if lines[at].get("step", 0) < 1 or "kind" not in lines[at] or "first_row" in lines[at]:
        return None
    lines[at]["step"] -= 1
    return True


def fewer_ranks(lines, at):
    if len(lines[at].get("ranks", [])) < 2:
        return None
    del lines[at]["ranks"][-1]
    return True


def another_place(lines, at):
    if "first_row" not in lines[at]:
        return None
    lines[at]["first_row"] += 1
    return True


CHANGES = [dropped_line, doubled_line, dropped_share, doubled_share, swapped_shares,
           earlier_application, another_rate, another_divisor, another_step, fewer_ranks,
           another_place]


def must_find_changes(python, out, seed, discards):
    """Each change at a place of its own, or at the next where there is something to change. Where
    gradients are discarded, it may not matter to any other which parameters they were of."""
    whole = ledger_read(out)
    made = set()
    for number, change in enumerate(CHANGES):
        if discards and change is earlier_application:
            continue
        begin = (7 * number + 13 * seed) % len(whole)
        for at in list(range(begin, len(whole))) + list(range(begin)):
            lines = copy.deepcopy(whole)
            if change(lines, at) is None:
                continue
            made.add(change.__name__)
            ledger_write(out, lines)
            status, said = replay(python, out)
            assert status == 1, f"{change.__name__} at {at}: status {status}: {said}"
            break
    ledger_write(out, whole)
    return made


RUN = "--data npy:data --batch 4 --steps 60 --lr 0.05 --seed 3 --model mlp --hidden 8 "
SIMULATED = "--simulate --ranks 4 --compute-time 5ms --delay rotating:10ms "
REAL = "--ranks 3 --delay random:3ms "
# When an update comes depends on time there, and so whether a sum falls on the threshold of a
# rectifier, which rounding then decides: these runs have none.
TIMED = {"laga": "--model logistic ", "eager": "--model logistic "}
RUNS = [
    "--algorithm sync",
    "--algorithm sync --model logistic --momentum 0.9 --weight-decay 1e-2 "
    "--lr-schedule warmup:9,cosine --clip 0.3",
    "--algorithm sync --optimizer adam --lr 0.005 --weight-decay 1e-2 --no-shuffle",
    "--algorithm sync --optimizer adamw --lr 0.005 --weight-decay 1e-2 --data npy:targets",
    "--algorithm sync --data npy:targets --model hyperplane --momentum 0.5 --lr 0.01",
    "--algorithm laga",
    "--algorithm laga --lag 2 --accumulate 4 --momentum 0.5 --lr 0.02 --first-step zero "
    "--weight-decay 1e-2 --rate-by-count",
    "--algorithm laga --accumulate until-done --lr 0.02",
    "--algorithm laga --lag-comp lookahead --momentum 0.9 --lr 0.01",
    "--algorithm kavg --k 7 --momentum 0.9",
    "--algorithm kavg --k 8 --outer block --momentum 0.5 --opt-state average",
    "--algorithm kavg --k 8 --outer nesterov --momentum 0.5 --opt-state reset",
    "--algorithm kavg --k 8 --outer nesterov --nesterov-base shifted --outer-gain 1-mu",
    "--algorithm kavg --k 8 --outer slowmo --lr-schedule cosine",
    "--algorithm hier --k1 3 --k2 12 --group 2 --outer block --momentum 0.5",
    "--algorithm periodic --period 5 --optimizer adam --lr 0.01 --opt-state average",
    "--algorithm periodic --schedule post-local --momentum 0.5",
    "--algorithm periodic --schedule adacomm",
    "--algorithm adpsgd --lr-schedule step:30:0.1",
    "--algorithm local --k 10 --optimizer adamw --lr 0.01 --outer nesterov --outer-lr 0.7",
    "--algorithm local --k 10 --pull 0.3",
    "--algorithm local --k 10 --pull 0.3 --outer block --opt-state reset --momentum 0.5 --steps 55",
    "--algorithm eager --policy solo --momentum 0.9 --lr 0.01 --normalise contributors",
    "--algorithm eager",
    "--algorithm eager --policy quorum:2 --normalise samples --clip 0.2 --rounds free",
    "--algorithm eager --policy solo --collect own --model-sync-every 20 --momentum 0.5 "
    "--opt-state average",
    "--algorithm eager --policy majority --collect latest --late drop --model-sync-every 15 "
    "--opt-state reset --momentum 0.5",
    "--algorithm eager --policy solo --late latest",
    "--algorithm eager --policy quorum:2 --lag-comp lookahead --momentum 0.9 --lr 0.01",
    "--algorithm eager --policy quorum:2 --work shared",
    "--algorithm eager --policy solo --work shared --lag-comp lookahead --momentum 0.9 --lr 0.01",
]
RESUMED = [
    "--algorithm sync --optimizer adam --lr 0.01",
    "--algorithm kavg --k 7 --outer block",
    "--algorithm local --k 7 --pull 0.3",
    "--algorithm eager --policy solo",
    "--algorithm eager --policy solo --collect own --model-sync-every 15 --momentum 0.5",
]
GRADIENTS = {"dropped_line", "doubled_line", "dropped_share", "doubled_share", "swapped_shares",
             "earlier_application", "another_rate", "another_divisor"}
MODELS = {"dropped_line", "doubled_line", "another_step", "fewer_ranks"}
MUST_CHANGE = {"sync": GRADIENTS, "laga": GRADIENTS, "kavg": MODELS, "hier": MODELS,
               "periodic": MODELS | GRADIENTS, "adpsgd": MODELS, "local": MODELS,
               "eager": GRADIENTS | MODELS | {"another_place"}}


def must_survive_resumption(python, options, where):
    """Its end is lost, and made again: the ledger is one of a whole run nevertheless."""
    shutil.rmtree("ck", ignore_errors=True)
    smooth = TIMED.get(options.split()[1], "") if where == REAL else ""
    line = RUN + where + smooth + options + " --checkpoint ck --checkpoint-every 20"
    train(line, "out")
    os.remove("ck/step-60/manifest.ckpt")
    status, said = replay(python, train(line + " --resume", "out"))
    assert status == 0, f"'{options}' {where}, resumed: {said}"
    print(f"{said}, resumed")


def main():
    python = find_python()
    folder = tempfile.mkdtemp(prefix="rubato-test-")
    os.chdir(folder)
    try:
        data_make("data", False)
        data_make("targets", True)
        changed = {}
        for number, options in enumerate(RUNS):
            rule = options.split()[1]
            if rule not in sys.argv[3:] and len(sys.argv) > 3 or SHORT and number % 3 != 0:
                continue
            for where in (SIMULATED, REAL) if number % 3 == 0 else (SIMULATED,):
                smooth = TIMED.get(rule, "") if where == REAL else ""
                out = train(RUN + where + smooth + options, "out")
                status, said = replay(python, out)
                assert status == 0, f"'{options}' {where}: {said}"
                print(said)
                if where == SIMULATED:
                    changed.setdefault(rule, set()).update(
                        must_find_changes(python, out, number, "--late" in options))
        for number, options in enumerate(RESUMED):
            must_survive_resumption(python, options, (SIMULATED, REAL)[number % 2])
        for rule, names in MUST_CHANGE.items():
            missing = set() if SHORT else names - changed.get(rule, names)
            assert not missing, f"{rule}: not tried: {missing}"
        assert replay(python, "none")[0] == 2
        assert replay(python, out, "--tolerance")[0] == 2
        assert replay(python, out, "--tolerance", "1e-12")[0] == 1
    finally:
        os.chdir("/")
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
