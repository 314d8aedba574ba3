#!/usr/bin/env python3
"""test_scripts.py SOURCE-ROOT -- tools/check, install, quickstart: options, counts, failures."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

from programs import check_usage, main, run

ROOT = pathlib.Path(sys.argv.pop(1))
TOOLS = ROOT / "tools"

PROJECT = {  # One test of each kind, by exit status; what check passes must be known options.
    "meson.build": """
project('small', 'c')
foreach name, status : {'good': '0', 'bad': '1', 'absent': '77'}
  program = executable(name, 'program.c', c_args: '-DSTATUS=' + status)
  test(name, program, suite: name == 'good' ? 'base' : 'other')
endforeach
""",
    "meson_options.txt": "option('assertions', type: 'boolean', value: false)\n",
    "program.c": "int main(void)\n{\n\treturn STATUS;\n}\n",
    "tools/install": "#!/bin/sh\nexit 0\n",
}

# Its one step to build begins, and never ends; begun a second time it does. Its test, of whatever
# phase, waits until asan's has begun.
AHEAD = {
    "meson.build": """
project('small', 'c')
folder = meson.project_build_root()
custom_target(
  'step',
  output: 'step',
  command: [find_program('step'), '@OUTPUT@', folder, get_option('b_sanitize')],
  build_by_default: true,
)
test('waits', find_program('waits'), args: folder / '..' / 'build-check-asan' / 'begun')
""",
    "step": """#!/bin/sh
[ "$3" = none ] || [ -e "$2/begun" ] || { touch "$2/begun"; exec sleep 1000; }
touch "$1"
""",
    "waits": """#!/bin/sh
for i in $(seq 600); do
	[ -e "$1" ] && exit 0
	sleep 0.1
done
exit 1
""",
}

CROSS = """[binaries]
c = 'cc'
exe_wrapper = 'env'
[host_machine]
system = 'linux'
cpu_family = 'aarch64'
cpu = 'armv8-a'
endian = 'little'
"""

QUICK = {  # What quickstart builds and runs, in small.
    "meson.build": """
project('small', 'c')
subdir('trainer')
""",
    "trainer/meson.build": """
configure_file(input: 'rubato-train', output: 'rubato-train', copy: true)
""",
    "trainer/rubato-train": """#!/bin/sh
while [ "$1" != --out ]; do shift; done
echo '{"test_accuracy": 0.875, "samples_per_second": 1, "ranks": 4, "seconds": 1}' \\
    >"$2/summary.json"
""",
    "meson_options.txt": "option('tests', type: 'feature', value: 'auto')\n",
}


class Check(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        for name, text in PROJECT.items():
            self.write(name, text)
        (self.path("tools/install")).chmod(0o755)
        shutil.copy(TOOLS / "check", self.path("tools/check"))
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return pathlib.Path(self.folder.name, name)

    def write(self, name, text):
        self.path(name).parent.mkdir(parents=True, exist_ok=True)
        self.path(name).write_text(text)

    def check(self, *words):
        # As from a shell: nothing of the surrounding meson test, no compiler flags of its run.
        clean = {key: value for key, value in os.environ.items() if not key.startswith("MESON")}
        got = subprocess.run(
            [self.path("tools/check"), *words],
            cwd="/", stdin=subprocess.DEVNULL, capture_output=True, text=True, env=clean,
        )
        return got.returncode, got.stdout.splitlines(), got.stderr

    def test_counts_and_fails_twice_in_a_row(self):
        for _ in range(2):
            code, lines, err = self.check("--quick")
            self.assertEqual((code, lines[-1]), (1, "1 passed, 1 failed, 1 skipped"), lines)
            self.assertIn("== failed: plain: small:other / bad FAIL", lines)

    def test_phases_add_up(self):
        code, lines, _ = self.check("--phase", "plain", "--phase=asan")
        self.assertEqual((code, lines[-1]), (1, "2 passed, 2 failed, 2 skipped"), lines)

    def test_the_next_phase_is_built_beside_the_tests(self):
        for name, text in AHEAD.items():
            self.write(name, text)
            self.path(name).chmod(0o755)
        code, lines, _ = self.check("--phase", "plain", "--phase", "valgrind", "--phase", "asan")
        self.assertEqual([line for line in lines if "failed" in line],
                         ["== failed: valgrind: no tests ran", "2 passed, 1 failed, 0 skipped"])
        self.assertEqual(code, 1)
        self.assertTrue(self.path("build-check-asan/step").exists())

    def test_what_is_built_ahead_is_not_built_again(self):
        self.write("meson.build", PROJECT["meson.build"].replace(
            "'c')", "'c', default_options: 'buildtype=release')"))
        for phase, level in ("asan", "g"), ("tsan", "2"):
            self.check("--phase", phase, "--build-only")
            self.check("--phase", phase, "--build-only")
            folder = self.path(f"build-check-{phase}")
            options = json.loads((folder / "meson-info/intro-buildoptions.json").read_text())
            values = {option["name"]: option["value"] for option in options}
            self.assertEqual((values["optimization"], values["debug"]), (level, True))
            log = (folder / "check-build.log").read_text()
            self.assertIn("ninja: no work to do", log)

    def test_meson_that_was_ended_amid_its_work_begins_again(self):
        meson = shutil.which("meson")
        for left in "cmd_line.txt", "build.dat", "coredata.dat":
            folder = self.path("build-check")
            shutil.rmtree(folder, ignore_errors=True)
            # The first one is ended before all of its files are there.
            self.write("bin/meson", f"""#!/bin/sh
[ ! -e {folder}/ended ] || exec {meson} "$@"
{meson} "$@"
rm {folder}/meson-private/{left}
: >{folder}/ended
kill -TERM $PPID
""")
            self.path("bin/meson").chmod(0o755)
            with unittest.mock.patch.dict(
                    os.environ, PATH=f"{self.path('bin')}:{os.environ['PATH']}"):
                code, lines, _ = self.check("--phase", "plain", "--build-only")
                self.assertEqual((code, folder.joinpath("ended").exists()), (143, True), lines)
                code, lines, _ = self.check("--phase", "plain", "--build-only")
            self.assertEqual((code, lines[-1]), (0, "0 passed, 0 failed, 0 skipped"), lines)
            self.assertTrue(self.path("build-check/good").exists())

    def test_building_only_runs_no_test(self):
        code, lines, _ = self.check("--phase", "plain", "--build-only")
        self.assertEqual((code, lines[-1]), (0, "0 passed, 0 failed, 0 skipped"), lines)
        self.assertTrue(self.path("build-check/good").exists())
        self.assertFalse(list(self.path("build-check/meson-logs").glob("check-*.json")))

    def test_all_good_is_success(self):
        self.write("meson.build", PROJECT["meson.build"].replace("'bad': '1', ", ""))
        code, lines, _ = self.check("--quick")
        self.assertEqual((code, lines[-1]), (0, "1 passed, 0 failed, 1 skipped"), lines)

    def test_a_ucx_that_cannot_be_had_is_a_skip(self):
        self.write("tools/ucx-wheel", "#!/bin/sh\necho no network; exit 77\n")
        self.path("tools/ucx-wheel").chmod(0o755)
        code, lines, _ = self.check("--phase", "ucx")
        self.assertEqual((code, lines[-1]), (0, "0 passed, 0 failed, 1 skipped"), lines)
        self.assertIn("== ucx is skipped: no network", lines)
        self.write("tools/ucx-wheel", "#!/bin/sh\necho disk full; exit 1\n")
        code, lines, _ = self.check("--phase", "ucx")
        self.assertEqual((code, lines[-1]), (1, "0 passed, 1 failed, 0 skipped"), lines)

    def test_the_ucx_phase_runs_its_suite_against_the_prefix(self):
        self.write("ucx/include/ucp/api/ucp.h", "")
        self.write("meson.build", PROJECT["meson.build"].replace("'other'", "'ucx'"))
        self.write("meson_options.txt", PROJECT["meson_options.txt"]
                   + "option('ucx_prefix', type: 'string', value: '')\n"
                   + "option('cuda', type: 'feature')\n")
        code, lines, _ = self.check("--phase", "ucx", "--ucx-prefix", self.path("ucx"))
        self.assertEqual((code, lines[-1]), (1, "0 passed, 1 failed, 1 skipped"), lines)
        options = self.path("build-check-ucx/meson-info/intro-buildoptions.json").read_text()
        self.assertIn(str(self.path("ucx").resolve()), options)

    def test_aarch64_is_refused_where_it_cannot_be_built(self):
        self.write("tools/aarch64-libraries", "#!/bin/sh\necho there is no qemu-aarch64; exit 1\n")
        self.path("tools/aarch64-libraries").chmod(0o755)
        code, lines, _ = self.check("--phase", "aarch64")
        self.assertEqual((code, lines[-1]), (1, "0 passed, 1 failed, 0 skipped"), lines)
        self.assertIn("== there is no qemu-aarch64", lines)
        self.write("tools/aarch64-libraries", "#!/bin/sh\necho no network; exit 77\n")
        code, lines, _ = self.check("--phase", "aarch64")
        self.assertEqual((code, lines[-1]), (0, "0 passed, 0 failed, 1 skipped"), lines)
        self.assertIn("== aarch64 is skipped: no network", lines)

    def test_the_aarch64_phase_runs_its_suite_in_a_cross_build(self):
        self.write("tools/aarch64-libraries",
                   "#!/bin/sh\nmkdir -p \"$1\" && echo '[constants]' >\"$1/place.cross\"\n")
        self.path("tools/aarch64-libraries").chmod(0o755)
        self.write("tools/aarch64.cross", CROSS)
        self.write("meson.build", PROJECT["meson.build"].replace("'other'", "'aarch64'"))
        for _ in range(2):
            code, lines, _ = self.check("--phase", "aarch64")
            self.assertEqual((code, lines[-1]), (1, "0 passed, 1 failed, 1 skipped"), lines)
            log = self.path("build-check-aarch64/check-build.log").read_text()
            self.assertIn("Host machine cpu family: aarch64", log)

    def test_a_broken_build_fails(self):
        self.write("program.c", "int main(void)\n{\n\treturn nothing;\n}\n" + 60 * "int a[-1];\n")
        code, lines, _ = self.check("--quick")
        self.assertEqual((code, lines[-1]), (1, "0 passed, 1 failed, 0 skipped"), lines)
        self.assertRegex("\n".join(lines[-9:]), r"program.c:3:\d+: error: .nothing. undeclared")

    def test_a_build_that_is_not_configured_says_why_at_the_end(self):
        self.write("meson.build", "project('small', 'c')\nnonsense()\n")
        code, lines, _ = self.check("--quick")
        self.assertEqual((code, lines[-1]), (1, "0 passed, 1 failed, 0 skipped"), lines)
        self.assertRegex("\n".join(lines[-9:]), "ERROR: Unknown function .nonsense.")

    def test_no_tests_at_all_fails(self):
        self.write("meson.build", "project('empty', 'c')\n")
        code, lines, _ = self.check("--quick")
        self.assertEqual((code, lines[-1]), (1, "0 passed, 1 failed, 0 skipped"), lines)

    def test_quickstart_leaves_a_build_and_results(self):
        for name, text in QUICK.items():
            self.write(name, text)
        self.path("trainer/rubato-train").chmod(0o755)
        shutil.copy(TOOLS / "quickstart", self.path("tools/quickstart"))
        before = {path.name for path in self.path(".").iterdir()}
        for _ in range(2):
            got = run(self.path("tools/quickstart"), "--steps", 1)
            self.assertEqual(got.returncode, 0, got.stderr.decode())
            self.assertIn(b"test accuracy  87.50 %", got.stdout)
            after = {path.name for path in self.path(".").iterdir()}
            self.assertEqual(after - before, {"build-quickstart", "results"})
        self.write("meson.build", "nonsense\n")
        got = run(self.path("tools/quickstart"))
        log = self.path("build-quickstart/quickstart.log")
        self.assertEqual(got.returncode, 1)
        self.assertIn(f"The whole output is in {log.resolve()}.", got.stderr.decode())
        self.assertIn("Invalid source tree", log.read_text())


class Usage(unittest.TestCase):
    def test_bad_options(self):
        check_usage(self, TOOLS / "check", "--nonsense", says="unknown option --nonsense")
        check_usage(self, TOOLS / "check", "--phase", "msan", says="not 'msan'")
        check_usage(self, TOOLS / "check", "--phase", says="--phase takes")
        check_usage(self, TOOLS / "check", "--ucx-prefix", "/", says="no UCX in '/'")
        check_usage(self, TOOLS / "ucx-wheel", says="usage")
        check_usage(self, TOOLS / "aarch64-libraries", says="usage")
        check_usage(self, TOOLS / "install", "everything", says="usage")

    def test_help(self):
        for name in ("check", "quickstart"):
            got = run(TOOLS / name, "--help")
            self.assertEqual(got.returncode, 0)
            self.assertIn(f"usage: tools/{name}".encode(), got.stdout)

    def test_every_package_has_a_purpose_and_a_reason(self):
        for line in (TOOLS / "packages").read_text().splitlines():
            if not line.startswith("#"):
                words = line.split()
                self.assertIn(words[1], ("run", "test", "cross", "rdma"), line)
                self.assertGreater(len(words), 3, line)


class Peers(unittest.TestCase):
    """tools/peers, with a python3 that is not one: its pip never gets anything."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.folder.name)
        fake = self.root / "python3"
        fake.write_text(f"""#!/bin/sh
echo "$*" >>{self.root}/asked
[ "$2" = venv ] && mkdir -p "$3/bin" && cp {fake} "$3/bin/python3" && exit 0
echo "looked far and wide"
echo "no such wheel"
exit 1
""")
        fake.chmod(0o755)
        self.env = {"PATH": f"{self.root}:{os.environ['PATH']}"}

    def tearDown(self):
        self.folder.cleanup()

    def test_usage(self):
        for words, says in [([], "usage: "), (["--help"], "usage: "),
                            ([self.root / "p", "lam"], "'lam' is none of openmpi, mpich")]:
            check_usage(self, TOOLS / "peers", *words, says=says)

    def test_a_pip_that_fails_is_one_line(self):
        prefix = self.root / "prefix"
        for _ in range(2): # Half of one is not taken for one.
            got = run(TOOLS / "peers", prefix, "mpich", env=self.env)
            self.assertEqual((got.returncode, got.stdout), (1, b""))
            self.assertRegex(got.stderr.decode(),
                             r"\Apeers: mpich: pip could not get mpich==\S+: no such wheel\n\Z")
        asked = (self.root / "asked").read_text()
        self.assertEqual(asked.count("-m pip"), 2, asked)

    def test_what_is_there_is_not_fetched_again(self):
        prefix = self.root / "prefix"
        wheel = re.search(r"\[gloo\]=(\S+)", (TOOLS / "peers").read_text())[1]
        (prefix / "gloo").mkdir(parents=True)
        (prefix / "gloo/wheel").write_text(wheel + "\n")
        got = run(TOOLS / "peers", prefix, "gloo", env=self.env)
        self.assertEqual(got.returncode, 0, got.stderr)
        self.assertFalse((self.root / "asked").exists())
        self.assertEqual((prefix / "gloo/libexec/rubato-peer").read_bytes(),
                         (TOOLS / "bench/rubato-peer-gloo").read_bytes())
        self.assertIn(f"--peers {prefix} --peer gloo", got.stdout.decode())

    def test_its_program_is_compiled(self):
        prefix = self.root / "prefix"
        wheel = re.search(r"\[mpich\]=(\S+)", (TOOLS / "peers").read_text())[1]
        (prefix / "mpich").mkdir(parents=True)
        (prefix / "mpich/wheel").write_text(wheel + "\n")
        got = run(TOOLS / "peers", prefix, "mpich", env={**self.env, "CC": "false"})
        self.assertEqual((got.returncode, got.stdout), (1, b""))
        self.assertIn("mpich: its program does not compile", got.stderr.decode())
        # All that it needs of ours is in the list: with any MPI that is here.
        if shutil.which("mpicc.mpich") is None:
            self.skipTest("no MPICH to compile it with")
        (self.root / "cc").write_text('#!/bin/sh\nexec mpicc.mpich "$@"\n')
        (self.root / "cc").chmod(0o755)
        got = run(TOOLS / "peers", prefix, "mpich", env={**self.env, "CC": self.root / "cc"})
        self.assertEqual(got.returncode, 0, got.stderr)
        self.assertTrue(os.access(prefix / "mpich/libexec/rubato-peer", os.X_OK))


if __name__ == "__main__":
    main()
