#!/usr/bin/env python3
"""test_launchers_hosts.py LAUNCHED RUBATO-RUN -- launchers as users have them, on one host and on
two: mpirun of Open MPI and of MPICH, srun with and without PMI, torchrun, rubato-run over ssh. The
same program, without a setting.

Hosts are network namespaces with names and an sshd of their own, in namespaces of processes and
mounts which end with this test. Where a launcher is not installed its tests are skipped; PEERS
names a folder of tools/peers, whose launchers are tried, too.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

from programs import main

HOSTS = "alpha", "beta"
INSIDE = "--inside"
LIMIT_S = 90  # Of a job: nothing here takes a tenth of it.
PROGRAMS = "unshare", "ip", "mount", "hostname"
ADDRESSES = "".join(f"10.79.0.{i + 1} {name}\n" for i, name in enumerate(HOSTS))
# Slurm's nodes and daemons.
SLURM = "slurmctld", "slurmd", "srun", "sinfo", "munged"
SLURM_CONF = """ClusterName=test
SlurmctldHost=alpha
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={at}/munge.socket
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
SelectType=select/linear
JobAcctGatherType=jobacct_gather/none
ReturnToService=2
SlurmdParameters=config_overrides
StateSaveLocation={at}/state
SlurmdSpoolDir={at}/spool-%n
TmpFS={at}/tmp-%n
SlurmctldPidFile={at}/slurmctld.pid
SlurmdPidFile={at}/slurmd-%n.pid
KillWait=3
NodeName=alpha,beta CPUs=4 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
"""
# Nothing asks for control groups, yet slurmd looks for them.
CGROUP_CONF = """CgroupPlugin=cgroup/v1
CgroupMountpoint={at}/cgroup
CgroupAutomount=no
"""
SSHD_CONF = """HostKey {at}/host-key
AuthorizedKeysFile {at}/user-key.pub
PidFile none
StrictModes no
UsePAM no
PermitRootLogin yes
SetEnv UCX_TLS=tcp,self
"""
SSH_CONF = """IdentityFile {at}/user-key
UserKnownHostsFile {at}/known-hosts
BatchMode yes
LogLevel ERROR
"""


def say(*words, **more):
    """Runs to the end, and must succeed."""
    got = subprocess.run([str(word) for word in words], capture_output=True, text=True,
                         timeout=LIMIT_S, **more)
    assert got.returncode == 0, f"{words}: {got.stdout}{got.stderr}"
    return got.stdout


def on(host, *words):
    """The command that runs these words on a host."""
    return ["ip", "netns", "exec", host, "unshare", "--uts", "sh", "-c",
            'hostname "$0" && exec "$@"', host, *map(str, words)]


class World:
    """The hosts. All of it is in namespaces of this process."""

    def __init__(self, folder):
        self.at = pathlib.Path(folder)
        self.daemons = []
        say("mount", "-t", "tmpfs", "none", "/run")
        os.makedirs("/run/netns")
        os.makedirs("/run/sshd")
        self.hide("/etc/hosts", "127.0.0.1 localhost\n" + ADDRESSES)
        for name in HOSTS:
            say("ip", "netns", "add", name)
            say("ip", "-n", name, "link", "set", "lo", "up")
        say("ip", "link", "add", "wire", "netns", HOSTS[0], "type", "veth",
            "peer", "name", "wire", "netns", HOSTS[1])
        for i, name in enumerate(HOSTS):
            say("ip", "-n", name, "addr", "add", f"10.79.0.{i + 1}/24", "dev", "wire")
            say("ip", "-n", name, "link", "set", "wire", "up")
        self.until(lambda: all("LOWER_UP" in say("ip", "-n", name, "link", "show", "wire")
                               for name in HOSTS), "the link comes up")
        self.secret = self.at / "secret"
        self.secret.touch(0o600)
        self.secret.write_text(os.urandom(24).hex())

    def hide(self, path, text):
        """`path` is a file with this text, in here."""
        mine = self.at / pathlib.Path(path).name
        mine.write_text(text)
        say("mount", "--bind", mine, path)

    def until(self, good, what):
        end = time.monotonic() + LIMIT_S
        while not good():
            for name, process in self.daemons:
                assert process.poll() is None, f"{name}: {self.log(name)}"
            assert time.monotonic() < end, f"waited in vain until {what}: " + "".join(
                self.log(name) for name, _ in self.daemons)
            time.sleep(0.05)

    def log(self, name):
        return f"\n-- {name}:\n" + (self.at / f"{name}.log").read_text()[-2000:]

    def daemon(self, name, host, *words):
        with (self.at / f"{name}.log").open("w") as log:
            self.daemons.append((name, subprocess.Popen(
                on(host, *words), stdin=subprocess.DEVNULL, stdout=log, stderr=log)))

    def environment(self, **more):
        kept = {key: value for key, value in os.environ.items()
                if key in ("PATH", "HOME", "LANG", "SLURM_CONF") or "SAN_OPTIONS" in key}
        # To UCX these hosts are one machine: without it, it would look for shared memory.
        return {**kept, "UCX_TLS": "tcp,self", "OMPI_ALLOW_RUN_AS_ROOT": "1",
                "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", **more}

    def ssh_begin(self):
        for key in "host-key", "user-key":
            say("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.at / key)
        public = (self.at / "host-key.pub").read_text()
        (self.at / "known-hosts").write_text("".join(f"{name} {public}" for name in HOSTS))
        (self.at / "sshd_config").write_text(SSHD_CONF.format(at=self.at))
        self.hide("/etc/ssh/ssh_config", SSH_CONF.format(at=self.at))
        # What sshd starts reads it: what it says, two at a time, is none of ours.
        start = pathlib.Path.home() / ".bashrc"
        if start.exists():
            self.hide(start, "")
        for name in HOSTS:
            self.daemon(f"sshd-{name}", name, shutil.which("sshd"), "-D", "-e", "-f",
                        self.at / "sshd_config")
        for name in HOSTS:
            self.until(lambda name=name: subprocess.run(
                on(HOSTS[0], "ssh", name, "true"), capture_output=True,
                timeout=LIMIT_S).returncode == 0, f"{name} takes ssh")

    def slurm_begin(self):
        for folder in "state", *(f"{what}-{name}" for name in HOSTS for what in ("spool", "tmp")):
            (self.at / folder).mkdir()
        (self.at / "munge.key").touch(0o600)
        (self.at / "munge.key").write_bytes(os.urandom(64))
        conf = self.at / "slurm.conf"
        conf.write_text(SLURM_CONF.format(at=self.at))
        (self.at / "cgroup.conf").write_text(CGROUP_CONF.format(at=self.at))
        os.environ["SLURM_CONF"] = str(conf)
        self.daemon("munged", HOSTS[0], "munged", "--foreground", "--force",
                    *(f"--{what}={self.at}/munge.{ending}" for what, ending in (
                        ("key-file", "key"), ("socket", "socket"), ("pid-file", "pid"),
                        ("seed-file", "seed"), ("log-file", "log"))))
        self.until((self.at / "munge.socket").exists, "munged listens")
        self.daemon("slurmctld", HOSTS[0], "slurmctld", "-D", "-c")
        for name in HOSTS:
            self.daemon(f"slurmd-{name}", name, "slurmd", "-D", "-N", name)
        self.until(lambda: subprocess.run(
            on(HOSTS[0], "sinfo", "-h", "-t", "idle", "-o", "%D"), capture_output=True, text=True,
            timeout=LIMIT_S).stdout.strip() == "2", "two nodes are idle")

    def end(self):
        for _, process in self.daemons:
            process.kill()  # slurmd may take longer than we wait to end by itself.
        for _, process in self.daemons:
            process.wait(LIMIT_S)


class Launcher:
    """What is the same for all of them."""

    def jobs(self, hosts, words):
        """Commands by host."""
        raise NotImplementedError

    def job(self, hosts, *words, **variables):
        """Exit statuses, and all that was said."""
        running = [subprocess.Popen(on(host, *command), stdin=subprocess.DEVNULL, text=True,
                                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                    cwd=world.at, env=world.environment(**variables))
                   for host, command in self.jobs(hosts, [LAUNCHED, *words])]
        said = [process.communicate(timeout=LIMIT_S)[0] for process in running]
        if any(process.returncode for process in running) and not words:
            said.append(world.log(world.daemons[-1][0]))
        return [process.returncode for process in running], "".join(said)

    def ends_others(self, hosts):
        """When a rank has failed that the others have not met: or else they wait in vain."""
        return True

    def check(self, hosts, **variables):
        statuses, said = self.job(hosts, **variables)
        self.assertEqual(statuses, [0] * len(statuses), said)
        found = re.findall(r"rank (\d) of 4 on (\w+)$", said, re.M)
        self.assertEqual(sorted(rank for rank, _ in found), list("0123"), said)
        self.assertEqual({host for _, host in found}, set(hosts), said)

        statuses, said = self.job(hosts, "2", **variables)
        self.assertNotIn(0, statuses, said)
        self.assertIn("rank 2 has had enough", said)

        ends = self.ends_others(hosts)
        patience = {} if ends else {"RUBATO_TIMEOUT": "5s"}
        statuses, said = self.job(hosts, "2", "before", **patience, **variables)
        self.assertNotIn(0, statuses, said)
        self.assertIn("rank 2 has had enough", said)
        if ends:
            self.assertNotRegex(said, "did not come|did not answer")

    def test_one_host(self):
        self.check(HOSTS[:1])

    def test_two_hosts(self):
        self.check(HOSTS)


def need(case, *programs):
    for program in programs:
        if shutil.which(program) is None:
            case.skipTest(f"{program} is not installed")


class OpenMpi(Launcher, unittest.TestCase):
    program = "mpirun.openmpi"

    def setUp(self):
        need(self, self.program, "sshd")

    def jobs(self, hosts, words):
        where = ",".join(f"{host}:{4 // len(hosts)}" for host in hosts)
        # Four ranks may be more than there are cores, which it would refuse to bind.
        return [(hosts[0], [self.program, "--host", where, "-n", 4, "--bind-to", "none", *words])]


class Mpich(OpenMpi):
    program = "mpirun.mpich"

    def jobs(self, hosts, words):
        return [(hosts[0], [self.program, "-hosts", ",".join(hosts), "-ppn", 4 // len(hosts),
                            "-n", 4, *words])]

    def ends_others(self, hosts):
        return False


class OpenMpi5(OpenMpi):
    program = os.environ.get("PEERS", "PEERS") + "/openmpi/bin/mpirun"


class Mpich5(Mpich):
    program = os.environ.get("PEERS", "PEERS") + "/mpich/bin/mpiexec"


class Srun(Launcher, unittest.TestCase):
    kind = "pmi2"

    def setUp(self):
        need(self, *SLURM)

    def jobs(self, hosts, words):
        return [(hosts[0], ["srun", f"--mpi={self.kind}", "-w", ",".join(hosts), "-N", len(hosts),
                            "-n", 4, "-K", *words])]


class SrunPmix(Srun):
    kind = "pmix"


class SrunNone(Srun):
    """Nothing but the list of nodes: the secret of several hosts is a file."""
    kind = "none"

    def test_two_hosts(self):
        _, said = self.job(HOSTS)
        self.assertIn("set RUBATO_SECRET_FILE", said)
        self.check(HOSTS, RUBATO_SECRET_FILE=str(world.secret))


class Torchrun(Launcher, unittest.TestCase):
    def setUp(self):
        need(self, "torchrun")

    def jobs(self, hosts, words):
        return [(host, ["torchrun", "--nnodes", len(hosts), "--nproc-per-node", 4 // len(hosts),
                        "--node-rank", i, "--master-addr", hosts[0], "--master-port", 29400,
                        "--no-python", *words]) for i, host in enumerate(hosts)]

    def ends_others(self, hosts):
        return len(hosts) == 1 # Each host's agent ends its own.

    def test_two_hosts(self):
        self.check(HOSTS, RUBATO_SECRET_FILE=str(world.secret))


class RubatoRun(Launcher, unittest.TestCase):
    def setUp(self):
        need(self, "sshd")

    def run_on(self, hosts, *words):
        return on(HOSTS[0], RUN, "--hosts", hosts, *words)

    def jobs(self, hosts, words):
        where = ",".join(f"{host}:{4 // len(hosts)}" for host in hosts)
        return [(hosts[0], [RUN, "--hosts", where, *words])]

    def start(self, command, **more):
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, text=True, cwd=world.at,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                env=world.environment(**more))

    def finish(self, command, **more):
        job = self.start(command, **more)
        out, err = job.communicate(timeout=LIMIT_S)
        return job.returncode, out, err

    def sleepers(self):
        """Processes of stay() that are there, on any host: all see the same."""
        found = []
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if (folder / "cmdline").read_bytes() == b"sleep\x00987654\x00":
                    found.append(folder.name)
            except OSError:
                pass  # It has ended meanwhile.
        return found

    def stay(self):
        """A job that stays, once all four of its ranks run."""
        job = self.start(self.run_on("alpha:2,beta:2", "sh", "-c", "echo up; exec sleep 987654"))
        self.addCleanup(job.stdout.close)
        self.addCleanup(job.stderr.close)
        said = sorted(job.stdout.readline() for _ in range(4))
        self.assertEqual(said, [f"[{rank}] up\n" for rank in range(4)])
        world.until(lambda: len(self.sleepers()) == 4, "four ranks sleep")
        return job

    def test_who_failed_and_where(self):
        """The others wait: none of them can be first to fail for want of rank 2."""
        status, out, err = self.finish(self.run_on(
            "alpha:2,beta:2", "sh", "-c",
            "test $RUBATO_RANK = 2 && echo enough && exit 3; exec sleep 987654"))
        self.assertEqual((status, out), (3, "[2] enough\n"), err)
        self.assertEqual(self.sleepers(), [])
        self.assertRegex(err, "(?m)^rubato-run: beta: rank 2 failed with exit status 3")
        self.assertRegex(err, "(?m)^rubato-run: host beta failed with exit status 3")

    def test_the_status_is_that_of_who_failed_first(self):
        """Rank 2 is first, but its host ends last: rank 3 stays until it is killed. The others
        fail by themselves once it is known here."""
        go = world.at / "go"
        job = self.start(self.run_on("alpha:2,beta:2", "sh", "-c", f"""
            until_there() {{ until test -e {go}$1; do sleep 0.02; done; }}
            case $RUBATO_RANK in
            2) until_there 3; exit 7;;
            3) trap '' TERM; touch {go}3; until_there -never;;
            *) trap '' TERM; until_there; exit 9;;
            esac"""))
        self.addCleanup(job.stdout.close)
        self.addCleanup(job.stderr.close)
        err = job.stderr.readline()
        self.assertIn("failed with exit status 7", err)
        go.touch()
        err += job.stderr.read()
        self.assertEqual(job.wait(LIMIT_S), 7, err)
        for who in "beta: rank 2", "host beta": # Alpha may not have been told to end in time.
            self.assertIn(f"rubato-run: {who} failed with exit status 7; ending the others", err)

    def test_a_file_of_hosts(self):
        path = world.at / "machines"
        path.write_text("# two\nalpha slots=1\n\nbeta:3 # the larger\n")
        status, out, err = self.finish(self.run_on(path, "hostname"))
        self.assertEqual((status, err), (0, ""))
        self.assertEqual(sorted(out.splitlines()),
                         ["[0] alpha", "[1] beta", "[2] beta", "[3] beta"])

    def test_dealt_evenly_and_named_twice(self):
        _, out, err = self.finish(self.run_on("alpha,beta", "-n", 3, "hostname"))
        self.assertEqual(sorted(out.splitlines()), ["[0] alpha", "[1] alpha", "[2] beta"], err)
        _, out, err = self.finish(self.run_on("beta,alpha,beta", "hostname"))
        self.assertEqual(sorted(out.splitlines()), ["[0] beta", "[1] beta", "[2] alpha"], err)

    def test_settings_go_along_and_the_secret_is_seen_nowhere(self):
        show = "echo $RUBATO_LOG $(wc -c <$RUBATO_SECRET_FILE); cat /proc/[0-9]*/cmdline >all; " \
            "grep -c -f $RUBATO_SECRET_FILE all"
        status, out, err = self.finish(self.run_on("beta", "sh", "-c", show), RUBATO_LOG="info")
        self.assertEqual(out.splitlines(), ["[0] info 64", "[0] 0"], err)
        self.assertEqual(status, 1)  # grep's.

    def test_a_host_that_is_not_there(self):
        status, _, err = self.finish(self.run_on("alpha:2,gamma:2", LAUNCHED))
        self.assertEqual(status, 255, err)
        self.assertIn("gamma", err.splitlines()[0])  # ssh's own words.
        self.assertIn("rubato-run: host gamma failed with exit status 255; ending", err)

    def test_cores_are_not_shared_in_silence(self):
        ranks = 2 * len(os.sched_getaffinity(0))
        _, _, err = self.finish(self.run_on(f"beta:{ranks}", "--bind", "core", "true"))
        self.assertRegex(err, rf"rubato-run: beta: --bind core: {ranks} ranks share \d+ cores\n")

    def test_a_failed_rank_need_not_end_the_others(self):
        status, out, err = self.finish(self.run_on(
            "alpha:2,beta:2", "--keep-going", "sh", "-c",
            "test $RUBATO_RANK = 2 && exit 3; sleep 1; echo still"))
        self.assertEqual(status, 3, err)
        self.assertEqual(sorted(out.splitlines()), ["[0] still", "[1] still", "[3] still"], err)

    def test_a_signal_ends_all(self):
        job = self.stay()
        job.terminate()
        self.assertEqual(job.wait(LIMIT_S), 128 + 15)
        self.assertEqual(self.sleepers(), [])
        self.assertIn("rubato-run: ended by signal 15", job.stderr.read())

    def test_nothing_outlives_it(self):
        job = self.stay()
        job.kill()
        job.wait(LIMIT_S)
        world.until(lambda: self.sleepers() == [], "the ranks have ended")

    def test_a_host_that_is_lost_ends_all(self):
        job = self.stay()
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                words = (folder / "cmdline").read_bytes().split(b"\x00")
            except OSError:
                continue
            if words[0] == b"ssh" and b"beta" in words:
                os.kill(int(folder.name), 9)
        self.assertEqual(job.wait(LIMIT_S), 128 + 9)
        self.assertIn("host beta was ended by signal 9", job.stderr.read())
        world.until(lambda: self.sleepers() == [], "the ranks have ended")


def setUpModule():
    global world
    folder = tempfile.TemporaryDirectory(prefix="rubato-hosts-")
    unittest.addModuleCleanup(folder.cleanup)
    world = World(folder.name)
    unittest.addModuleCleanup(world.end)
    if shutil.which("sshd") and shutil.which("ssh"):
        world.ssh_begin()
    if all(map(shutil.which, SLURM)):
        world.slurm_begin()


def outside():
    for program in PROGRAMS:
        if shutil.which(program) is None:
            print(f"skipped: {program} is not installed")
            sys.exit(77)
    if os.geteuid() != 0:
        print("skipped: network namespaces need root")
        sys.exit(77)
    walls = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    probe = subprocess.run([*walls, "true"], capture_output=True, text=True, check=False)
    if probe.returncode != 0:
        print("skipped: " + probe.stderr.strip())
        sys.exit(77)
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    os.execvp(walls[0], [*walls, sys.executable, "-B", os.path.abspath(__file__), INSIDE,
                         *sys.argv[1:]])


if __name__ == "__main__":
    if INSIDE not in sys.argv:
        outside()
    sys.argv.remove(INSIDE)
    LAUNCHED, RUN = (os.path.abspath(sys.argv.pop(1)) for _ in range(2))
    main()
