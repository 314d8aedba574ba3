"""callgrind -- instructions of a program between two entries of its function counting().

Self costs are read from the dump itself: callgrind_annotate takes the functions that are under way
when a dump begins for ones that have executed all of it.
"""

import re

TOOL = ("valgrind", "-q", "--tool=callgrind", "--dump-before=counting")


def out(path):
    """Where the dumps go: the option for TOOL."""
    return f"--callgrind-out-file={path}"


def executed(path, leaf=None):
    """{function: instructions} of all threads, from the first entry of counting() to the second.
    What the compiler has made of a function (.part.0, .isra.0) is that function. With the name of a
    leaf, also {caller: instructions of the leaf for it}."""
    names, counts, name, called, callers, callee = {}, {}, None, False, {}, None
    with open(f"{path}.2") as lines:
        for line in lines:
            found = re.match(r"c?fn=\((\d+)\)(?: (.*))?$", line)
            if found:
                if found[2] is not None:
                    names[found[1]] = found[2]
                function = re.match(r"\w*", names[found[1]])[0]
                if line.startswith("c"):
                    callee = function
                else:
                    name = function
            elif line.startswith("calls="):
                called = True  # The next line is what the callee has cost.
            elif re.match(r"[+*\d-]", line):
                cost = int(line.split()[1])
                if not called:
                    counts[name] = counts.get(name, 0) + cost
                elif callee == leaf:
                    callers[name] = callers.get(name, 0) + cost
                called = False
    return counts if leaf is None else (counts, callers)
