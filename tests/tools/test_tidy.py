#!/usr/bin/env python3
"""test_tidy.py TIDY -- each rule of tools/tidy refuses a tree that breaks it, and no other does."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

from programs import main

TIDY = sys.argv.pop(1)

GOOD = {
    "docs/ARCHITECTURE.md": "base/ collectives/ collectives/checker/ docs/ include/ runtime/ "
    "tests/\n[x](../README.md)\n",
    "README.md": "Good.\n",
    "base/a.c": '/* a.c -- an idea. */\n#include "base/a.h"\n#include "rubato.h"\n',
    "base/a.h": "/* a.h -- its promises. */\n",
    "base/meson.build": "files('a.c')\n",
    "collectives/ring.c": "/* ring.c -- exit (), abort(): words in comments are free. */\n"
    "void rb_ring_build(struct rb_writer *w, const struct rb_build *build)\n{\n}\n",
    "collectives/algorithm_rows.h": "/* algorithm_rows.h -- rows. */\nROW(1, rb_ring_build)\n",
    "collectives/meson.build": "files('ring.c')\n",
    "include/rubato.h": "/* rubato.h -- calls. */\n\n/* Does. */\nRUBATO_API int rubato_x(void);\n"
    "/* Another. */\nRUBATO_API RUBATO_NODISCARD rubato_status\nrubato_y(void);\n",
    "runtime/b.c": '/* b.c -- "exit(1)" in a string is free. */\nconst char *s = "exit(1)";\n'
    "struct later;\nextern int elsewhere;\nstatic int (*const fixed)(void) = f;\n"
    "static const struct a b = { 1 };\nstatic int *(*chosen(int x))(void)\n{\n\treturn y;\n}\n",
    "runtime/meson.build": "files('b.c')\n",
    "tests/sub/meson.build": "\n",
}

# Built in pieces, so that this file itself stays tidy.
UNFINISHED, MACHINE = "TO" + "DO", "/wo" + "rk/x"


def body(lines):
    return "/* a.c -- x. */\nint f(void)\n{\n" + "\tg();\n" * lines + "}\n"


def call(does):
    """A public function, and a helper that takes the lock."""
    return ("/* b.c -- x. */\nstatic void helper(rubato_comm *comm)\n{\n"
            "\trb_engine_enter(&comm->engine);\n}\n\n"
            f"int rubato_x(rubato_comm *comm)\n{{\n\t{does}\n\treturn 0;\n}}\n")


BAD = [  # rule, file, text
    ("getenv", "base/a.c", '/* a.c -- x. */\nconst char *s = getenv("A");\n'),
    ("alloc", "collectives/ring.c", "/* ring.c -- x. */\nconst void *p = malloc(1);\n"),
    ("clock", "collectives/ring.c", "/* ring.c -- x. */\nconst long t = time(0);\n"),
    ("end", "runtime/b.c", "/* b.c -- x. */\nvoid f(void) { exit(1); }\n"),
    ("stdout", "runtime/b.c", '/* b.c -- x. */\nvoid f(void) { printf("x"); }\n'),
    ("unsafe", "runtime/b.c", "/* b.c -- x. */\nvoid f(void) { strcpy(a, b); }\n"),
    ("sync", "runtime/b.c", "/* b.c -- x. */\nconst int x = __atomic_load_n(&y, 0);\n"),
    ("static", "runtime/b.c", "/* b.c -- x. */\nstatic int counter;\n"),
    ("static", "runtime/b.c", "/* b.c -- x. */\nstatic int (*hook)(void);\n"),
    ("static", "runtime/b.c", "/* b.c -- x. */\nstatic int (*hooks[2])(void);\n"),
    ("static", "runtime/b.c", "/* b.c -- x. */\nstatic struct a a =\n\t{ 1 };\n"),
    ("static", "runtime/b.c", "/* b.c -- x. */\nstatic int x = sizeof(int), y;\n"),
    ("global", "runtime/b.c", "/* b.c -- x. */\nint rb_counter;\n"),
    ("global", "runtime/b.c", "/* b.c -- x. */\nstruct a *rb_table[2] = { 0 };\n"),
    ("global", "runtime/b.c", "/* b.c -- x. */\nunsigned long rb_mask =\n\t1;\n"),
    ("width", "base/a.c", "/* a.c -- x. */\n" + "f(a); " * 17 + "f();\n"),
    ("blank", "base/a.c", "/* a.c -- x. */\nextern int a; \n"),
    ("length", "base/a.c", "/* a.c -- x. */\n" + "\n" * 1000),
    ("function", "base/a.c", body(71)),
    ("include", "collectives/ring.c", '/* ring.c -- x. */\n#include "transport/transport.h"\n'),
    ("include", "base/a.c", '/* a.c -- x. */\n#include "runtime/engine/engine.h"\n'),
    ("include", "collectives/ring.c", "/* ring.c -- x. */\n#include <transport/transport.h>\n"),
    ("include", "collectives/checker/a.h", '/* a.h -- x. */\n#include "collectives/x/y.h"\n'),
    ("foreign", "runtime/b.c", "/* b.c -- x. */\n#include <ucp/api/ucp.h>\n"),
    ("foreign", "runtime/b.c", "/* b.c -- x. */\n#include <pthread.h>\n"),
    ("foreign", "base/a.c", "/* a.c -- x. */\n#include <sys/socket.h>\n"),
    ("opening", "base/a.c", "extern int a;\n"),
    ("comment", "base/a.c", "/*\n * a.c -- x.\n *   A    one\n * more. B    two\n */\n"),
    ("comment", "base/a.c", "/*\n * a.c -- x.\n *y\n */\n"),
    ("documented", "include/rubato.h", "/* rubato.h -- x. */\n\nRUBATO_API int rubato_x(void);\n"),
    ("documented", "include/rubato.h", "/* rubato.h -- x. */\nRUBATO_API int rubato_x(\n\tint a);\n"
     "RUBATO_API int rubato_y(void);\n"),
    ("unfinished", "base/a.c", f"/* a.c -- x. {UNFINISHED}: more */\n"),
    ("machine", "README.md", f"See {MACHINE}.\n"),
    ("link", "README.md", "See [this](docs/nowhere.md).\n"),
    ("built", "base/dead.c", "/* dead.c -- nobody builds it. */\n"),
    ("builder", "collectives/algorithm_rows.h", "/* algorithm_rows.h -- none. */\n"),
    ("folder", "misc/x.txt", "x\n"),
    ("circle", "base/a.h", '/* a.h -- x. */\n#include "base/b.h"\n'),
    ("crowd", "base/a.h", "/* a.h -- x. */\n"),
    ("forked", "runtime/b.c", call("rb_engine_enter(&comm->engine);")),
    ("forked", "runtime/b.c", call("helper(comm);")),
    ("forked", "runtime/b.c", call("helper(comm);\n\t(void)rb_engine_call(&comm->engine);")),
]

MORE = {  # rule -> what else it takes to break it
    "circle": {"base/b.h": '/* b.h -- x. */\n#include "base/a.h"\n'},
    "crowd": {f"base/a{i}.h": f"/* a{i}.h -- x. */\n" for i in range(34)},
}


def tidy(tree, *words):
    with tempfile.TemporaryDirectory() as folder:
        for name, text in tree.items():
            path = pathlib.Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return subprocess.run([TIDY, *words, folder], capture_output=True, text=True)


class Rules(unittest.TestCase):
    def test_a_good_tree_is_tidy(self):
        got = tidy(GOOD)
        self.assertEqual((got.returncode, got.stdout), (0, "tidy\n"))

    def test_each_bad_tree_breaks_its_rule_only(self):
        for rule, name, text in BAD:
            if rule != "builder" and name.startswith("collectives"):
                text += "void rb_ring_build(void);\n"
            with self.subTest(rule):
                got = tidy({**GOOD, **MORE.get(rule, {}), name: text})
                rules = {line.split(": ")[1] for line in got.stdout.splitlines()}
                self.assertEqual((got.returncode, rules), (1, {rule}), got.stdout)

    def test_no_rule_without_a_bad_tree(self):
        rules = subprocess.run([TIDY, "--rules"], capture_output=True, text=True).stdout.split()
        self.assertEqual(set(rules), {rule for rule, _, _ in BAD})

    def test_the_limits_themselves_are_allowed(self):
        self.assertEqual(tidy({**GOOD, "base/a.c": body(70)}).returncode, 0)
        wide = "/* a.c -- x. */\nextern int " + "a" * 88 + ";\n"
        self.assertEqual(tidy({**GOOD, "base/a.c": wide}).returncode, 0)

    def test_places_that_are_exempt(self):
        for name, text in [
            ("base/config.c", '/* config.c -- x. */\nconst char *s = getenv("A");\n'),
            ("collectives/checker/a.c", "/* a.c -- x. */\nconst void *p = malloc(1);\n"),
            ("base/sync.c", "/* sync.c -- x. */\n#include <pthread.h>\n"),
            ("runtime/b.c", call("(void)rb_engine_ours(&comm->engine);\n\thelper(comm);")),
            ("runtime/b.c", call("return rb_engine_now(&comm->engine);")),
        ]:
            with self.subTest(name):
                folder, _, file = name.rpartition("/")
                build = f"{folder}/meson.build"
                got = tidy({**GOOD, build: GOOD.get(build, "") + f"files('{file}')\n", name: text})
                self.assertEqual(got.returncode, 0, got.stdout)

    def test_bad_option(self):
        got = subprocess.run([TIDY, "--nonsense"], capture_output=True, text=True)
        self.assertEqual(got.returncode, 2)

    def test_format(self):
        good = tidy({"base/a.c": "int a;\n"}, "--format").returncode
        if good == 77:
            self.skipTest("clang-format 14 is not installed")
        self.assertEqual(good, 0)
        self.assertNotEqual(tidy({"base/a.c": "int    a ;\n"}, "--format").returncode, 0)


if __name__ == "__main__":
    main()
