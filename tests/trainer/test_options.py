"""test_options.py RUBATO-TRAIN TRAINER.MD -- docs/trainer.md and `rubato-train --help` have the
same options, of the same defaults, and the words that an option takes stand in its line. A run
writes down its policy with its number."""

import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tools"))
from programs import main, policy_forms, run, takes  # noqa: E402

PROGRAM, DOCUMENT = os.path.abspath(sys.argv.pop(1)), sys.argv.pop(1)
WITHOUT = {"help", "version"}


def helped():
    """Option -> its help, with the default in parentheses at the end."""
    text = subprocess.run([PROGRAM, "--help"], check=True, capture_output=True, text=True).stdout
    rows = re.split(r"\n +(?=-[a-zA-Z?], --|--)", text)[1:]
    found = {re.match(r"(?:-., )?--([\w-]+)", row)[1]: " ".join(row.split("\n\n")[0].split())
             for row in rows}
    return {name: row for name, row in found.items() if name not in WITHOUT}


def documented():
    """Option -> the lines of the tables that have it, in which `code` stands without its marks."""
    found, within = collections.defaultdict(str), False
    with open(DOCUMENT) as file:
        for line in file:
            within = line.startswith("| Option |") or within and line.startswith("|")
            cell = line.split(" | ")[0]
            for name in re.findall(r"--(\w[\w-]*)", cell) if within else []:
                found[name] += line.replace("`", "")
    return found


def presets(row):
    """"(8; local: 32)" -> 8, 32."""
    found = re.search(r" \(([^()]*(?:\([^()]*\))?)\)$", row)
    return [part.split(": ")[-1] for part in found[1].split("; ")] if found else []


def refusal(*words):
    got = run(PROGRAM, *words, "--out", "")  # Refused, after what stands before it.
    return got.stderr.decode().strip() if got.returncode == 2 else ""


def choices(name):
    """What it takes, where that is words."""
    said = refusal(f"--{name}", "no-such-word")
    owner = re.search(r"has no use for it \((\w+)", said)
    if owner is not None:
        said = refusal("--algorithm", owner[1], f"--{name}", "no-such-word")
    return takes(said) or []


class Table(unittest.TestCase):
    def test_the_same_options(self):
        differing = documented().keys() ^ helped().keys()
        self.assertFalse(differing, "of docs/trainer.md and --help only one has these")
        self.assertGreater(len(helped()), 60)

    def test_the_same_defaults(self):
        held, lines = 0, documented()
        for name, row in helped().items():
            for value in presets(row):
                if value == "0" or " " in value:  # None, or a sentence.
                    continue
                held += 1
                with self.subTest(name):
                    self.assertRegex(lines.get(name, ""), rf"(?<![\w.]){re.escape(value)}(?!\w)")
        self.assertGreater(held, 40)

    def test_the_same_choices(self):
        held, lines = 0, documented()
        for name in helped():
            for choice in choices(name):
                held += 1
                word = re.split(r"[:\[]", choice)[0]
                with self.subTest(f"{name} {word}"):
                    self.assertRegex(lines.get(name, ""), rf"(?<![\w-]){re.escape(word)}(?![\w])")
        self.assertGreater(held, 40)


class Written(unittest.TestCase):
    def rule(self, policy):
        with tempfile.TemporaryDirectory() as folder:
            got = run(PROGRAM, "--simulate", "--ranks", 6, "--algorithm", "eager", "--policy",
                      policy, "--steps", 1, "--data", "synthetic:48x4", "--batch", 1, "--out",
                      "run", cwd=folder)
            self.assertEqual(got.returncode, 0, got.stderr)
            return json.loads(pathlib.Path(folder, "run", "run.json").read_text())["rule"]

    def test_the_policy_with_its_number(self):
        for word, numbers, needs_one in policy_forms(choices("policy")):
            given = [f"{word}:{number}" for number in numbers] + ([] if needs_one else [word])
            for policy in given:
                with self.subTest(policy):
                    self.assertEqual(self.rule(policy)["policy"], policy)


if __name__ == "__main__":
    main()
