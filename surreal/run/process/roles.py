"""The table of roles, the kinds of processes, and the words with which `surreal run` starts parts of an app.

A further role is one more entry here, and a module with `main(argv)`. Imports nothing heavy.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from enum import Enum, IntEnum, StrEnum
from typing import TYPE_CHECKING

from surreal.base.errors import ConfigError

if TYPE_CHECKING:
    from surreal.config import Config


class RandomStream(IntEnum):
    """Streams of random numbers from the run's seed; changing a number changes the results of a seed."""

    AGENT = 1
    LEARNER = 2
    EVAL = 3
    VERIFY = 4
    PLAY = 5
    RLX_SERVER = 6
    PARAMETER_SERVER = 7


class NormalEnd(Enum):
    """Consequence for the run when a process of a role ends by itself with exit code 0."""

    NOTHING = "nothing"
    ENDS_RUN = "the run is over"
    ALL_END_RUN = "the run is over when all of the role's processes have ended"
    LAST_ENDS_RUN = "the run is over when all of the role's processes have ended, at once"


@dataclass(frozen=True)
class Role:
    """One kind of process. A process that a signal killed is restarted, within `run.restart_limit`."""

    name: str  #: in commands and names of processes and files
    module: str  #: its `main(argv)` runs the process
    summary: str  #: help of the command
    count: Callable[[Config], int]  #: number of processes in a configuration
    drain_order: int  #: order at the end of a run, >= 0; roles with the same number drain together
    drain_timeout_s: float  #: longest drain before the process is killed, s
    last_work: str  #: its work while it drains, for people
    counts_as: str  #: role of its heartbeats and metrics
    hurried_timeout_s: float = 1.0  #: like `drain_timeout_s`, after a second Ctrl-C, s
    stream: RandomStream | None = None  #: stream of its random numbers; None if it draws none
    normal_end: NormalEnd = NormalEnd.NOTHING  #: consequence of its end
    is_numbered: bool = False  #: whether the first process in a run has a number, too: `agent-0`, but `rlx-server`
    is_single: bool = False  #: whether a launcher starts at most one, whose console needs no number
    resumes: bool = True  #: whether a restart adds `--resume`
    leads: bool = False  #: whether its configuration is the run's if there is no launcher
    has_command: bool = True  #: whether there is a command `surreal NAME`
    prints: bool = False  #: whether its output is for the person at the launcher
    user: str = "agent"  #: Redis user, if Redis has users

    def process_name(self, index: int, rank: int = 0) -> str:
        """Return the name of a process in the run; it includes the rank of a learner, except 0."""
        name = f"{self.name}-{index}" if self.is_numbered or index else self.name
        return f"{name}-rank-{rank}" if rank else name

    def console_name(self, number: int) -> str:
        return self.name if self.is_single else f"{self.name}-{number}"


LEARNER = Role(
    "learner",
    "surreal.run.roles.learner",
    "Start the learner process of a run.",
    count=lambda config: int(not config.has_parameter_servers),
    drain_order=2,
    drain_timeout_s=60.0,
    last_work="the checkpoint",
    hurried_timeout_s=30.0,
    counts_as="learner",
    stream=RandomStream.LEARNER,
    normal_end=NormalEnd.ENDS_RUN,
    is_single=True,
    leads=True,
    user="learner",
)
#: Replaces the learner if agents compute the gradients.
PARAMETER_SERVER = replace(
    LEARNER,
    name="ps",
    module="surreal.run.roles.parameter_server",
    summary="Start a parameter server of a run whose agents compute the gradients.",
    count=lambda config: config.parameter_server.servers if config.has_parameter_servers else 0,
    stream=RandomStream.PARAMETER_SERVER,
    is_single=False,
    user="parameter-server",
)
AGENT = Role(
    "agent",
    "surreal.run.roles.agent",
    "Start an agent process of a run; any number, on any machine.",
    count=lambda config: 0 if config.run.deterministic else config.agent.count,
    drain_order=1,
    drain_timeout_s=15.0,
    last_work="the last experience",
    counts_as="agent",
    stream=RandomStream.AGENT,
    normal_end=NormalEnd.ALL_END_RUN,
    is_numbered=True,
)
#: An agent whose environments run elsewhere.
RLX_SERVER = replace(
    AGENT,
    name="rlx-server",
    module="surreal.run.roles.rlx_server",
    summary="Start a server for environments elsewhere, of a run or of a saved policy.",
    count=lambda config: config.rlx.servers,
    stream=RandomStream.RLX_SERVER,
    is_numbered=False,
)
RLX_CLIENT = Role(
    "rlx-client",
    "surreal.run.roles.rlx_client",
    "Run gymnasium environments for the agent of an RLX server.",
    count=lambda config: config.rlx.clients,
    drain_order=0,
    drain_timeout_s=5.0,
    last_work="closing environments",
    counts_as="rlx-client",
    resumes=False,
)
#: A user's program that plays over RLX: `environment.run`.
ENVIRONMENT = replace(
    RLX_CLIENT,
    name="environment",
    module="surreal.run.launch.environment",
    summary="Run one environment program of an app.",
    count=lambda config: config.environment.count,
    normal_end=NormalEnd.LAST_ENDS_RUN,
    has_command=False,
    prints=True,
)
EVAL = Role(
    "eval",
    "surreal.run.roles.eval",
    "Start the evaluation process of a run.",
    count=lambda config: int(config.eval.enabled and not config.run.deterministic),
    drain_order=3,
    drain_timeout_s=20.0,
    last_work="the last round",
    counts_as="eval",
    stream=RandomStream.EVAL,
    is_single=True,
    user="evaluation",
)

#: In the order in which a launcher starts them.
ROLES: tuple[Role, ...] = (LEARNER, PARAMETER_SERVER, AGENT, RLX_SERVER, RLX_CLIENT, ENVIRONMENT, EVAL)


def refusal_of(role: Role, config: Config) -> tuple[str, str] | None:
    """Return the setting and the reason why a role cannot take part in a run; None if it can."""
    if role in (LEARNER, PARAMETER_SERVER) and not role.count(config):
        other = PARAMETER_SERVER if role is LEARNER else LEARNER
        return "learner.gradients", f"learner.gradients is {config.learner.gradients}: start `surreal {other.name}`"
    if config.run.deterministic and role is not LEARNER:
        rule = "the learner's process does all by itself"
        return "run.deterministic", f"run.deterministic is true: {rule}, and no {role.name} can join it"
    return None


class Part(StrEnum):
    """A part of an app that `surreal run` can start alone; RELAAX's words."""

    ENVIRONMENTS = "environment"
    RLX_SERVERS = "rlx-server"
    PARAMETER_SERVER = "parameter-server"
    METRICS_SERVER = "metrics-server"


#: Words that `surreal run` does not take for presets or files, and the parts that each starts.
COMPONENTS: dict[str, frozenset[Part]] = {
    "all": frozenset(Part),
    "servers": frozenset(Part) - {Part.ENVIRONMENTS},
    **{part.value: frozenset({part}) for part in Part},
}


def parts_of(words: Collection[str]) -> frozenset[Part]:
    """Return the parts that components ask for; everything if there are none."""
    if "wsproxy" in words:
        raise ConfigError("wsproxy is no longer a component: an rlx-server speaks WebSocket itself", key="wsproxy")
    return frozenset().union(*(COMPONENTS[word] for word in words)) if words else COMPONENTS["all"]


def launcher_overrides(parts: Collection[Part]) -> list[str]:
    """Return the settings that leave the other parts out of a run."""
    left_out = {Part.ENVIRONMENTS: "environment.n_environments=0", Part.RLX_SERVERS: "rlx.servers=0"}
    return [setting for part, setting in left_out.items() if part not in parts]
