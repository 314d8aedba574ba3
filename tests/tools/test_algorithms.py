#!/usr/bin/env python3
"""test_algorithms.py ALGORITHM_ROWS.H ARCHITECTURE.MD -- the table in docs/ARCHITECTURE.md is that
of collectives/algorithm_rows.h.

With --write the table is brought up to date instead."""

import re
import sys

HEAD = "| operation | by messages | in mapped memory |\n|---|---|---|\n"


def rows(table):
    found = re.findall(r'\bROW\(RB_KIND_(\w+),\s*"(\w+)",\s*([\w |]+),', table)
    assert len(found) == len(re.findall(r"^ROW\(", table, re.M)), "a row cannot be read"
    kinds = {}
    for kind, name, needs in found:
        places = kinds.setdefault(kind.lower(), {"messages": [], "puts": [], "mapped": []})
        place = "mapped" if "MAPPED" in needs else "puts" if "PUT" in needs else "messages"
        places[place].append(name)
    for kind, places in kinds.items():
        puts = "".join(f"; {name} by puts" for name in places["puts"])
        mapped = ", ".join(places["mapped"])
        yield f"| {kind} | {', '.join(places['messages'])}{puts} | {mapped} |\n".replace("  ", " ")


def main(algorithms, architecture):
    with open(algorithms) as file:
        expected = HEAD + "".join(rows(file.read()))
    with open(architecture) as file:
        text = file.read()
    found = re.search(r"^\| operation \| by messages .*?(?=^$|\Z)", text, re.M | re.S)
    if found and found[0] == expected:
        return 0
    if sys.argv[1] == "--write":
        with open(architecture, "w") as file:
            file.write(text[: found.start()] + expected + text[found.end() :])
        return 0
    print("docs/ARCHITECTURE.md should hold (tests/tools/test_algorithms.py --write puts it "
          "there):")
    print(expected)
    return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[-2:]))
