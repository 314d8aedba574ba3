#!/usr/bin/env python3
"""test_algorithms.py ALGORITHM_ROWS.H ARCHITECTURE.MD -- the table in docs/ARCHITECTURE.md is that
of collectives/algorithm_rows.h.

With --write the table is brought up to date instead."""

import re
import sys

from doc_table import held

HEAD = "| operation | by messages | in mapped memory | over nodes |\n|---|---|---|---|\n"


def rows(table):
    found = re.findall(
        r'\bROW\(RB_KIND_(\w+),\s*"(\w+)",\s*([\w |]+),(.*?)\n(?=\n|ROW|/\*)',
        table + "\n", re.S)
    assert len(found) == len(re.findall(r"^ROW\(", table, re.M)), "a row cannot be read"
    kinds = {}
    for kind, name, needs, rest in found:
        places = kinds.setdefault(
            kind.lower(), {"messages": [], "puts": [], "mapped": [], "nodes": []})
        place = "mapped" if "MAPPED" in needs else "puts" if "PUT" in needs else "messages"
        places["nodes" if ".by_node" in rest else place].append(name)
    for kind, places in kinds.items():
        puts = f"; {', '.join(places['puts'])} by puts" if places["puts"] else ""
        mapped = ", ".join(places["mapped"])
        nodes = ", ".join(places["nodes"])
        line = f"| {kind} | {', '.join(places['messages'])}{puts} | {mapped} | {nodes} |\n"
        yield line.replace("  ", " ").replace("  ", " ")


def main(algorithms, architecture):
    with open(algorithms) as file:
        expected = HEAD + "".join(rows(file.read()))
    return held(architecture, "| operation | by messages ", expected)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[-2:]))
