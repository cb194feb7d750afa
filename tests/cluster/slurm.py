"""A Slurm cluster on this machine: munged, slurmctld and several slurmd of Debian's packages, as root.

    with SlurmCluster(folder, nodes=3) as cluster:
        job = cluster.sbatch("job.sh")
        cluster.wait_for(lambda: cluster.state(job) == "RUNNING", "the job")
        cluster.fail("n2")

All of it is in one folder, with a key, ports and a socket of its own, so that several can run at once. Nodes are names:
each is a slurmd with a port and a spool folder of its own. Nobody confines jobs: what a node has is told, not held.

Jobs are nobody's children. So a process of its own, this module as a program, ends all that a cluster has started and
removes its folder, when the tests say so by closing a pipe, or have ended themselves, in any way.
"""

from __future__ import annotations

import re
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import psutil

from tests.ports import claim_port
from tests.servers import die_with_parent

ROOT = Path(__file__).parents[2]
#: Of Debian's packages munge, slurmctld, slurmd and slurm-client.
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol")
#: By which everything that a cluster started, directly or not, is known.
_MARK = "SURREAL_TEST_SLURM"
_MEMORY_MB = 100_000

T = TypeVar("T")


class SlurmCluster:
    """A cluster, from `with` to its end.

    Args:
        folder: short (a socket's path must stay below 108 bytes) and empty; it is removed at the end.
        environment: of the jobs.
        nodes: how many: n0 and so on.
        cpus: that each says to have.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str], *, nodes: int = 4, cpus: int = 2) -> None:
        self.folder = folder
        self.nodes = [f"n{number}" for number in range(nodes)]
        self._cpus = cpus
        self._config = folder / "slurm.conf"
        self._environment = {**environment, "SLURM_CONF": str(self._config), _MARK: str(folder)}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._cleaner: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> SlurmCluster:
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stop()

    # -- jobs ------------------------------------------------------------------------------------------------------

    def sbatch(self, *arguments: str) -> str:
        """Hand in a job from the cluster's folder; gives its number."""
        return self.call("sbatch", "--parsable", *arguments).strip()

    def call(self, *command: str) -> str:
        """Run a command in the cluster's folder, and give what it prints."""
        result = subprocess.run(
            command, cwd=self.folder, env=self._environment, capture_output=True, text=True, timeout=100, check=False
        )
        assert result.returncode == 0, f"{' '.join(command)}: {result.stdout}{result.stderr}"
        return result.stdout

    def field(self, job: str, name: str) -> str:
        """What Slurm says of a job's first part: `JobState`, `ExitCode`, `Restarts`, ..."""
        found = re.search(rf"\b{name}=(\S*)", self.call("scontrol", "show", "job", job))
        return found[1] if found else ""

    def wait_for(self, condition: Callable[[], T | None], what: str, timeout_s: float = 200.0) -> T:
        """Wait until `condition` gives something true."""
        deadline = time.monotonic() + timeout_s
        while not (found := condition()):
            assert time.monotonic() < deadline, f"{what} did not happen within {timeout_s:.0f} s:\n{self.logs()}"
            time.sleep(0.2)
        return found

    def logs(self) -> str:
        """The last lines of all logs."""
        return "\n".join(
            f"== {path.name}\n" + "\n".join(path.read_text(errors="replace").splitlines()[-40:])
            for path in sorted(self.folder.glob("*.log"))
        )

    # -- nodes -----------------------------------------------------------------------------------------------------

    def start_node(self, node: str) -> None:
        """Start a node's slurmd."""
        self._spawn(node, "slurmd", "-D", "-N", node, "-f", str(self._config))

    def fail(self, node: str) -> None:
        """Have a node fail as if its power went: all its processes are killed, and Slurm learns that it is down."""
        server = self._processes.pop(node)
        server.kill()
        kill(processes_of(self.folder, node))
        server.wait()
        self.call("scontrol", "update", f"nodename={node}", "state=down", "reason=test")

    def command_lines(self) -> list[str]:
        """Of all processes of the cluster and its jobs."""
        found = []
        for process in processes_of(self.folder):
            with suppress(psutil.NoSuchProcess):
                found.append(" ".join(process.cmdline()))
        return found

    # -- the cluster -----------------------------------------------------------------------------------------------

    def _start(self) -> None:
        self._cleaner = subprocess.Popen(
            [sys.executable, "-m", "tests.cluster.slurm", str(self.folder)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        for name in ("state", *self.nodes):
            (self.folder / name).mkdir()
        key, munge_socket = self.folder / "munge.key", self.folder / "munge.socket"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o600)
        paths = {"key-file": key, "socket": munge_socket}
        paths |= {f"{name}-file": self.folder / f"munge.{name}" for name in ("log", "pid", "seed")}
        options = [f"--{name}={path}" for name, path in paths.items()]
        self._spawn("munged", "munged", "--foreground", "--force", *options)  # forced: it would not be root's
        self.wait_for(munge_socket.exists, "munged")
        self._config.write_text(self._settings(munge_socket))
        self._spawn("slurmctld", "slurmctld", "-D", "-i", "-f", str(self._config))
        for node in self.nodes:
            self.start_node(node)
        self.wait_for(self._is_idle, "the nodes")

    def _stop(self) -> None:
        for server in self._processes.values():
            server.kill()
            server.wait()
        if self._cleaner is not None:
            self._cleaner.communicate()  # closes the pipe

    def _spawn(self, name: str, *command: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                command,
                cwd=self.folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with_parent,  # noqa: PLW1509 - takes no lock
            )

    def _is_idle(self) -> bool:
        states = subprocess.run(
            ("sinfo", "--noheader", "--Node", "--format=%T"),
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        ).stdout.split()
        return states == ["idle"] * len(self.nodes)

    def _settings(self, munge_socket: Path) -> str:
        host = socket.gethostname()
        settings = {
            "ClusterName": "test",
            "SlurmctldHost": f"{host}(127.0.0.1)",
            "SlurmctldPort": claim_port(),
            "SlurmUser": "root",
            "AuthType": "auth/munge",
            "AuthInfo": f"socket={munge_socket},cred_expire=5",  # until then, a job that failed is not begun again
            "CryptoType": "crypto/munge",
            "StateSaveLocation": self.folder / "state",
            "SlurmdSpoolDir": self.folder / "%n",
            "SlurmctldPidFile": self.folder / "slurmctld.pid",
            "SlurmdPidFile": self.folder / "%n.pid",
            "SchedulerType": "sched/backfill",  # the one that knows heterogeneous jobs
            "SchedulerParameters": "bf_interval=1,sched_interval=1",
            "SelectType": "select/cons_tres",
            "SelectTypeParameters": "CR_Core",
            "ProctrackType": "proctrack/linuxproc",
            "TaskPlugin": "task/none",
            "MpiDefault": "none",
            "JobAcctGatherType": "jobacct_gather/none",
            "AccountingStorageType": "accounting_storage/none",
            "SlurmdParameters": "config_overrides",  # nodes have what is said here
            "ReturnToService": 1,
            "KillWait": 30,
            "MailProg": "/bin/true",
        }
        lines = [f"{name}={value}" for name, value in settings.items()]
        lines += [
            f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={claim_port()} "
            f"CPUs={self._cpus} RealMemory={_MEMORY_MB} State=UNKNOWN"
            for node in self.nodes
        ]
        lines.append("PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP")
        return "\n".join(lines) + "\n"


def processes_of(folder: Path, node: str | None = None) -> list[psutil.Process]:
    """What a cluster and its jobs have started, or jobs on a node; those who would report an end come first."""
    found: list[psutil.Process] = []
    leaders: set[psutil.Process] = set()
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            environment = process.environ()
            if environment.get(_MARK) == str(folder) and node in (None, environment.get("SLURMD_NODENAME")):
                found.append(process)
                # Which has no environment that could be read.
                leaders.update(parent for parent in process.parents() if parent.name() == "slurmstepd")
    return [*leaders, *found]


def kill(processes: Iterable[psutil.Process]) -> None:
    """Kill all of them, as far as they are there still."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()


def main() -> None:
    """Wait until nobody holds the other end of the pipe, and remove what the cluster has left."""
    folder = Path(sys.argv[1])
    sys.stdin.read()
    while processes := processes_of(folder):
        kill(processes)
        time.sleep(0.05)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
