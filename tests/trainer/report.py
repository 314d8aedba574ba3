"""report.py -- the page of a run, from outside: what rubato-train leaves in --out and what
rubato-report makes of it, of broken folders too.

usage: report.py RUBATO-TRAIN RUBATO-REPORT
"""

import array
import html.parser
import json
import os
import pathlib
import re
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tools"))

from programs import main  # noqa: E402

TRAIN, REPORT = sys.argv.pop(1), sys.argv.pop(1)
RANKS, STEPS, BATCH = 3, 12, 4
VOID = {"meta", "br", "link", "img", "input", "hr"}


def npy_write(path, descr, shape, values):
    head = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"
    head = head.ljust(117) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode())
        values.tofile(file)


def data_make(folder, rows=130, features=9, classes=3):
    os.mkdir(folder)
    pixels = array.array("f", ((k % classes == row % classes) + (row * 7919 + k) % 101 / 200
                               for row in range(rows) for k in range(features)))
    labels = array.array("i", (row % classes for row in range(rows)))
    for tail in "", "_test":
        npy_write(f"{folder}/x{tail}.npy", "<f4", (rows, features), pixels)
        npy_write(f"{folder}/y{tail}.npy", "<i4", (rows,), labels)


def run(*words, **more):
    return subprocess.run([str(word) for word in words], capture_output=True, text=True,
                          timeout=100, check=False, **more)


class Page(html.parser.HTMLParser):
    """Tags in balance; what is in <data>, under the key of the tile around it; all text."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tiles, self.cells, self.text, self.tags = [], {}, [], "", []
        self.key = None
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.tags.append((tag, attributes))
        self.key = attributes.get("data-key", self.key)
        if tag == "data" and "tiles" in self.where():
            self.tiles[self.key] = attributes["value"]
        elif tag == "data":
            self.cells.append(attributes["value"])
        if tag not in VOID:
            self.open.append((tag, attributes.get("class", "")))

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        opened = self.open.pop()
        assert opened[0] == tag, (opened, tag, self.getpos())

    def handle_data(self, text):
        if self.open and self.open[-1][0] not in ("style", "script"):
            self.text += text

    def where(self):
        return {kind for _, kinds in self.open for kind in kinds.split()}

    def values(self, label):
        """Of the one line with this label, as people see them."""
        found = [json.loads(attributes["data-points"]) for _, attributes in self.tags
                 if attributes.get("data-label") == label]
        assert len(found) == 1, (label, len(found))
        return [float(point[3]) for point in found[0]]

    def count(self, tag, kind=None):
        return sum(t == tag and (kind is None or kind in a.get("class", "").split())
                   for t, a in self.tags)


class Files(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        os.chdir(self.folder)
        self.addCleanup(os.chdir, "/")
        data_make("data")

    def train(self, *words, out="out", program=TRAIN, **more):
        got = run(program, "--data", "npy:data", "--quiet", "--model", "logistic", "--batch", BATCH,
                  "--steps", STEPS, "--report-every", 3, "--lr", 0.1, "--out", out, *words, **more)
        self.assertEqual(got.returncode, 0, got.stderr)
        self.assertEqual(got.stdout.count("\n"), 1)
        return got

    def simulate(self, *words, **more):
        got = self.train("--simulate", "--ranks", RANKS, "--compute-time", "4ms", "--delay",
                         "rotating:3ms", *words, **more)
        self.assertEqual(got.stderr, "")

    def page(self, path="out/report.html"):
        text = read(path)
        self.alone(text)
        return Page(text)

    def alone(self, text):
        """Nothing is fetched: no address, no reference, no import."""
        bad = re.search(r"(?i)https?:|://|//\w+\.|@import|\burl\s*\(|"
                        r"\b(src|href|srcset|action|poster)\s*=", text)
        self.assertIsNone(bad)

    def refused(self, status, says, *words):
        got = run(REPORT, *words)
        self.assertEqual((got.returncode, got.stdout), (status, ""), got.stderr)
        self.assertEqual(got.stderr.count("\n"), 1, got.stderr)
        self.assertTrue(got.stderr.startswith("rubato-report: "), got.stderr)
        self.assertIn(says, got.stderr)


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def load(path):
    return json.loads(read(path))


class Run(Files):
    def check_trace(self, ranks, whole=True):
        events = load("out/trace.json")["traceEvents"]
        rows, kinds = {}, {}
        for event in events:
            if event["ph"] == "M":
                continue
            self.assertIn(event["ph"], "Xi")
            kinds.setdefault((event["pid"], event["name"]), []).append(event)
            begin, last = event["ts"], rows.get((event["pid"], event["tid"]), 0.0)
            self.assertGreaterEqual(begin, last - 0.002)  # Times are rounded to a ns.
            rows[event["pid"], event["tid"]] = begin + event.get("dur", 0.0)
        self.assertEqual({event["pid"] for event in events}, set(range(ranks)))
        for rank in range(ranks):
            spans = kinds[rank, "compute"]
            self.assertEqual([span["args"]["step"] for span in spans], list(range(STEPS)))
            updates = kinds[rank, "update"]
            self.assertEqual([event["args"]["round"] for event in updates], list(range(STEPS)))
            self.assertEqual({event["ph"] for event in updates}, {"i"})
            names = {event["args"]["name"] for event in events if event["pid"] == rank
                     and event["name"] in ("process_name", "thread_name")}
            self.assertLessEqual({f"rank {rank}", "compute", "delay", "pause"}, names)
        return kinds

    def check_summary(self, ranks):
        summary = load("out/summary.json")
        parts = summary["per_rank"]
        self.assertEqual({len(values) for values in parts.values()}, {ranks})
        self.assertEqual(parts["steps"], [STEPS] * ranks)
        self.assertEqual(sum(parts["samples"]), summary["samples"])
        self.assertAlmostEqual(parts["compute_seconds"][0] + parts["idle_seconds"][0],
                               summary["seconds"], places=6)
        for communication, idle in zip(parts["communication_seconds"], parts["idle_seconds"]):
            self.assertLessEqual(communication, idle + 1e-6)
        self.assertAlmostEqual(sum(parts["communication_seconds"]) / ranks,
                               summary["communication_seconds"], places=6)
        return summary

    def test_simulated(self):
        self.simulate("--bucket", 1024)
        summary = self.check_summary(RANKS)
        # To the nanosecond: 4 ms a step, and a ramp over the ranks that comes round.
        delays = [sum((rank + step) % RANKS for step in range(STEPS)) * 3e-3 / (RANKS - 1)
                  for rank in range(RANKS)]
        kinds = self.check_trace(RANKS)
        for rank in range(RANKS):
            computed = sum(span["dur"] for span in kinds[rank, "compute"]) * 1e-6
            delayed = sum(span["dur"] for span in kinds[rank, "delay"]) * 1e-6
            self.assertAlmostEqual(computed, STEPS * 4e-3, places=8)
            self.assertAlmostEqual(delayed, delays[rank], places=8)
            self.assertAlmostEqual(summary["per_rank"]["compute_seconds"][rank],
                                   computed + delayed, places=8)
        self.assertEqual(summary["settings"]["delay"], "rotating:3ms")
        self.assertEqual(summary["settings"]["simulate"], True)
        self.assertNotIn("out", summary["settings"])

    def reductions(self, bandwidth):
        """Of laga over such a network: (lengths in us, what is blocked, of each rank's rounds)."""
        got = self.train("--simulate", "--ranks", RANKS, "--compute-time", "4ms", "--algorithm",
                         "laga", "--bandwidth", bandwidth, "--report-every", STEPS)
        self.assertEqual(got.stderr, "")
        kinds = self.check_trace(RANKS)
        for rank in range(RANKS):
            spans = kinds[rank, "reduction"]
            self.assertEqual([span["args"]["round"] for span in spans], list(range(STEPS)))
            for span, step in zip(spans, kinds[rank, "compute"]):
                self.assertGreaterEqual(span["ts"], step["ts"] + step["dur"] - 0.002)
            blocked = sum(span["dur"] for span in kinds.get((rank, "communication"), []))
            yield [span["dur"] for span in spans], blocked

    def test_reductions_in_flight(self):
        for lengths, blocked in self.reductions("12.5GB/s"):
            self.assertEqual(blocked, 0)
            for length in lengths[:-1]:  # As long as the next gradient: nobody waits for the last.
                self.assertAlmostEqual(length, 4000, delta=1)
        for lengths, blocked in self.reductions("0.1Mbit"):
            self.assertGreater(min(lengths), 5000)
            self.assertAlmostEqual(sum(lengths[:-1]) - 4000 * (STEPS - 1), blocked, delta=STEPS)
        text = read("out/report.html")
        self.assertIn("a reduction in flight", text)
        self.assertIn('class="k-reduction"', text)

    def test_real_ranks(self):
        got = self.train("--ranks", 2)
        self.assertEqual(got.stderr, "")
        self.check_trace(2)
        self.check_summary(2)
        self.page()

    def test_equal_runs_give_equal_files(self):
        names = ("trace.json", "report.html", "summary.json")
        texts = []
        for _ in range(2):
            self.simulate()
            texts.append([read(f"out/{name}") for name in names])
        self.assertEqual(*texts)

    def test_a_failed_run_leaves_nothing_of_an_older_one(self):
        self.simulate()
        got = run(TRAIN, "--data", "npy:data", "--quiet", "--simulate", "--ranks", 2, "--model",
                  "logistic", "--batch", 4, "--steps", 90, "--lr", 100, "--weight-decay", 1000,
                  "--out", "out")
        self.assertEqual(got.returncode, 1)
        self.assertIn("diverged", got.stderr)
        for name in ("report.html", "trace.json", "summary.json"):
            self.assertFalse(os.path.exists(f"out/{name}"), name)

    def test_the_page_may_be_left_out(self):
        got = self.train("--simulate", "--ranks", 2, "--no-report")
        self.assertEqual(got.stderr, "")
        self.assertFalse(os.path.exists("out/report.html"))
        self.assertTrue(os.path.exists("out/summary.json"))

    def test_a_run_does_not_fail_for_want_of_the_page(self):
        os.mkdir("alone")
        shutil.copy(TRAIN, "alone/rubato-train")
        shutil.copy(TRAIN, "alone/other")
        libraries = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(TRAIN))))
        env = {**os.environ, "PATH": "/none", "LD_LIBRARY_PATH": libraries}
        words = ("--simulate", "--ranks", 2)
        got = self.train(*words, program="alone/rubato-train", env=env)
        self.assertEqual(got.stderr.count("\n"), 1, got.stderr)
        self.assertIn("no report.html: rubato-report", got.stderr)
        self.assertFalse(os.path.exists("out/report.html"))
        self.assertTrue(os.path.exists("out/summary.json"))
        with open("alone/rubato-report", "w", encoding="ascii") as file:
            file.write("#!/bin/sh\necho no >&2\nexit 1\n")
        os.chmod("alone/rubato-report", 0o755)
        got = self.train(*words, program="alone/rubato-train", env=env)
        self.assertEqual(got.stderr.count("\n"), 1, got.stderr)
        self.assertIn("'rubato-report out' says why", got.stderr)


class One(Files):
    def test_numbers_are_those_of_the_summary(self):
        self.simulate()
        page, summary = self.page(), load("out/summary.json")
        self.assertGreaterEqual(
            set(page.tiles), {"test_accuracy", "final_loss", "seconds", "samples_per_second",
                              "idle_fraction", "global_reductions", "bytes_sent", "fresh_mean",
                              "contributors_mean", "staleness_max", "communication_seconds"})
        for key, value in page.tiles.items():
            self.assertEqual(json.loads(value), summary[key], key)
        for word in ("rotating:3ms", "logistic", "simulated", "compute-time"):
            self.assertIn(word, page.text)
        self.assertEqual(page.count("svg", "wide"), 1)
        # Gradients, delays, and what was blocked: of each rank a rectangle in the columns.
        self.assertGreaterEqual(page.count("rect", "k-delay"), RANKS)
        self.assertEqual({a["data-label"] for t, a in page.tags if "data-label" in a},
                         {"training", "test", "Global reductions", "Bytes handed to transports",
                          "Idle share over time", "Learning rate", "Ranks in an update",
                          "Age of the gradients in an update",
                          "Age of the oldest gradient in an update"})

    def test_points_are_those_of_the_metrics(self):
        self.simulate()
        page = self.page()
        lines = [json.loads(line) for line in read("out/metrics.jsonl").splitlines()]
        self.assertEqual(len(lines), STEPS / 3)
        self.assertEqual(page.values("Global reductions"), [line["reductions"] for line in lines])

    def test_the_ledger_is_shown(self):
        self.simulate()
        with open("out/ledger.jsonl", "w", encoding="ascii") as file:
            for n in range(20):  # Rank 1 is one step late; rank 2 is in every second update.
                shares = [[0, n, n], [1, n, n]] + [[2, n - 1, n]] * (n % 2)
                line = {"update": n, "round": n, "weight_denominator": 3, "contributions": shares,
                        "applied": [[0, n + 1], [1, n + 2], [2, n + 1]]}
                file.write(json.dumps(line) + "\n")
            for n in range(4):
                line = {"update": n, "kind": "average", "scope": "global", "ranks": [0, 1],
                        "step": 8 * n, "period": 2 + n}
                file.write(json.dumps(line) + "\n")
        self.assertEqual(run(REPORT, "out").returncode, 0)
        page = self.page()
        self.assertEqual(page.values("Ranks in an update"), [2, 3] * 10)
        # Rank 1's, and every second time the older of rank 2's two.
        self.assertEqual(page.values("Age of the oldest gradient in an update"), [1, 1] * 10)
        self.assertEqual(page.values("Age of the gradients in an update"), [0.5, 0.5] * 10)
        self.assertEqual(page.values("Steps between averages"), [2, 3, 4, 5])

    def test_partial_rounds(self):
        self.simulate("--algorithm", "eager", "--policy", "majority")
        page, summary = self.page(), load("out/summary.json")
        ranks = page.values("Ranks in an update")
        self.assertEqual(len(ranks), summary["rounds"])
        self.assertAlmostEqual(sum(ranks) / len(ranks), summary["contributors_mean"], places=6)
        self.assertLess(min(ranks), RANKS)
        self.assertGreater(max(page.values("Age of the oldest gradient in an update")), 0)
        self.assertEqual(json.loads(page.tiles["fresh_mean"]), summary["fresh_mean"])

    def test_averages(self):
        self.simulate("--algorithm", "periodic", "--schedule", "post-local", "--period", 3,
                      "--adapt-sample-steps", 6)
        page = self.page()
        # The first six steps average gradients.
        self.assertEqual(page.values("Steps between averages"), [3, 3])
        self.assertGreater(page.count("rect", "k-average"), RANKS)  # And the legend.
        self.assertIn("post-local", page.text)

    def test_names_do_no_harm(self):
        name = "<b>&\"'</script><script>alert(1)"
        name = name.replace("/", "")
        self.simulate("--seed", 1, out=name)
        page = self.page(f"{name}/report.html")
        self.assertIn(name, page.text)
        self.assertEqual((page.count("script"), page.count("b")), (1, 0))

    def test_a_link_stays_one(self):
        self.simulate()
        os.symlink("elsewhere.html", "link.html")
        got = run(REPORT, "out", "-o", "link.html")
        self.assertEqual((got.returncode, got.stderr), (0, ""))
        self.assertTrue(os.path.islink("link.html"))
        self.assertIn("</html>", pathlib.Path("elsewhere.html").read_text(encoding="utf-8"))
        # What the link leads to is replaced, and whole or not at all.
        os.link("elsewhere.html", "before.html")
        self.assertEqual(run(REPORT, "out", "-o", "link.html").returncode, 0)
        self.assertTrue(os.path.islink("link.html"))
        self.assertFalse(os.path.samefile("elsewhere.html", "before.html"))
        os.link("elsewhere.html", "same.html")
        got = run("sh", "-c", f"{shlex.quote(str(REPORT))} out -o /dev/stdout >same.html")
        self.assertEqual((got.returncode, got.stderr), (0, ""))
        self.assertTrue(os.path.samefile("elsewhere.html", "same.html"))  # It was open.
        os.symlink("/dev/full", "full.html")
        got = run(REPORT, "out", "-o", "full.html")
        self.assertEqual(got.returncode, 1)
        self.assertRegex(got.stderr, r"^rubato-report: full.html: No space left on device\n$")
        self.assertTrue(stat.S_ISCHR(os.stat("full.html").st_mode))

    def test_version_is_that_of_rubato_train(self):
        got, train = run(REPORT, "--version"), run(TRAIN, "--version")
        self.assertEqual((got.returncode, got.stderr), (0, ""))
        self.assertEqual(got.stdout, train.stdout.replace("-train", "-report"))

    def test_standard_output_that_takes_nothing_is_told(self):
        self.simulate()
        for words in ["--help"], ["--help=man"], ["--version"], ["out"]:
            for redirection in ">/dev/full", ">&-":
                with self.subTest(f"{words} {redirection}"):
                    got = subprocess.run(["sh", "-c", f'exec "$@" {redirection}', "-", REPORT,
                                          *words], capture_output=True, text=True, timeout=100,
                                         check=False)
                    self.assertEqual(got.returncode, 1)
                    self.assertRegex(got.stderr, r"^rubato-report: standard output could not be "
                                     r"written: [^\n]+\n$")

    def test_names_need_not_be_utf_8(self):
        name = os.fsdecode(b"r\xff\xfe")
        self.simulate("--seed", 1, out=name)
        self.assertIn("r??", self.page(f"{name}/report.html").text)
        for locale in "C", "C.UTF-8":
            page = os.fsencode(f"{name}/{locale}.html")
            got = subprocess.run([REPORT, name, "-o", page], capture_output=True, check=False,
                                 env={**os.environ, "LC_ALL": locale})
            self.assertEqual((got.returncode, got.stderr, got.stdout), (0, b"", page + b"\n"))
        self.assertEqual([file for file in os.listdir(name) if file.endswith(".part")], [])

    def test_large_files_stay_small_pages(self):
        self.simulate()
        with open("out/metrics.jsonl", "w", encoding="ascii") as file:
            for n in range(30000):
                file.write(json.dumps({"step": n + 1, "time": n * 0.01, "samples": n * 8,
                                       "loss": 1e3 / (n + 1), "accuracy": None,
                                       "idle_time": n * 0.001}) + "\n")
        self.assertEqual(run(REPORT, "out").returncode, 0)
        self.page()
        self.assertLess(os.path.getsize("out/report.html"), 400000)


class Several(Files):
    def test_side_by_side(self):
        self.simulate(out="a")
        self.simulate("--seed", 4, "--delay", "none", out="b")
        got = run(REPORT, "a", "b", "-o", "both.html")
        self.assertEqual((got.returncode, got.stdout, got.stderr), (0, "both.html\n", ""))
        page, a, b = self.page("both.html"), load("a/summary.json"), load("b/summary.json")
        speed = b["samples_per_second"] / a["samples_per_second"]
        self.assertGreater(speed, 1.2)  # Without delays.
        cells = [json.loads(value) for value in page.cells]
        for value in (1.0, speed, a["seconds"], b["seconds"], a["test_accuracy"],
                      b["final_loss"], b["idle_fraction"]):
            self.assertIn(value, cells)
        self.assertEqual(page.count("svg", "wide"), 2)
        self.assertEqual(page.count("tr", "differs"), 2)  # The seed, and the delay.
        colours = {a["class"].split()[1] for t, a in page.tags
                   if t == "g" and a.get("data-label", "").startswith("b")}
        self.assertEqual(colours, {"s1"})

    def test_tables_fit_a_page(self):
        """With all that a table can have, under a long name; columns were cut off at 1,200 pixels
        when one table had 14."""
        names = ["a-run-with-a-name-that-is-long", "b"]
        for name in names:
            self.simulate("--eval-every", 1, "--algorithm", "eager", "--delay", "random:2ms",
                          out=name)
        self.assertEqual(run(REPORT, *names).returncode, 0)
        page = self.page("report.html")
        heads = [text.split("</tr>")[0].count("<th>") for text in
                 pathlib.Path("report.html").read_text().split("<thead><tr><th>run</th>")[1:]]
        self.assertEqual(len(heads), 2)
        self.assertLessEqual(max(heads), 9)
        self.assertIn("greatest staleness", page.text)
        self.assertIn("time to accuracy", page.text)

    def test_no_time_to_what_only_the_end_tells(self):
        for out in "a", "b":
            self.simulate(out=out)
        self.assertEqual(run(REPORT, "a", "b").returncode, 0)
        text = self.page("report.html").text
        self.assertNotIn("time to accuracy", text)
        self.assertNotIn("speed-up to it", text)
        self.assertIn("--eval-every", text)

    def test_equal_names_are_told_apart(self):
        self.simulate(out="run")
        os.mkdir("x")
        shutil.copytree("run", "x/run")
        self.assertEqual(run(REPORT, "run", "x/run", "run").returncode, 0)
        text = self.page("report.html").text
        self.assertIn("x/run", text)
        self.assertIn("run (3)", text)


class Broken(Files):
    def test_the_command_line(self):
        self.refused(2, "names no run")
        self.refused(2, "no such folder", "none")
        self.refused(2, "unknown option", "--frobnicate", "data")
        self.refused(2, "-o needs a file", "data", "-o")
        self.refused(1, "neither summary.json nor metrics.jsonl", "data")
        self.assertIn("RUN", run(REPORT, "--help").stdout)
        self.simulate()
        self.refused(1, "No such file", "out", "-o", "none/x.html")
        self.assertEqual(sorted(os.listdir(".")), ["data", "out"])

    def broken(self, says, tell):
        """Change one file: the page is there, and says what is wrong, as does one line."""
        self.simulate()
        tell()
        got = run(REPORT, "out")
        self.assertEqual(got.returncode, 0, got.stderr)
        self.assertEqual(got.stderr.count("\n"), len(says), got.stderr)
        page = self.page()
        for text in says:
            self.assertIn(text, page.text)
            self.assertIn(text, got.stderr)
        return page

    def write(self, name, text):
        with open(f"out/{name}", "w", encoding="utf-8") as file:
            file.write(text)

    def test_missing_files(self):
        page = self.broken(["summary.json is missing"], lambda: os.unlink("out/summary.json"))
        self.assertIn("final_loss", page.tiles)  # The last that the metrics tell.
        self.assertIn("Global reductions", page.text)
        page = self.broken(["metrics.jsonl is missing"], lambda: os.unlink("out/metrics.jsonl"))
        self.assertIn("test_accuracy", page.tiles)
        page = self.broken([], lambda: os.unlink("out/trace.json"))
        self.assertEqual(page.count("svg", "wide"), 0)

    def test_cut_off_files(self):
        for name in ("summary.json", "trace.json"):
            self.broken([f"{name} is broken"], lambda name=name: self.cut(name))
        page = self.broken(["metrics.jsonl: line 4 cannot be read"], lambda: self.cut(
            "metrics.jsonl"))
        self.assertIn("Global reductions", page.text)

    def cut(self, name):
        self.write(name, read(f"out/{name}")[:-20])

    def test_values_of_the_wrong_kind(self):
        lines = ['{"step":1,"time":0.1,"loss":"much"}', '{"step":-1,"time":2}', "[]", "null", "7",
                 '{"step":2,"time":NaN}', '{"step":3,"time":1e999}',
                 '{"step":4,"time":0.2,"loss":0.5,"reductions":[1]}']
        self.broken(["metrics.jsonl: line 2 and 5 more"],
                    lambda: self.write("metrics.jsonl", "\n".join(lines)))
        self.broken([], lambda: self.write(
            "summary.json", '{"per_rank":{"compute_seconds":[1],"idle_seconds":7},"ranks":"x",'
            '"seconds":null,"settings":[1],"algorithm":3,"final_loss":1e999}'))
        self.broken(["trace.json: 2 events"], lambda: self.write(
            "trace.json", '{"traceEvents":[{"ph":"X"},{"ph":"X","name":"compute","pid":0,"ts":1,'
            '"dur":3},{"ph":"X","name":"compute","pid":"0","ts":1,"dur":3}]}'))
        self.broken(["ledger.jsonl: line 1 and 2 more"], lambda: self.write(
            "ledger.jsonl", '{"update":0,"round":0,"contributions":[[1]],"applied":[]}\n'
            '{"update":0,"contributions":[]}\n{"update":0,"round":0,"contributions":3}\n'))


if __name__ == "__main__":
    main()
