#!/usr/bin/env python3
"""test_help.py SOURCE-ROOT PROGRAM... -- --help names every value that parses, and no other.

Options whose values are words are found by giving them one that is none's: the refusal lists what
they take. That list must stand in --help; each entry must be taken; and of the entries of all other
lists and the words with which the sources compare, none may be.
"""

import concurrent.futures
import os
import pathlib
import re
import sys
import tempfile
import unittest

from programs import POLICY_NUMBERS, main, run, takes

ROOT, PROGRAMS = pathlib.Path(sys.argv[1]), sys.argv[2:]
del sys.argv[1:]
NONE = "no-such-word"
COMMANDS = {  # What comes before the options; each with a help of its own.
    "rubato-bench": (["allreduce"], ["partial"], ["lagged"], ["--tune", "none"],
                     ["--overlap", "allreduce"]),
    "rubato-sim": (["allreduce"], ["partial"], ["lagged"], ["choice"]),
    "rubato-run": ([],),
    "rubato-info": ([],),
    "rubato-train": (["--simulate", "--ranks", "2"],),
}
# Refused, after what stands before it.
LAST = {"rubato-train": ["--out", ""], "rubato-run": ["--timeout", "0s"]}
VALUES = {**{letter: numbers[0] for letter, numbers in POLICY_NUMBERS.items()},
          "N": "2", "D": "4", "N[,N..]": "2,3", "R:T": "0:5ms", "T[,T..]": "5ms,6ms",
          "EVERY:FACTOR": "10:0.5", "DIR": "none", "ROWSxDIMS": "8x4", "FILE": None,
          "FILE|LIST": "a:2", "COMMAND": "ssh",
          "RANK@TIME+FOR": "0@1ms+1ms", "RANK@TIME": "0@1ms", "A-B@TIME+FOR": "0-1@1ms+1ms"}
CHOICES = {  # How many options with words there are at least: this test shall not go blind.
    "rubato-bench": 12, "rubato-sim": 12, "rubato-run": 1, "rubato-info": 0, "rubato-train": 20}


def setUpModule():
    global trace
    file = tempfile.NamedTemporaryFile("w", suffix=".txt")
    file.write("1ms 2ms\n")
    file.flush()
    trace = file
    unittest.addModuleCleanup(file.close)


def compared():
    """Words with which the sources compare: what a table has not may be taken there."""
    words = set()
    for path in (path for folder in ("programs", "tools", "trainer", "base")
                 for path in ROOT.joinpath(folder).rglob("*.c")):
        text = path.read_text()
        words.update(re.findall(r'cmp\([^;]*?"([a-z0-9][a-z0-9_-]*):?"', text))
        words.update(re.findall(r'return "([a-z0-9][a-z0-9_-]*)";', text))
    return words


def said(program, words, option, value):
    got = run(program, *words, f"--{option}={value}",
              *LAST.get(os.path.basename(program), ["--json", ""]))
    assert got.returncode == 2, (program, words, option, value, got)
    return got.stderr.decode()


class Choice:
    """An option whose values are words."""

    def __init__(self, program, words, option, text):
        self.program, self.words, self.option, self.text = program, words, option, text
        refusal = said(program, words, option, NONE)
        stranger = re.search(r"has no use for it \((\w+)", refusal)
        if stranger is not None:  # It is some algorithm's.
            self.words = [*words, "--algorithm", stranger[1]]
            refusal = said(program, self.words, option, NONE)
        self.listed = takes(refusal)

    def names(self):
        return {re.split(r"[:\[]", entry)[0] for entry in self.listed}

    def refuses(self, value):
        return refused(said(self.program, self.words, self.option, value))


def refused(text):
    return takes(text) is not None or "is not in this version" in text


def forms(entry):
    """A listed entry as a user would give it."""
    name, _, value = entry.partition(":")
    optional = name.endswith("[")
    if not value:
        return [entry]
    value = value.rstrip("]") if optional else value
    assert value in VALUES, (f"the form {entry} has the value {value}: add one to VALUES "
                             "(a policy's: two to POLICY_NUMBERS)")
    given = f"{name.rstrip('[')}:{VALUES[value] if value != 'FILE' else trace.name}"
    return [name[:-1], given] if optional else [given]


class Help(unittest.TestCase):
    def options(self, program, words):
        got = run(program, *words, "--help")
        self.assertEqual(got.returncode, 0)
        text = got.stdout.decode()
        rows = re.split(r"\n +(?=-[a-zA-Z?], --|--)", text)[1:]
        helps = {re.match(r"(?:-\w, )?--([\w-]+)", row)[1]: " ".join(row.split())
                 for row in rows if "=" in row.split("\n")[0].split("   ")[0]}
        return helps, text

    def choices(self):
        for program in PROGRAMS:
            name, found = os.path.basename(program), 0
            for words in COMMANDS[name]:
                for option, text in self.options(program, words)[0].items():
                    if option in ("algorithm", "json", "ledger") and name != "rubato-train":
                        continue  # Algorithms: below. Files take any text.
                    choice = Choice(program, words, option, text)
                    if choice.listed is not None:
                        found += 1
                        yield choice
            self.assertGreaterEqual(found, CHOICES[name], name)

    def test_what_an_option_says_stands_beside_it(self):
        for program in PROGRAMS:
            for words in COMMANDS[os.path.basename(program)]:
                text = self.options(program, words)[1]
                rows = [part for part in text.split("\n\n") if re.search("^ +-", part, re.M)]
                self.assertTrue(rows)
                for line in (line for part in rows for line in part.rstrip().split("\n")):
                    with self.subTest(" ".join([os.path.basename(program), *words])):
                        self.assertRegex(line, "^ |^[A-Z].*:$")

    def test_what_parses_is_what_is_shown(self):
        choices = list(self.choices())
        words = compared().union(*(choice.names() for choice in choices))
        seen = set()
        self.assertTrue({"adamw", "bfloat16", "wagma", "uint16", "prod"} <= words)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            for choice in choices:
                place = os.path.basename(choice.program), *choice.words, f"--{choice.option}"
                with self.subTest(" ".join(place)):
                    self.assertIn(", ".join(choice.listed), choice.text)
                    for form in (form for entry in choice.listed for form in forms(entry)):
                        self.assertFalse(choice.refuses(form), form)
                    if (choice.option, *choice.listed) in seen:
                        continue  # It has the table of another command's.
                    seen.add((choice.option, *choice.listed))
                    endings = ("", ":2") if ":" in "".join(choice.listed) else ("",)
                    others = [word + ending for word in sorted(words - choice.names())
                              for ending in endings if f"{word}:" not in choice.text]
                    for other, found in zip(others, pool.map(choice.refuses, others)):
                        self.assertTrue(found, other)

    def test_operations_and_their_algorithms(self):
        for program in PROGRAMS:
            if os.path.basename(program) not in ("rubato-bench", "rubato-sim"):
                continue
            _, text = self.options(program, [])
            head = " ".join(text.split("\n\n")[1].split())
            refusal = run(program, NONE, "-b", 8, "-e", 1).stderr.decode()
            operations = takes(refusal)
            self.assertIn(f"OP: {', '.join(operations)} Commands", head)
            for operation in operations:
                with self.subTest(f"{os.path.basename(program)} {operation}"):
                    taken = run(program, operation, "-b", 8, "-e", 1).stderr.decode()
                    self.assertIn("-e is less than -b", taken)
                    given = run(program, operation, "--algorithm", NONE).stderr.decode()
                    names = [name for name in takes(given) or [] if name not in ("auto", "all")]
                    if len(names) > 1:
                        self.assertIn(f"Algorithms of {operation}: {', '.join(names)}", head)
            commands = re.search(r"Commands of their own \(COMMAND --help\): ([\w, ]+?) Alg", head)
            for command in commands[1].split(", "):
                got = run(program, command, "--help")
                self.assertEqual(got.returncode, 0)
                self.assertIn(f" {command} [options]", got.stdout.decode())

    def test_types_and_operators_are_the_librarys(self):
        header = (ROOT / "include/rubato.h").read_text()
        for enum, option in ("rubato_type", "type"), ("rubato_operator", "op"):
            body = re.search(rf"typedef enum {enum} \{{(.*?)\}} {enum};", header, re.S)[1]
            names = [name.lower() for name in re.findall(r"RUBATO_(\w+) = \d+,", body)]
            for program in PROGRAMS:
                if os.path.basename(program) in ("rubato-bench", "rubato-sim"):
                    helps, _ = self.options(program, [])
                    self.assertIn(", ".join(names), helps[option])


if __name__ == "__main__":
    main()
