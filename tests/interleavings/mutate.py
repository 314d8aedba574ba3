#!/usr/bin/env python3
"""mutate -- copies a file under test with the mutations of mutations.py in it, behind switches.

usage: mutate.py SOURCE OUTPUT      (a file that mutations.py names, as a path from the root)
       mutate.py --table OUTPUT     (what test_interleavings.c needs to know of them)

A mutation is `if (explore_mutant(n)) { the new text } else { the text as it is }`. A text that is
not found exactly once fails the build: mutations follow the code. With all switches off the copy
does what the original does.
"""

import pathlib
import re
import sys

from mutations import MUTATIONS, SMALLER

ROOT = pathlib.Path(__file__).resolve().parents[2]


def place(text, old):
    """Where the one occurrence of `old` begins and ends, [[ ]] and blanks aside."""
    before, marked, rest = old.partition("[[")
    inside, _, after = rest.partition("]]") if marked else (old, "", "")
    before = before if marked else ""

    def pattern(piece):
        return r"\s+".join(re.escape(word) for word in piece.split())

    found = list(re.finditer(rf"{pattern(before)}\s*({pattern(inside)})\s*{pattern(after)}", text))
    if len(found) != 1:
        raise SystemExit(f"found {len(found)} times: {old}")
    return found[0].span(1)


def switched(old, choices, line):
    """All choices for one place, and the text as it is, under its own line numbers."""
    if old[-1] in ";}":
        heads = [f"if (explore_mutant({number})) {{ {new} }} else " for number, new in choices]
        return "{ " + "".join(heads) + f"{{\n#line {line}\n{old}\n}} }}"
    heads = [f"explore_mutant({number}) ? ({new}) : " for number, new in choices]
    return "(" + "".join(heads) + f"({old}))"


def copy(name, output):
    text, edits, pieces, at = (ROOT / name).read_text(), {}, [f'#line 1 "{name}"\n'], 0
    for file, old, new in SMALLER:
        if file == name:
            begin, end = place(text, old)
            text = text[:begin] + new + text[end:]
    for number, (_, _, mutation) in enumerate(MUTATIONS, 1):
        for file, old, new in mutation:
            if file == name:
                edits.setdefault(place(text, old), []).append((number, new))
    for (begin, end), choices in sorted(edits.items()):
        if begin < at:
            raise SystemExit(f"{name}: mutations overlap at {text[begin:at]}")
        line = text.count("\n", 0, begin) + 1
        pieces.append(text[at:begin] + switched(text[begin:end], choices, line))
        pieces.append(f"\n#line {text.count(chr(10), 0, end) + 1}\n")
        at = end
    output.write_text("".join(pieces) + text[at:])


def table(output):
    lines = [f'\t{{ "{name}", "{case}" }},' for name, case, _ in MUTATIONS]
    output.write_text("\n".join([
        "/* Made by mutate.py. */", '#include "tests/interleavings/explore.h"', "",
        "const struct explore_mutation explore_mutations[] = {", *lines, "};",
        f"const size_t explore_mutation_count = {len(lines)};", ""]))


if __name__ == "__main__":
    if sys.argv[1] == "--table":
        table(pathlib.Path(sys.argv[2]))
    else:
        copy(pathlib.Path(sys.argv[1]).resolve().relative_to(ROOT).as_posix(),
             pathlib.Path(sys.argv[2]))
