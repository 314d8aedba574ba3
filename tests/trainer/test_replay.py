"""test_replay -- tools/replay recomputes what rubato-train computed, and says so only then.

usage: test_replay.py RUBATO-TRAIN REPLAY [RULE]

Each run, simulated and with real ranks, must be replayed within the tolerance. Each change of its
ledger (an entry altered, dropped or doubled) must be found: by a law, or by other parameters.

When an update comes depends on time on real ranks, and so whether the sum of a rectifier is so near
to zero that float32 and float64 disagree about it. The replay tries such rectifiers; what these do
not explain to 1e-5 is a failure, and the folder of that run is kept where the test was started. A
run that rounding was made to switch must be explained so, and runs with real faults must not.
"""

import array
import contextlib
import copy
import importlib
import importlib.machinery
import importlib.util
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

TRAIN, REPLAY = (os.path.abspath(path) for path in sys.argv[1:3])
OTHER_PYTHON = "/usr/bin/python3"
ROWS, FEATURES, CLASSES = 130, 16, 3
SHORT = os.environ.get("TEST_LENGTH") == "short"
TOLERANCE = "2e-5"  # The worst of these runs has 4e-6.
TRIES = "200"
STARTED = pathlib.Path.cwd()


def numpy_or_another_python():
    """NumPy; the test begins anew where only another Python has it."""
    try:
        return importlib.import_module("numpy")
    except ImportError:
        if shutil.which(OTHER_PYTHON) is None or subprocess.run(
                [OTHER_PYTHON, "-c", "import numpy"], capture_output=True).returncode:
            print("skipped: no Python here has numpy (python3-numpy)")
            sys.exit(77)
        return os.execv(OTHER_PYTHON, [OTHER_PYTHON, "-B", *sys.argv])


np = numpy_or_another_python()


def module():
    """tools/replay: hundreds of processes would spend most of their time on getting ready."""
    loader = importlib.machinery.SourceFileLoader("replay_tool", REPLAY)
    made = importlib.util.module_from_spec(importlib.util.spec_from_loader("replay_tool", loader))
    loader.exec_module(made)
    return made


tool = module()


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
    command = [TRAIN, "--quiet", "--no-report", "--out", out] + line.split()
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, f"'{line}': status {done.returncode}: {done.stderr}"
    return pathlib.Path(out)


def replay(out, *more):
    said, arguments = io.StringIO(), sys.argv
    sys.argv = [REPLAY, str(out), "--tolerance", TOLERANCE, *more]
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            status = tool.main()
    finally:
        sys.argv = arguments
    lines = said.getvalue().splitlines()
    assert len(lines) == 1, f"more than a line: {lines}"
    return status, lines[0]


def must_be_a_program(out):
    """It says and returns the same when it is started by its name."""
    done = subprocess.run([sys.executable, "-B", REPLAY, str(out), "--tolerance", TOLERANCE],
                          capture_output=True, text=True, timeout=240)
    assert (done.returncode, (done.stdout + done.stderr).strip()) == replay(out), done


def must_replay(out, what):
    """What it says of a run that is right."""
    status, said = replay(out, "--switches", TRIES)
    if status != 0:
        kept = pathlib.Path(tempfile.mkdtemp(prefix="replay-failed-", dir=STARTED))
        for folder in out, "data", "targets":
            shutil.copytree(folder, kept / os.path.basename(folder))
        sys.exit(f"'{what}': {said}; the run is kept in {kept}")
    return said


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


def must_find_changes(out, seed, discards):
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
            status, said = replay(out)
            assert status == 1, f"{change.__name__} at {at}: status {status}: {said}"
            break
    ledger_write(out, whole)
    return made


RUN = "--data npy:data --batch 4 --steps 60 --lr 0.05 --seed 3 "
SIMULATED = "--simulate --ranks 4 --compute-time 5ms --delay rotating:10ms "
REAL = "--ranks 3 --delay random:3ms "
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


def model(options):
    return options if "--model" in options else "--model mlp --hidden 8 " + options


def must_survive_resumption(options, where):
    """Its end is lost, and made again: the ledger is one of a whole run nevertheless."""
    shutil.rmtree("ck", ignore_errors=True)
    line = RUN + where + model(options) + " --checkpoint ck --checkpoint-every 20"
    train(line, "out")
    os.remove("ck/step-60/manifest.ckpt")
    said = must_replay(train(line + " --resume", "out"), line + " --resume")
    print(f"{said}, resumed")


# ---- Rounding ----

def poised_make(folder, seed):
    """Data and first parameters with a sum of zero, up to rounding: that of the first sample of
    rank 0's first batch, and of its second one, at unit 0."""
    draw = np.random.default_rng(seed)
    shutil.copytree("data", folder, dirs_exist_ok=True)
    rows = np.load(f"{folder}/x.npy")
    first = np.concatenate([draw.normal(0, 0.4, 8 * FEATURES), np.zeros(8),
                            draw.normal(0, 0.4, 8 * CLASSES), np.zeros(CLASSES)]).astype("f4")
    weights = first[:FEATURES].astype("f8")
    for row in 0, 1:
        others = rows[row, :-1].astype("f8") @ weights[:-1]
        rows[row, -1] = -others / weights[-1]
    np.save(f"{folder}/x.npy", rows)
    np.save(f"{folder}/first.npy", first)


POISED = ("--simulate --ranks 2 --batch 4 --steps 40 --lr 0.05 --model mlp --hidden 8 --no-shuffle "
          "--data npy:poised --init poised/first.npy --compute-time 5ms --delay random:10ms "
          "--algorithm eager --policy solo")


def poised_run():
    """A run that float32 and float64 disagree about: found, not made by hand."""
    for seed in range(40):
        poised_make("poised", seed)
        out = train(POISED, "out")
        status, said = replay(out)
        if status == 1:
            return out, said
        assert status == 0, said
    sys.exit("in no run did rounding switch a rectifier")


def lacking(gradient, which):
    """Of the gradients that are computed one does not arrive."""
    calls = []

    def less(*words):
        calls.append(gradient(*words))
        return calls[-1] * (len(calls) != which)
    return less


def swapped(rows_of, at):
    """Ranks 0 and 1 read each other's batch at one step."""
    return lambda rank, step: rows_of(1 - rank if step == at else rank, step)


def faulty(out, fault):
    """final.npy as a program with this fault would have it, whose ledger says what it should."""
    lines = ledger_read(out)
    changed = copy.deepcopy(lines)
    changed[20]["rate"] *= 1.01 if fault == "rate" else 1.0
    ledger_write(out, changed)
    replayed = tool.Replay(str(out), None)
    ledger_write(out, lines)
    if fault == "missing":
        replayed.model.gradient = lacking(replayed.model.gradient, 30)
    elif fault == "swapped":
        replayed.rows_of = swapped(replayed.rows_of, 15)
    replayed.go()
    w = replayed.ranks[0].w.copy()
    if fault == "weight":
        w[5] += 1e-3 * np.abs(w - replayed.initial).max()
    np.save(out / "final.npy", w.astype("f4"))


def must_tell_rounding_from_faults():
    out, said = poised_run()
    print(f"poised: {said}")
    status, said = replay(out, "--switches", TRIES)
    assert status == 0 and "what rounding may have switched: rank 0 step 0 sample" in said, said
    print(f"poised: {said}")
    whole = (out / "final.npy").read_bytes()
    for fault in "rate", "missing", "swapped", "weight":
        faulty(out, fault)
        status, said = replay(out, "--switches", TRIES)
        assert status == 1 and "do not explain" in said, f"{fault}: status {status}: {said}"
        assert "which 0 switches" not in said, f"{fault}: there was nothing to try: {said}"
        print(f"{fault}: {said}")
        (out / "final.npy").write_bytes(whole)


def main():
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
                out = train(RUN + where + model(options), "out")
                print(must_replay(out, RUN + where + model(options)))
                if where == SIMULATED:
                    changed.setdefault(rule, set()).update(
                        must_find_changes(out, number, "--late" in options))
        for number, options in enumerate(RESUMED):
            must_survive_resumption(options, (SIMULATED, REAL)[number % 2])
        said = subprocess.run([TRAIN, "--algorithm", "none"], capture_output=True, text=True)
        rules = re.search(r"takes one of (.*), not", said.stderr)[1].split(", ")
        assert set(rules) == MUST_CHANGE.keys(), f"MUST_CHANGE and --algorithm differ: {rules}"
        for rule, names in MUST_CHANGE.items():
            missing = set() if SHORT else names - changed.get(rule, names)
            assert not missing, f"{rule}: not tried: {missing}"
        must_tell_rounding_from_faults()
        must_be_a_program(out)
        must_be_a_program("none")
        assert replay("none")[0] == 2
        assert replay(out, "--switches", "x")[0] == 2
        assert replay(out, "--tolerance")[0] == 2
        assert replay(out, "--tolerance", "1e-12")[0] == 1
    finally:
        os.chdir("/")
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
