"""doc_table -- a table of the docs that is made from the code: held to it, or with --write brought
up to date."""

import re
import sys


def held(document, begin, expected):
    """Whether the table whose first line begins with `begin` is the expected one: 0, else 1."""
    with open(document) as file:
        text = file.read()
    found = re.search(rf"^{re.escape(begin)}.*?(?=^$|\Z)", text, re.M | re.S)
    if found and found[0] == expected:
        return 0
    if sys.argv[1] == "--write":
        with open(document, "w") as file:
            file.write(text[: found.start()] + expected + text[found.end() :])
        return 0
    print(f"{document} should hold ({sys.argv[0]} --write puts it there):")
    print(expected)
    return 1
