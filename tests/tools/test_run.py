#!/usr/bin/env python3
"""test_run.py RUBATO-RUN -- the promises of rubato-run, with real processes.

Synchronisation is by what ranks print and by descriptors of processes: no sleeping, no timing."""

import os
import pathlib
import signal
import stat
import sys
import tempfile
import unittest

from programs import Watch, check_usage, main, python, run, start

RUN = sys.argv.pop(1)

# Says that it is there (with its process number), then stays until a signal ends it.
STAYS = "import os, signal; print('pid', os.getpid()); signal.pause()"


def ready(job, count):
    """Reads `count` lines '[rank] pid N': all ranks run then. Returns the process numbers."""
    pids = []
    while len(pids) < count:
        words = job.stdout.readline().split()
        assert words, "the job ended early: " + job.stderr.read().decode()
        if words[1] == b"pid":
            pids.append(int(words[2]))
    return pids


def holders(folder, secret):
    """The files of `folder` that hold `secret`. Others' tests may make and remove files there."""
    found = []
    for entry in os.scandir(folder):
        try:
            if entry.is_file() and secret in open(entry.path, "rb").read():
                found.append(entry.name)
        except OSError:
            pass
    return found


class Output(unittest.TestCase):
    def test_each_line_begins_with_its_rank(self):
        got = run(RUN, "-n", 3, "--", "sh", "-c", "echo a $RUBATO_RANK of $RUBATO_SIZE; echo b")
        self.assertEqual(got.returncode, 0)
        lines = got.stdout.splitlines()
        for rank in range(3):
            mine = [line for line in lines if line.startswith(b"[%d] " % rank)]
            self.assertEqual(mine, [b"[%d] a %d of 3" % (rank, rank), b"[%d] b" % rank])

    def test_output_and_errors_stay_apart(self):
        got = run(RUN, "-n", 1, "sh", "-c", "echo out; echo err >&2")
        self.assertEqual((got.stdout, got.stderr), (b"[0] out\n", b"[0] err\n"))

    def test_last_line_without_an_end_gets_one(self):
        got = run(RUN, "-n", 1, "printf", "a\\nb")
        self.assertEqual(got.stdout, b"[0] a\n[0] b\n")

    def test_any_byte_passes(self):
        source = "import sys; sys.stdout.buffer.write(bytes(range(256)) * 3 + b'\\n')"
        got = run(RUN, "-n", 1, *python(source))
        expected = (bytes(range(256)) * 3).replace(b"\n", b"\n[0] ")
        self.assertEqual(got.stdout, b"[0] " + expected + b"\n")

    def test_very_long_line_comes_in_pieces(self):
        source = "import sys; sys.stdout.write('x' * 2500000 + '\\n')"
        lines = run(RUN, "-n", 1, *python(source)).stdout.splitlines()
        self.assertEqual([len(line) for line in lines], [4 + 2**20, 4 + 2**20, 4 + 2500000 - 2**21])

    def test_many_lines_stay_whole(self):
        source = "import os\nfor i in range(2000): print(os.environ['RUBATO_RANK'] * 100, i)"
        lines = run(RUN, "-n", 4, *python(source)).stdout.decode().splitlines()
        self.assertEqual(len(lines), 8000)
        for rank in range(4):
            mine = [line for line in lines if line.startswith(f"[{rank}]")]
            self.assertEqual(mine, [f"[{rank}] {str(rank) * 100} {i}" for i in range(2000)])

    def test_input_goes_to_rank_0(self):
        got = run(RUN, "-n", 2, "cat", input=b"hello\n")
        self.assertEqual((got.returncode, got.stdout), (0, b"[0] hello\n"))

    def test_ends_when_nobody_reads(self):
        source = "import os\nprint('pid', os.getpid())\nwhile 1: print(0)"
        job = start(RUN, "-n", 2, *python(source))
        watch = Watch(ready(job, 2))
        job.stdout.close()
        job.wait()
        job.stderr.close()
        self.assertEqual(job.returncode, 128 + signal.SIGPIPE)
        self.assertEqual(watch.alive(), [])


class Environment(unittest.TestCase):
    def test_secret_is_private_and_in_no_folder(self):
        with tempfile.TemporaryDirectory() as folder:
            source = (
                "import os; f = os.environ['RUBATO_SECRET_FILE']; s = os.stat(f);"
                "print(oct(s.st_mode), s.st_nlink, len(open(f).read()), os.environ['TMPDIR'],"
                "      *os.listdir(os.environ['TMPDIR']))"
            )
            got = run(RUN, "-n", 2, *python(source), env={"TMPDIR": folder})
            lines = [line.split()[1:] for line in got.stdout.decode().splitlines()]
            self.assertEqual(lines, 2 * [[oct(stat.S_IFREG | 0o600), "0", "64", folder]])

    def test_secret_is_read_through_a_program_between(self):
        # Python closes what a child does not ask for.
        source = (
            "import subprocess;"
            "subprocess.run(['sh', '-c', 'wc -c < $RUBATO_SECRET_FILE'])"
        )
        self.assertEqual(run(RUN, "-n", 1, *python(source)).stdout, b"[0] 64\n")

    def test_secret_is_read_where_proc_is_of_other_processes(self):
        # As in a process namespace that has kept the /proc of the one around it.
        walls = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child"]
        if run(*walls, "true").returncode != 0:
            self.skipTest("no namespaces may be made here")
        here = run(*walls, "sh", "-c", "echo $$; readlink /proc/self")
        self.assertEqual(here.stdout.split()[0], b"1")
        self.assertNotIn(here.stdout.split()[1], (b"1", b"2"))
        got = run(*walls, str(RUN), "-n", "2", "sh", "-c", 'wc -c < "$RUBATO_SECRET_FILE"')
        self.assertEqual((got.returncode, got.stdout), (0, b"[0] 64\n[1] 64\n"), got)

    def test_root_is_on_loopback_and_the_same(self):
        got = run(RUN, "-n", 3, "sh", "-c", "echo $RUBATO_ROOT")
        roots = {line.split()[1] for line in got.stdout.decode().splitlines()}
        self.assertEqual(len(roots), 1)
        self.assertRegex(roots.pop(), r"^127\.0\.0\.1:[1-9][0-9]{3,4}$")

    def test_the_port_of_the_root_is_kept_for_rank_0(self):
        said = ("import os, socket\n"
                "at = os.environ['RUBATO_ROOT'].split(':')\n"
                "at = at[0], int(at[1])\n"
                "for reuse in 0, 1:\n"
                "    with socket.socket() as s:\n"
                "        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse)\n"
                "        try:\n"
                "            s.bind(at)\n"
                "            s.listen()\n"
                "            print('listens')\n"
                "        except OSError:\n"
                "            print('taken')\n")
        got = run(RUN, "-n", 1, "--", *python(said))
        self.assertEqual((got.returncode, got.stdout), (0, b"[0] taken\n[0] listens\n"), got)

    def test_two_jobs_have_two_secrets(self):
        command = ["-n", "1", "sh", "-c", 'cat "$RUBATO_SECRET_FILE"']
        self.assertNotEqual(run(RUN, *command).stdout, run(RUN, *command).stdout)

    def test_bind_core_gives_one_core_each(self):
        cores = sorted(os.sched_getaffinity(0))
        source = "import os; print(*os.sched_getaffinity(0))"
        got = run(RUN, "-n", 3, "--bind", "core", *python(source))
        found = sorted(got.stdout.decode().splitlines())
        self.assertEqual(found, [f"[{rank}] {cores[rank % len(cores)]}" for rank in range(3)])

    def test_ranks_that_share_a_core_are_told(self):
        ranks = 2 * len(os.sched_getaffinity(0))
        got = run(RUN, "-n", ranks, "--bind", "core", "true")
        self.assertRegex(got.stderr.decode(), rf"--bind core: {ranks} ranks share \d+ cores\n")
        self.assertEqual(run(RUN, "-n", ranks, "true").stderr, b"")

    def test_signals_and_descriptors_are_as_before(self):
        source = (
            "import os, signal; print(signal.pthread_sigmask(signal.SIG_BLOCK, []),"
            "signal.getsignal(signal.SIGTTIN) == signal.SIG_DFL,"
            "sorted(os.listdir('/proc/self/fd')))"
        )
        got = run(RUN, "-n", 2, *python(source))
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [])  # By whoever started the tests.
        for line in got.stdout.decode().splitlines():  # 3 is the listing's own.
            self.assertEqual(line[4:], f"{blocked} True ['0', '1', '2', '3']")


class Failure(unittest.TestCase):
    def fails(self, rank_does, *options, count=3, of=1):
        """Rank `of` does that once all others are there, which stay. Returns the ended job."""
        with tempfile.TemporaryDirectory() as folder:
            gate = os.path.join(folder, "gate")
            os.mkfifo(gate)
            source = f"import os\nif os.environ['RUBATO_RANK'] == '{of}':\n"
            source += f" print('pid', os.getpid()); open({gate!r}).read()\n {rank_does}\n{STAYS}"
            job = start(RUN, "-n", count, *options, *python(source), env={"TMPDIR": folder})
            watch = Watch(ready(job, count))
            with open(gate, "w"):
                pass
            out, err = job.communicate(timeout=60)
            self.assertEqual(watch.alive(), [])
            self.assertEqual(os.listdir(folder), ["gate"])
            return job.returncode, err.decode()

    def test_a_failed_rank_ends_all(self):
        code, err = self.fails("raise SystemExit(7)")
        self.assertEqual(code, 7)
        self.assertIn("rank 1 failed with exit status 7; ending the others", err)

    def test_what_a_rank_said_last_stands_before_its_end(self):
        chatter = ("test $RUBATO_RANK = 1 || exec head -c 4000000 /dev/zero\n"
                   "head -c 100 /dev/zero; echo my last words >&2; exit 1")
        for _ in range(20):
            got = run(RUN, "-n", 2, "sh", "-c", chatter)
            self.assertEqual(got.returncode, 1)
            self.assertRegex(got.stderr.decode(),
                             r"(?s)\[1\] my last words\n.*rank 1 failed with exit status 1")

    def test_a_signalled_rank_ends_all(self):
        code, err = self.fails("os.kill(os.getpid(), 9)")
        self.assertEqual(code, 128 + 9)
        self.assertIn("rank 1 was ended by signal 9", err)

    def test_ranks_that_ignore_sigterm_are_killed(self):
        source = (
            "import os, signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
            "print('pid', os.getpid())\n"
            "while True: signal.pause()"
        )
        job = start(RUN, "-n", 2, *python(source))
        watch = Watch(ready(job, 2))
        job.send_signal(signal.SIGTERM)
        job.communicate(timeout=60)
        self.assertEqual(job.returncode, 128 + signal.SIGTERM)
        self.assertEqual(watch.alive(), [])

    def test_stopped_ranks_are_ended_too(self):
        job = start(RUN, "-n", 2, *python(STAYS))
        pids = ready(job, 2)
        watch = Watch(pids)
        os.kill(pids[0], signal.SIGSTOP)
        job.send_signal(signal.SIGTERM)
        job.communicate(timeout=60)
        self.assertEqual(watch.alive(), [])

    def test_keep_going_lets_the_others_finish(self):
        source = (
            "import os, sys; r = int(os.environ['RUBATO_RANK'])\nprint(r); sys.exit(5 * (r == 1))"
        )
        got = run(RUN, "-n", 4, "--keep-going", *python(source))
        self.assertEqual(got.returncode, 5)
        lines = sorted(got.stdout.splitlines())
        self.assertEqual(lines, [b"[%d] %d" % (rank, rank) for rank in range(4)])
        self.assertNotIn(b"ending", got.stderr)

    def test_timeout(self):
        job = start(RUN, "-n", 2, "--timeout=300ms", *python(STAYS))
        out, err = job.communicate(timeout=60)
        self.assertEqual(job.returncode, 124)
        self.assertEqual(err, b"rubato-run: timeout after 0.3 s: ending 2 ranks\n")

    def test_program_not_found(self):
        got = run(RUN, "-n", 2, "/no/such/program")
        self.assertEqual(got.returncode, 127)
        self.assertEqual(
            got.stderr, b"rubato-run: cannot run /no/such/program: No such file or directory\n"
        )

    def test_program_not_executable(self):
        self.assertEqual(run(RUN, "-n", 1, "/etc/passwd").returncode, 126)


class Ending(unittest.TestCase):
    def test_signals_end_all_and_leave_nothing(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGXCPU,
                       signal.SIGALRM):
            with self.subTest(number), tempfile.TemporaryDirectory() as folder:
                job = start(RUN, "-n", 3, *python(STAYS), env={"TMPDIR": folder})
                watch = Watch(ready(job, 3))
                job.send_signal(number)
                job.communicate(timeout=60)
                self.assertEqual(job.returncode, 128 + number)
                self.assertEqual(watch.alive(), [])
                self.assertEqual(os.listdir(folder), [])

    def test_ranks_get_the_signal_itself(self):
        source = (
            "import os, signal, sys\n"
            "signal.signal(signal.SIGINT, lambda *_: (print('got it'), sys.exit(0)))\n"
            "print('pid', os.getpid())\n"
            "while True: signal.pause()"
        )
        job = start(RUN, "-n", 2, *python(source))
        ready(job, 2)
        job.send_signal(signal.SIGINT)
        out, _ = job.communicate(timeout=60)
        self.assertEqual(sorted(out.splitlines()), [b"[0] got it", b"[1] got it"])
        self.assertEqual(job.returncode, 128 + signal.SIGINT)

    def test_users_signals_go_to_the_ranks(self):
        source = (
            "import os, signal, sys\n"
            "signal.signal(signal.SIGUSR1, lambda *_: print('pid', os.getpid(), flush=True))\n"
            "signal.signal(signal.SIGUSR2, lambda *_: sys.exit(0))\n"
            "print('pid', os.getpid(), flush=True)\n"
            "while True: signal.pause()"
        )
        job = start(RUN, "-n", 2, *python(source))
        there = ready(job, 2)
        job.send_signal(signal.SIGUSR1)
        self.assertEqual(sorted(ready(job, 2)), sorted(there))
        job.send_signal(signal.SIGUSR2)
        out, err = job.communicate(timeout=60)
        self.assertEqual((job.returncode, out, err), (0, b"", b""))

    def test_killing_us_kills_the_ranks(self):
        with tempfile.TemporaryDirectory() as folder:
            job = start(RUN, "-n", 3, *python(STAYS), env={"TMPDIR": folder})
            watch = Watch(ready(job, 3))
            job.kill()
            job.communicate(timeout=60)
            self.assertEqual(watch.alive(), [])

    def test_killing_us_leaves_no_secret(self):
        tells = "import os; print('secret', open(os.environ['RUBATO_SECRET_FILE']).read());"
        with tempfile.TemporaryDirectory() as folder:
            folders = {"TMPDIR": folder, "XDG_RUNTIME_DIR": folder}
            job = start(RUN, "-n", 2, *python(tells + STAYS), env=folders)
            words = job.stdout.readline().split()
            self.assertEqual(words[1], b"secret")
            watch = Watch(ready(job, 2))
            job.kill()
            job.communicate(timeout=60)
            self.assertEqual(watch.alive(), [])
            self.assertEqual(os.listdir(folder), [])
            self.assertEqual(holders("/dev/shm", words[2]), [])

    def test_processes_that_outlive_their_rank_are_ended(self):
        # A grandchild in a session of its own, without our descriptors: only adoption finds it.
        source = (
            "import os, subprocess, sys\n"
            f"child = subprocess.Popen([sys.executable, '-c', {STAYS!r}], start_new_session=True,\n"
            "  stdout=subprocess.PIPE)\n"
            "child.stdout.readline(); print('pid', child.pid)\n"
            "sys.stdin.read()"
        )
        got_in, put_in = os.pipe()
        job = start_with_input(source, got_in)
        watch = Watch(ready(job, 1))
        os.close(put_in)
        job.communicate(timeout=60)
        self.assertEqual(job.returncode, 0)
        self.assertEqual(watch.alive(), [])


def start_with_input(source, fd):
    import subprocess

    job = subprocess.Popen(
        [RUN, "-n", "1", *python(source)], stdin=fd, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    os.close(fd)
    return job


class Usage(unittest.TestCase):
    def test_bad_options(self):
        for words, says in [
            ([], "-n N is missing"),
            (["-n", "2"], "PROGRAM is missing"),
            (["-n"], "-n needs a value"),
            (["-n", "0", "true"], "-n takes a number from 1 to 4096, not '0'"),
            (["-n", "-1", "true"], "not '-1'"),
            (["-n", "2x", "true"], "not '2x'"),
            (["-n", "1", "--bind", "socket", "true"], "--bind takes one of core, none"),
            (["-n", "1", "--timeout", "5", "true"], "--timeout takes a time"),
            (["-n", "1", "--timeout=0s", "true"], "above 0"),
            (["-n", "1", "--nonsense", "true"], "--nonsense"),
            (["-n", "1", "--keep-going=1", "true"], "--keep-going"),
            (["-x", "1", "true"], "unknown option -x"),
            (["--hosts", "no/file", "true"], "--hosts: no/file: No such file"),
            (["--hosts", "a:2,b", "-n", "4", "true"], "there is room for 3 ranks, not for 4"),
            (["--hosts", "a:0", "true"], "--hosts: 0: a host has room for 1 to 4096 ranks"),
            (["--hosts", "-oProxyCommand=x", "true"], "this is no host's name"),
            (["--hosts", ",", "true"], "there is no host in it"),
            (["--hosts", "/", "true"], "--hosts: /: Is a directory"),
            (["--hosts", "/dev/zero", "true"], "/dev/zero: a line of more than"),
            (["--hosts", "a", "--ssh", " ", "true"], "--ssh takes 1 to 64 words, not ' '"),
            (["--hosts", "a", "--ssh", "x " * 65, "true"], "--ssh takes 1 to 64 words"),
        ]:
            with self.subTest(words):
                check_usage(self, RUN, *words, says=says)

    def test_a_file_of_hosts_that_is_none(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "hosts")
            for text in ("#" + "a" * 1100 + "\n", "a" * 1100 + "\n", "a\0b\n"):
                with self.subTest(text[:4]):
                    path.write_text(text)
                    check_usage(self, RUN, "--hosts", path, "--ssh", "false", "true",
                                says="a line of more than 1022 bytes, or with a byte 0")

    def test_help(self):
        got = run(RUN, "--help")
        self.assertEqual((got.returncode, got.stderr), (0, b""))
        self.assertIn(b"usage: rubato-run", got.stdout)

    def test_options_of_the_program_are_its_own(self):
        got = run(RUN, "-n", 1, "echo", "-n", "--help")
        self.assertEqual(got.stdout, b"[0] --help\n")
        for words in (["echo", "--", "-n2"], ["--", "echo", "--", "-n2"]):
            self.assertEqual(run(RUN, "-n", 1, *words).stdout, b"[0] -- -n2\n")


if __name__ == "__main__":
    main()
