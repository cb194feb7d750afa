"""A Slurm cluster on this machine: munged, slurmctld and several slurmd of Debian's packages, as root.

    with SlurmCluster(folder, nodes=3) as cluster:
        job = cluster.sbatch("job.sh")
        cluster.wait_for(lambda: cluster.state(job) == "RUNNING", "the job")
        cluster.fail("n2")

All of it is in one folder, with a key, ports and a socket of its own, so that several can run at once. Nodes are names:
each is a slurmd with a port and a spool folder of its own. Nobody confines jobs: what a node has is told, not held.
"""

from __future__ import annotations

import re
import secrets
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import psutil

from tests.ports import claim_port
from tests.servers import die_with_parent

#: Of Debian's packages munge, slurmctld, slurmd and slurm-client.
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol")
#: By which everything that a cluster started, directly or not, is known.
_MARK = "SURREAL_TEST_SLURM"
_MEMORY_MB = 100_000

T = TypeVar("T")


class SlurmCluster:
    """A cluster, from `with` to its end.

    Args:
        folder: short (a socket's path must stay below 108 bytes), empty, and below folders that only root can change.
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
        kill(self._of_jobs(node))
        server.wait()
        self.call("scontrol", "update", f"nodename={node}", "state=down", "reason=test")

    def processes(self, node: str, word: str) -> list[psutil.Process]:
        """Of jobs on a node, with a word among their arguments."""
        return [process for process in self._of_jobs(node) if word in process.cmdline()]

    # -- the cluster -----------------------------------------------------------------------------------------------

    def _start(self) -> None:
        for name in ("state", *self.nodes):
            (self.folder / name).mkdir()
        key, munge_socket = self.folder / "munge.key", self.folder / "munge.socket"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o600)
        paths = {"key-file": key, "socket": munge_socket}
        paths |= {f"{name}-file": self.folder / f"munge.{name}" for name in ("log", "pid", "seed")}
        # --force: it would not be root's.
        self._spawn(
            "munged", "munged", "--foreground", "--force", *(f"--{name}={path}" for name, path in paths.items())
        )
        self.wait_for(munge_socket.exists, "munged")
        self._config.write_text(self._settings(munge_socket))
        self._spawn("slurmctld", "slurmctld", "-D", "-i", "-f", str(self._config))
        for node in self.nodes:
            self.start_node(node)
        self.wait_for(self._is_idle, "the nodes")

    def _stop(self) -> None:
        for server in reversed(list(self._processes.values())):
            server.kill()
        kill(self._of_jobs())
        for server in self._processes.values():
            server.wait()

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

    def _of_jobs(self, node: str | None = None) -> list[psutil.Process]:
        """What jobs have started, and before them those who lead it and would report its end."""
        found: list[psutil.Process] = []
        for process in psutil.process_iter():
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                environment = process.environ()
                if environment.get(_MARK) == str(self.folder) and node in (None, environment.get("SLURMD_NODENAME")):
                    found.append(process)
        leaders = {parent for process in found for parent in process.parents() if parent.name() == "slurmstepd"}
        return [*leaders, *found]

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


def kill(processes: Iterable[psutil.Process]) -> None:
    """Kill all of them, as far as they are there still."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
