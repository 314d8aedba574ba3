#!/usr/bin/env python3
"""embed.py -- makes a C file of a file's bytes.

usage: embed.py NAME HEADER FILE OUTPUT

Defines `const unsigned char NAME[]` and `const size_t NAME_bytes`, as HEADER declares them.
"""

import pathlib
import sys

name, header, source, output = sys.argv[1:]
data = pathlib.Path(source).read_bytes()
lines = ["".join(f"{byte}," for byte in data[i:i + 64]) for i in range(0, len(data), 64)]
pathlib.Path(output).write_text(
    f'#include "{header}"\n'
    f"_Alignas(16) const unsigned char {name}[] = {{\n" + "\n".join(lines) + "\n};\n"
    f"const size_t {name}_bytes = sizeof({name});\n"
)
