#!/usr/bin/env python3
"""test_package.py USER.C BUILD-FOLDER COMPILER -- what `meson install` leaves: programs start from
any place, in an empty environment; C and C++ programs build against it by pkg-config, with the
shared library and with the archive; nothing but the public names can be seen."""

import json
import os
import pathlib
import re
import shlex
import shutil
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tools"))

from programs import main, run  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs/guide-c.md"
EXAMPLES = {  # And what they say, with 4 ranks.
    "hello": r"(?m)^\[3\] rank 3 of 4$",
    "training": r"y = 3\.00 x -1\.00, loss 0\.0000",
    "stragglers": r"(?m)^\[0\] rank 0: 80 of 80 contributions in \d+ rounds, [1-9]\d* of them",
    "persistent": r"10 sums of 262144 floats",
    "lagged": r"\[0\] 5\.000 after 200 steps",
    "cluster": r"all: 19\.\d ms a step; three quarters: 1[56]\.\d ms",
}
CMAKE = """cmake_minimum_required(VERSION 3.16)
project(user C)
find_package(rubatoWANTED REQUIRED)
add_executable(hello hello.c)
target_link_libraries(hello rubato::rubato)
"""
USER, BUILD, COMPILER = sys.argv.pop(1), pathlib.Path(sys.argv.pop(1)), sys.argv.pop(1)
STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror"]
PROGRAMS = ("rubato-bench", "rubato-info", "rubato-run", "rubato-sim", "rubato-train",
            "rubato-report")


def introspect(name):
    return json.loads((BUILD / f"meson-info/intro-{name}.json").read_text())


OPTIONS = {option["name"]: option["value"] for option in introspect("buildoptions")}
PREFIX = pathlib.Path(OPTIONS["prefix"])
EXPECTED = [path.name for path in map(pathlib.Path, introspect("installed").values())
            if path.parent == PREFIX / OPTIONS["bindir"]]


MANUALS = [name for name in EXPECTED if name != "rubato-report"]


class Tree:
    """An installed tree, away from its prefix, which may be moved."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="rubato-package-")
        self.root = pathlib.Path(self.folder.name, "one")
        meson = shlex.split(os.environ.get("MESONINTROSPECT", "meson introspect"))[:-1]
        got = run(*meson, "install", "-C", BUILD, "--no-rebuild", "--destdir", self.root)
        assert got.returncode == 0, got.stdout.decode() + got.stderr.decode()

    def at(self, option):
        return self.root / (PREFIX / OPTIONS[option]).relative_to("/")

    def program(self, name):
        return self.at("bindir") / name

    def move(self):
        other = self.root.with_name("two" if self.root.name == "one" else "one")
        self.root.rename(other)
        self.root = other


def setUpModule():
    global tree
    tree = Tree()
    unittest.addModuleCleanup(tree.folder.cleanup)


def bare(*command, env=None):
    """Runs with this environment alone."""
    words = [f"{key}={value}" for key, value in (env or {}).items()]
    return run("/usr/bin/env", "-i", *words, *command)


@unittest.skipIf(not EXPECTED, "programs are not built")
class Programs(unittest.TestCase):
    def starts(self, *command, says, env=None):
        got = bare(*command, env=env)
        self.assertEqual(got.returncode, 0, got.stderr.decode())
        self.assertIn(says, got.stdout.decode())

    def test_all_that_were_built_are_there(self):
        there = sorted(path.name for path in tree.at("bindir").iterdir())
        self.assertEqual(there, sorted(EXPECTED))
        self.assertEqual(set(there) - set(PROGRAMS), set())

    def test_they_start_from_anywhere(self):
        for move in False, True:
            if move:
                tree.move()
            for name in EXPECTED:
                self.starts(tree.program(name), "--help", says=name)
            with tempfile.TemporaryDirectory() as folder:
                self.jobs(folder)

    def jobs(self, folder):
        if "rubato-run" in EXPECTED:
            self.starts(tree.program("rubato-run"), "-n", 2, tree.program("rubato-info"),
                        says="[1] rubato ")
            self.starts(tree.program("rubato-bench"), "allreduce", "-n", 2, "-e", 64, "-t", 2,
                        says="allreduce")
            self.starts(tree.program("rubato-sim"), "allreduce", "-n", 4, "-e", 64,
                        says="allreduce")
        if "rubato-train" in EXPECTED:
            got = bare(tree.program("rubato-train"), "-n", 2, "--model", "logistic", "--data",
                       "synthetic:64x8", "--steps", 4, "--batch", 4, "--out", folder)
            self.assertEqual(got.returncode, 0, got.stderr.decode())
            self.assertTrue(pathlib.Path(folder, "report.html").exists(), got.stderr.decode())

    def test_manual_pages(self):
        """Each says every option that --help says, and groff has nothing against it."""
        for name in MANUALS:
            page = tree.at("mandir") / f"man1/{name}.1"
            said = bare(tree.program(name), "--help").stdout.decode()
            listed = re.findall(r"(?m)^ +(?:-\w, )?(--[a-z-]+)", said)
            self.assertGreater(len(listed), 3)
            text = page.read_text().replace("\\-", "-")
            for option in {*listed} - {"--help", "--version"}:
                self.assertRegex(text, rf"\\fB{option}\\fR", name)
            what, = re.findall(rf"(?m)^\.SH NAME\n{name} - (.+)$", text)
            self.assertRegex(" ".join(said.split()), re.escape(what) + "[.:;]")
            if shutil.which("groff"):
                got = run("groff", "-man", "-Tutf8", "-ww", page)
                self.assertEqual((got.returncode, got.stderr), (0, b""), name)
                self.assertIn(name, got.stdout.decode())

    @unittest.skipIf("rubato-train" not in EXPECTED, "rubato-train is not built")
    def test_manual_page_of_a_script(self):
        page = tree.at("mandir") / "man1/rubato-report.1"
        text = page.read_text().replace("\\-", "-")
        said = bare(tree.program("rubato-report"), "--help").stdout.decode()
        for line in said.removeprefix("usage: ").splitlines():
            self.assertIn(line.strip(), text)
        if shutil.which("groff"):
            got = run("groff", "-man", "-Tutf8", "-ww", page)
            self.assertEqual((got.returncode, got.stderr), (0, b""))

    def test_what_bash_completes(self):
        def completed(name, *words):
            script = (f". {tree.at('datadir')}/bash-completion/completions/{name}.bash\n"
                      'COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))\n'
                      f'_{name}\nprintf "%s\\n" "${{COMPREPLY[@]}}"\n')
            got = run("bash", "-c", script, "bash", name, *words)
            self.assertEqual((got.returncode, got.stderr), (0, b""), name)
            return got.stdout.decode().split()

        for name in MANUALS:
            self.assertIn("--version", completed(name, "--"))
        self.assertEqual(completed("rubato-bench", "allred"), ["allreduce"])
        self.assertEqual(completed("rubato-bench", "part"), ["partial"])
        self.assertEqual(completed("rubato-bench", "allreduce", "--ty"), ["--type"])
        for words in (["--type", "flo"], ["-d", "flo"], ["--type", "=", "flo"]):
            self.assertEqual(sorted(completed("rubato-bench", "allreduce", *words)),
                             ["float16", "float32", "float64"])
        self.assertIn("bfloat16", completed("rubato-bench", "allreduce", "--type", "="))

    def test_peers_are_found_from_anywhere(self):
        peers = tree.at("libexecdir") / "rubato"
        if not (peers / "rubato-peer-mpich").exists() or not shutil.which("mpirun.mpich"):
            self.skipTest("no MPICH")
        for _ in range(2):
            tree.move()
            got = bare(tree.program("rubato-bench"), "allreduce", "-n", 2, "-e", 64, "-t", 2,
                       "--peer", "mpich", env={"PATH": os.environ["PATH"]})
            self.assertEqual(got.returncode, 0, got.stderr.decode())
            self.assertRegex(got.stdout.decode(), r"(?m)^ +\d+ .*  mpich ")  # A row of times.

    def test_nothing_points_to_where_it_was_built(self):
        for path in (*tree.at("bindir").iterdir(), *tree.at("libdir").glob("librubato*")):
            for line in run("readelf", "-d", path).stdout.decode().splitlines():
                if "RPATH" in line or "RUNPATH" in line:
                    self.assertNotIn(str(BUILD), line, path)
                    self.assertNotIn("/usr/lib", line, path)


class Users(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.program = pathlib.Path(folder.name, "user")

    def flags(self, *words):
        found = run("pkg-config", *words, "rubato",
                    env={"PKG_CONFIG_PATH": tree.at("libdir") / "pkgconfig"})
        self.assertEqual(found.returncode, 0, found.stderr.decode())
        return shlex.split(found.stdout.decode())

    def build(self, compiler, libraries, *words, source=USER, strict=STRICT):
        got = run(*compiler, *strict, *words, source, *self.flags("--cflags"), "-o", self.program,
                  *libraries, f"-Wl,-rpath,{tree.at('libdir')}")
        self.assertEqual(got.returncode, 0, got.stderr.decode())

    def needed(self):
        said = run("readelf", "-d", self.program).stdout.decode()
        return re.findall(r"NEEDED.*\[(\w+)", said)

    def check(self, shared):
        self.assertEqual("librubato" in self.needed(), shared, self.needed())
        self.assertNotIn("libucp", self.needed())  # It is loaded when a job needs it.
        alone = bare(self.program)
        self.assertEqual((alone.returncode, alone.stderr), (0, b""))
        self.assertIn("rank 0 of 1: 0\nsimulated: 120 2 3\n", alone.stdout.decode())
        if "rubato-run" in EXPECTED:
            three = bare(tree.program("rubato-run"), "-n", 3, self.program)
            self.assertEqual(three.returncode, 0, three.stderr.decode())
            for rank in range(3):
                self.assertRegex(three.stdout.decode(), rf"\[{rank}\] .*rank {rank} of 3: 3\n")

    def libraries(self, shared):
        """What the guide says for each."""
        if shared:
            return self.flags("--libs")
        if OPTIONS["default_library"] == "static":
            return self.flags("--libs")
        return [word.replace("-lrubato", "-l:librubato.a")
                for word in self.flags("--static", "--libs")]

    def kinds(self):
        return {"shared": [True], "static": [False], "both": [True, False]}[
            OPTIONS["default_library"]]

    def test_in_c(self):
        for shared in self.kinds():
            for standard in "c99", "gnu17":
                with self.subTest(standard, shared=shared):
                    self.build([COMPILER], self.libraries(shared), f"-std={standard}")
                    self.check(shared)

    def test_in_cpp(self):
        compiler = next(filter(shutil.which, ("g++", "clang++", "clang++-14")), None)
        if compiler is None:
            self.skipTest("no compiler of C++")
        for shared in self.kinds():
            for standard in "c++11", "c++20":
                with self.subTest(standard, shared=shared):
                    self.build([compiler, "-x", "c++"], ["-x", "none", *self.libraries(shared)],
                               f"-std={standard}")
                    self.check(shared)

    def test_what_is_not_built_is_said(self):
        self.build([COMPILER], self.libraries(self.kinds()[0]))
        built = any(found["name"] == "ucx" or OPTIONS["ucx_prefix"]
                    for found in introspect("dependencies"))
        for name in "ucx", "tcp":
            got = bare(self.program, name)
            said = got.stderr.decode()
            if built:
                self.assertEqual((got.returncode, said), (0, ""))
            else:
                self.assertEqual(got.returncode, 1)
                self.assertRegex(said, rf"\Aunsupported: .*{name}: this build has no UCX.*\n\Z")
        said = bare(self.program, "pigeon").stderr.decode()
        self.assertIn("expected auto, or some of shm, ucx, tcp and verbs", said)

    @unittest.skipIf("rubato-run" not in EXPECTED, "programs are not built")
    def test_what_the_guide_says(self):
        """Its program, by its commands behind `meson install`."""
        text = GUIDE.read_text()
        source = re.search(r"A program:\n\n```c\n(.*?)```", text, re.S)[1]
        commands = re.search(r"Install and link:\n\n```\n.*?\n(.*?)```", text, re.S)[1]
        commands = commands.replace("/opt/rubato/lib", str(tree.at("libdir")))
        commands = commands.replace("/opt/rubato/bin", str(tree.at("bindir")))
        self.assertNotIn("/opt/", commands)
        self.program.with_name("program.c").write_text(source)
        got = run("sh", "-e", "-c", f"cd {self.program.parent}\n" + commands.replace(
            "cc program.c", shlex.join(["cc", *STRICT, "program.c"])))
        self.assertEqual((got.returncode, got.stderr), (0, b""))
        self.assertEqual(sorted(got.stdout.decode().splitlines()),
                         [f"[{rank}] 4 ranks" for rank in range(4)])

    @unittest.skipIf("rubato-run" not in EXPECTED, "programs are not built")
    def test_examples(self):
        for name, says in EXAMPLES.items():
            with self.subTest(name):
                source = ROOT / f"examples/{name}.c"
                self.assertLess(len(source.read_text().splitlines()), 100)
                self.build([COMPILER], self.libraries(self.kinds()[0]), "-std=gnu17",
                           source=source)
                job = [] if name == "cluster" else [tree.program("rubato-run"), "-n", 4]
                got = bare(*job, self.program)
                self.assertEqual((got.returncode, got.stderr), (0, b""))
                self.assertRegex(got.stdout.decode(), says)
        there = {path.stem for path in (ROOT / "examples").glob("*.c")}
        self.assertEqual(there, {*EXAMPLES, "mpi", "nccl"})

    def test_example_in_an_mpi_program(self):
        tried = 0
        for kind in "openmpi", "mpich":
            compiler, launcher = shutil.which(f"mpicc.{kind}"), shutil.which(f"mpirun.{kind}")
            if compiler is None or launcher is None:
                continue
            tried += 1
            self.build([compiler], self.libraries(self.kinds()[0]), "-std=gnu17",
                       source=ROOT / "examples/mpi.c", strict=[])
            more = ["--oversubscribe", "--allow-run-as-root"] if kind == "openmpi" else []
            got = run(launcher, *more, "-n", 3, self.program)
            self.assertEqual(got.returncode, 0, got.stderr.decode())
            self.assertEqual(sorted(got.stdout.decode().splitlines()),
                             [f"rank {rank} of 3: 6" for rank in range(3)])
        if not tried:
            self.skipTest("no MPI")

    @unittest.skipIf(shutil.which("cmake") is None, "no CMake")
    def test_with_cmake(self):
        folder = self.program.parent
        for wanted, good in ("", True), (" 0.1", True), (" 0.2", False), (" 1.0", False):
            folder.joinpath("CMakeLists.txt").write_text(CMAKE.replace("WANTED", wanted))
            shutil.copy(ROOT / "examples/hello.c", folder / "hello.c")
            shutil.rmtree(folder / "out", ignore_errors=True)
            got = run("cmake", "-S", folder, "-B", folder / "out",
                      f"-Drubato_DIR={tree.at('libdir')}/cmake/rubato")
            self.assertEqual(got.returncode == 0, good, got.stderr.decode())
        self.assertIn('with requested version "1.0"', got.stderr.decode())
        folder.joinpath("CMakeLists.txt").write_text(CMAKE.replace("WANTED", ""))
        for command in (["cmake", "-S", folder, "-B", folder / "out"],
                        ["cmake", "--build", folder / "out"]):
            got = run(*command, env={"CMAKE_PREFIX_PATH": str(tree.root / PREFIX.relative_to("/"))})
            self.assertEqual(got.returncode, 0, got.stderr.decode() + got.stdout.decode())
        got = bare(folder / "out/hello")
        self.assertEqual((got.returncode, got.stdout), (0, b"rank 0 of 1\n"))

    def test_the_installed_tree_may_have_moved(self):
        tree.move()
        self.build([COMPILER], self.libraries(self.kinds()[0]))
        self.check(self.kinds()[0])

    def test_only_public_names_are_seen(self):
        for pattern, words in ("librubato.so", ["-D"]), ("librubato.a", ["-g"]):
            path = tree.at("libdir") / pattern
            self.assertEqual(path.exists(), pattern.endswith("so") in self.kinds(), path)
            if not path.exists():
                continue
            said = run("nm", *words, "--defined-only", path).stdout.decode()
            names = re.findall(r"^[0-9a-f]+ [^A\W] (\S+)$", said, re.M)
            version = "@@RUBATO_0" if pattern.endswith("so") else ""
            self.assertIn("rubato_allreduce" + version, names)
            self.assertEqual([name for name in names if not name.startswith("rubato_")
                              or not name.endswith(version)], [])


if __name__ == "__main__":
    main()
