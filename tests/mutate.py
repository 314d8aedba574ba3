#!/usr/bin/env python3
"""mutate -- copies a file under test with faults in it, behind switches: the tests must catch each.

usage: mutate.py LIST SOURCE OUTPUT      (a file that the list names, as a path from the root)
       mutate.py LIST --table OUTPUT     (what the test needs to know of them)

LIST is a Python file: FAULTS, and perhaps SMALLER, edits that are always made. A fault is (name for
the report, what the test needs to know, edits); an edit is (file, text as it is, text instead).
Blanks match any blanks. Where the text alone would be found more than once it stands in [[ ]], with
enough of what is around it. A text that ends in `;` or `}` is statements, any other an expression.

A fault becomes `if (fault_chosen(n)) { the new text } else { the text as it is }`, n from 1. A text
that is not found exactly once fails the build: faults follow the code. With all switches off the
copy does what the original does.
"""

import importlib.util
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
DECLARATION = "_Bool fault_chosen(unsigned int number);\n"


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
        heads = [f"if (fault_chosen({number})) {{ {new} }} else " for number, new in choices]
        after = line + old.count("\n")
        return "{ " + "".join(heads) + f"{{\n#line {line}\n{old}\n}} }}\n#line {after}\n"
    heads = [f"fault_chosen({number}) ? ({new}) : " for number, new in choices]
    return "(" + "".join(heads) + f"({old}))"


def copy(faults, smaller, name, output):
    text, edits, at = (ROOT / name).read_text(), {}, 0
    pieces = [DECLARATION, f'#line 1 "{name}"\n']
    for file, old, new in smaller:
        if file == name:
            begin, end = place(text, old)
            text = text[:begin] + new + text[end:]
    for number, (_, _, fault) in enumerate(faults, 1):
        for file, old, new in fault:
            if file == name:
                edits.setdefault(place(text, old), []).append((number, new))
    for (begin, end), choices in sorted(edits.items()):
        if begin < at:
            raise SystemExit(f"{name}: faults overlap at {text[begin:at]}")
        line = text.count("\n", 0, begin) + 1
        pieces.append(text[at:begin] + switched(text[begin:end], choices, line))
        at = end
    output.write_text("".join(pieces) + text[at:])


def table(faults, output):
    lines = [f'\t{{ "{name}", "{known}" }},' for name, known, _ in faults]
    output.write_text("\n".join([
        "/* Made by mutate.py. */", '#include "tests/faults.h"', "",
        "const struct fault faults[] = {", *lines, "};",
        f"const size_t fault_count = {len(lines)};", ""]))


def read(path):
    spec = importlib.util.spec_from_file_location("list", path)
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent))
    sys.dont_write_bytecode = True
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    chosen, output = read(pathlib.Path(sys.argv[1]).resolve()), pathlib.Path(sys.argv[3])
    if sys.argv[2] == "--table":
        table(chosen.FAULTS, output)
    else:
        copy(chosen.FAULTS, getattr(chosen, "SMALLER", []),
             pathlib.Path(sys.argv[2]).resolve().relative_to(ROOT).as_posix(), output)
