#!/usr/bin/env python3
"""test_tuning.py CONFIG.H TUNING.MD -- the table in docs/tuning.md is that of base/config.h.

With --write the table is brought up to date instead."""

import re
import sys

from doc_table import held

KINDS = {"U": "number", "S": "text", "T": "time", "B": "size"}
TIMES = [(86400 * 10**9, "d"), (10**9, "s"), (10**6, "ms"), (10**3, "us")]
SIZES = [(1 << 40, "T"), (1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")]
HEAD = "| variable | default | takes | from | to | what |\n|---|---|---|---|---|---|\n"


def limit(kind, text):
    number = int(text)
    if kind == "S":
        return f"{number} bytes" if number else ""
    for unit, name in {"T": TIMES, "B": SIZES}.get(kind, []):
        if number >= unit and number % unit == 0:
            return f"{number // unit}{name}"
    return str(number)


def rows(header):
    table = re.search(r"#define RB_CONFIG_TABLE\(X\)(.*?[^\\])\n", header, re.S)[1]
    table = re.sub(r"\s*\\\n\s*", " ", table)
    pattern = r'X\(\w+, "(\w+)", (\w), "([^"]*)", (\d+), (\d+), "((?:[^"\\]|\\.)*)"\)'
    found = re.findall(pattern, table)
    assert len(found) == table.count("X("), "base/config.h has a row that this test cannot read"
    for variable, kind, default, least, most, text in found:
        shown = f"`{default}`" if default else "not set"
        ends = f"{limit(kind, least)} | {limit(kind, most)}"
        yield f"| `{variable}` | {shown} | {KINDS[kind]} | {ends} | {text} |\n"


def main(config, tuning):
    with open(config) as file:
        expected = HEAD + "".join(rows(file.read()))
    return held(tuning, "| variable ", expected)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[-2:]))
