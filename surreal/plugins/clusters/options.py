"""Options of the commands: access to a Redis server, the manifests of a run on Kubernetes, a job of Slurm."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from surreal.base.errors import ConfigError
from surreal.cli.options import Overrides, presets_and_files
from surreal.run.process.arguments import option


@dataclass(frozen=True)
class AccessOptions:
    """Options for access to the server."""

    password: Annotated[
        str | None,
        option(None, "Better --password-file; default: $SURREAL_REDIS_PASSWORD.", envvar="SURREAL_REDIS_PASSWORD"),
    ] = None
    password_file: Annotated[
        Path | None,
        option(
            "FILE",
            "File with the password, made if missing; default: $SURREAL_REDIS_PASSWORD_FILE.",
            envvar="SURREAL_REDIS_PASSWORD_FILE",
        ),
    ] = None
    acl_file: Annotated[
        Path | None, option("FILE", "ACL file with a user for each kind of process; missing users are added.", "--acl")
    ] = None
    runs: Annotated[
        list[str] | None, option("NAME", "Users of --acl for this run alone; may be repeated.", "--run")
    ] = None
    secrets: Annotated[Path, option("DIR", "Folder for passwords and certificates; missing ones are made.")] = Path(
        "secrets"
    )
    uses_tls: Annotated[bool, option(None, "Encrypt, with generated certificates or the named ones.", "--tls")] = False
    certificate: Annotated[Path | None, option("FILE", "Certificate chain (PEM).", "--tls-cert")] = None
    key: Annotated[Path | None, option("FILE", "Private key, if it is in another file.", "--tls-key")] = None
    authority: Annotated[Path | None, option("FILE", "Authority that signs clients' certificates.", "--tls-ca")] = None
    needs_clients: Annotated[bool, option(None, "Clients must show a certificate.", "--client-certificates")] = False


Source = Annotated[
    str, typer.Argument(metavar="PRESET_OR_FILE", help="Configuration to train.", autocompletion=presets_and_files)
]
Namespace = Annotated[
    str | None, option("NAME", "An existing namespace; default: surreal-RUN, which is also rendered.")
]


@dataclass(frozen=True)
class Request:
    """Arguments of `surreal k8s render`."""

    source: Source
    image: Annotated[str, option("IMAGE", "Image of all processes, with its registry and tag.")]
    agents: Annotated[
        int | None, option("N", "Number of agents, or their maximum when scaled; default: agent.count.", min=0)
    ] = None
    run: Annotated[str | None, option("RUN", "The run's id; default: its name.")] = None
    namespace: Namespace = None
    overlay: Annotated[str | None, option("NAME", "local, gpu, cluster, autoscale, or your folder; needs kubectl.")] = (
        None
    )
    gpu_image: Annotated[str | None, option("IMAGE", "Image of processes on GPUs; default: --image.")] = None
    redis: Annotated[
        str | None, option("URL", "An existing Redis, without its password; default: a server for the run.")
    ] = None
    redis_user: Annotated[
        str | None, option("NAME", "User of --redis for all processes; default: one for each role.")
    ] = None
    redis_sentinel_user: Annotated[
        str | None,
        option("NAME", "User of the Sentinels of --redis, if they want a password: key sentinel of the Secret."),
    ] = None
    redis_ca: Annotated[
        Path | None, option("FILE", "PEM file with the certificate authority of --redis, if it is private.")
    ] = None
    s3_endpoint: Annotated[str | None, option("URL", "S3 service for checkpoints, if it is not Amazon's.")] = None
    prometheus: Annotated[str | None, option("URL", "Prometheus that the overlay autoscale queries.")] = None
    priority_class: Annotated[
        str | None, option("NAME", "PriorityClass of all pods but agents, which yield first.")
    ] = None
    storage_class: Annotated[str | None, option("NAME", "StorageClass of all volumes; default: the cluster's.")] = None
    pull_secrets: Annotated[
        list[str] | None, option("NAME", "Secret for the image's registry; may be repeated.", "--pull-secret")
    ] = None
    has_tls: Annotated[
        bool, option(None, "TLS for the run's own Redis; needs `surreal k8s secret --tls`.", "--tls")
    ] = False
    has_jobs: Annotated[
        bool, option(None, "Jobs, which end with the run, instead of Deployments, which stay.", "--jobs")
    ] = False
    overrides: Overrides = None


_WORD = (re.compile(r"[\w.,@%+=:/-]+"), "a word of letters, digits and .,@%+=:/-")
_SIZE = (re.compile(r"[1-9]\d*[KMGT]?"), "a number with K, M, G or T")
#: Pattern of each field's text, and its description.
_FORMS = {
    "partition": _WORD,
    "agent_partition": _WORD,
    "account": _WORD,
    "qos": _WORD,
    "time": (re.compile(r"\d+(:\d+){0,2}|\d+-\d+(:\d+){0,2}"), "minutes, HH:MM:SS, D-HH or D-HH:MM:SS"),
    "memory": _SIZE,
    "agent_memory": _SIZE,
    "gpus": (re.compile(r"([A-Za-z][\w.-]*:)?[1-9]\d*"), "a number, or TYPE:NUMBER"),
    "local_disk": (re.compile(r"[/$][\w./${}:@+-]*"), "an absolute path, which may contain variables of the node"),
    "interface": (re.compile(r"[\w.:@-]{1,32}"), "the name of a network interface, such as ib0"),
}
_COUNTS = ("cpus", "agent_cpus", "agent_nodes", "warning_s")
# Options in the panels of the help.
_QUEUE = "The queue"
_queue = partial(option, rich_help_panel=_QUEUE)
_node = partial(option, rich_help_panel="The first node")
_agents = partial(option, rich_help_panel="The agents' nodes")


@dataclass(frozen=True)
class JobOptions:
    """Options of a job; None leaves a value to the cluster."""

    run: Annotated[
        str | None, option("NAME", "The run's id, which later jobs continue; default: one per job.", "--run")
    ] = None
    folder: Annotated[
        Path | None, option("DIR", "Folder of runs on a shared file system; default: runs, next to sbatch.")
    ] = None
    activate: Annotated[
        str | None, option("COMMAND", 'Puts `surreal` on the PATH of a node: "source venv/bin/activate".')
    ] = None
    partition: Annotated[str | None, typer.Option(rich_help_panel=_QUEUE)] = None
    account: Annotated[str | None, typer.Option(rich_help_panel=_QUEUE)] = None
    qos: Annotated[str | None, typer.Option(rich_help_panel=_QUEUE)] = None
    time: Annotated[str | None, _queue("LIMIT", "Time limit, such as 2-00:00:00.")] = None
    warning_s: Annotated[int, _queue("S", "Seconds before the time limit to drain.", "--warning")] = 120
    is_requeued: Annotated[bool, _queue(None, "Requeue the job, which then continues.", "--requeue/--no-requeue")] = (
        True
    )
    sbatch: Annotated[list[str] | None, _queue("OPTION", "Any option of sbatch; may be repeated.")] = None
    cpus: Annotated[int, _node(None, "CPUs for Redis, learner and evaluation.")] = 4
    memory: Annotated[str | None, _node("SIZE", "Memory; default: Redis' maximum + 4G.")] = None
    gpus: Annotated[str | None, _node("[TYPE:]N", "GPUs for the learner.")] = None
    interface: Annotated[str | None, _node("NAME", "Interface for Redis, such as ib0; default: all.")] = None
    keeps_experience: Annotated[
        bool, _node(None, "Keep the experience in the run's folder, for a requeue.", "--appendonly/--no-appendonly")
    ] = True
    local_disk: Annotated[
        str | None,
        _node("DIR", "Folder on the first node's disk for the experience while the job runs, such as '$TMPDIR'."),
    ] = None
    agent_cpus: Annotated[int, _agents("N", "CPUs of each agent.")] = 1
    agent_memory: Annotated[str, _agents("SIZE", "Memory for each CPU of an agent.")] = "2G"
    agent_nodes: Annotated[int | None, _agents("N", "Number of nodes; default: Slurm's choice.")] = None
    has_array: Annotated[
        bool, _agents(None, "Agents as an array of jobs: each starts, fails and is preempted alone.", "--array")
    ] = False
    agent_partition: Annotated[str | None, _agents(None, "Partition; default: --partition.")] = None

    def __post_init__(self) -> None:
        for field, (form, meaning) in _FORMS.items():
            value = getattr(self, field)
            if value is not None and not form.fullmatch(value):
                raise ConfigError(f"{_option(field)} is {value!r}; it must be {meaning}", key=_option(field))
        for field in _COUNTS:
            value = getattr(self, field)
            if value is not None and value < 1:
                raise ConfigError(f"{_option(field)} is {value}; it must be >= 1", key=_option(field))
        if self.has_array and self.agent_nodes is not None:
            raise ConfigError(
                "--agent-nodes is for agents that start together; leave it out with --array", key="--array"
            )
        if self.local_disk is not None and not self.keeps_experience:
            raise ConfigError(
                "--local-disk is for the experience on disk; leave it out with --no-appendonly", key="--local-disk"
            )
        for text in self.sbatch or ():
            if not re.fullmatch(r"--?[A-Za-z][^\n\r]*", text):
                problem = "it must be an option of sbatch on one line, such as --constraint=skylake"
                raise ConfigError(f"--sbatch is {text!r}; {problem}", key="--sbatch")
        if self.activate is not None and not self.activate.strip():
            raise ConfigError("--activate is empty; give a command, or leave it out", key="--activate")
        if self.folder is not None and re.search(r"[\n\r]", str(self.folder)):
            raise ConfigError(f"--folder is {str(self.folder)!r}; it must be on one line", key="--folder")

    @property
    def memory_mb(self) -> int | None:
        """`memory` in MB, which is Slurm's default unit."""
        if self.memory is None:
            return None
        unit = self.memory[-1] if self.memory[-1] in "KMGT" else "M"
        return math.ceil(int(self.memory.rstrip("KMGT")) * 1024.0 ** ("KMGT".index(unit) - 1))


def _option(field: str) -> str:
    """Return the command line's name of a field."""
    return {"warning_s": "--warning"}.get(field, f"--{field.replace('_', '-')}")
