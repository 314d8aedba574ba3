#!/usr/bin/env python3
"""test_policies.py SOURCE-ROOT -- the lists of the partial allreduce's policies are those of
base/policy.c: the header's, those of the docs, and the cases that each policy has in a test."""

import pathlib
import re
import sys
import unittest

from programs import main

ROOT = pathlib.Path(sys.argv.pop(1))


def text(path):
    return (ROOT / path).read_text()


def one(pattern, path):
    """What the pattern's group is in the file, which has it once."""
    found = re.findall(pattern, text(path), re.S)
    assert len(found) == 1, f"{path} has {len(found)} times {pattern}"
    return found[0]


ROWS = re.findall(r'ROW\(RUBATO_POLICY_(\w+), "(\w+)", "([^"]*)"', text("base/policy.c"))
WORDS = [word for _, word, _ in ROWS]


class Lists(unittest.TestCase):
    def test_the_headers(self):
        header = "include/rubato.h"
        body = one(r"typedef enum rubato_policy \{(.*?)\} rubato_policy;", header)
        found = re.findall(r"RUBATO_POLICY_(\w+) = (\d+),", body)
        self.assertEqual(found, [(name, str(i)) for i, (name, _, _) in enumerate(ROWS)])
        self.assertEqual(int(one(r"#define RUBATO_POLICY_COUNT (\d+)", header)), len(ROWS))
        said = one(r"/\* What rubato_policy_parse reads, in the order of the enum, then NULL: "
                   r"(.*?)\. K", header)
        self.assertEqual(re.findall(r'"([^"]*)"', said), [word + after for _, word, after in ROWS])

    def test_the_docs(self):
        for path, pattern in (
            ("README.md", r"partial allreduce \((.*?)\)"),
            ("docs/ARCHITECTURE.md", r"\| policy \| who opens a round: (.*?) \|"),
        ):
            self.assertEqual(one(pattern, path), ", ".join(WORDS), path)
        table = one(r"\| policy \| who opens a round \|\n[|-]+\n(.*?)\n\n", "docs/relaxed.md")
        cells = ", ".join(row.split(" | ")[0].strip("| ") for row in table.split("\n"))
        found = [re.split(r"\W", word)[0] for word in cells.split(", ")]
        self.assertEqual(sorted(set(found) & set(WORDS)), sorted(WORDS), "docs/relaxed.md")

    def test_states_are_taken_under_each(self):
        found = re.findall(r"\{ \.policy = RUBATO_POLICY_(\w+)",
                           text("tests/runtime/relaxed/test_partial_state.c").replace("\n\t", " "))
        self.assertEqual(set(found) & {name for name, _, _ in ROWS}, {name for name, _, _ in ROWS})


if __name__ == "__main__":
    main()
