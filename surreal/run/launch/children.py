"""The processes that a launcher starts for a run, with the arguments of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from surreal.config import Config
from surreal.distributed.connection.client import RedisClient
from surreal.run.launch.supervise import Child
from surreal.run.process.roles import AGENT, EVAL, LEARNER, PARAMETER_SERVER, RLX_SERVER, ROLES, Role


def make_children(
    config: Config,
    client: RedisClient,
    common: Sequence[str],
    stack: ExitStack,
    say: Callable[[str], object],
    *,
    config_path: Path,
    offline: Path | None = None,
) -> list[Child]:
    """Make all children of a run, in the order in which they are started; nothing starts here.

    Args:
        config: of the run.
        client: of the run's Redis.
        common: arguments that all role processes get.
        stack: gives back at the end what is taken for them, such as a port.
        say: shows a line to whoever started the run.
        config_path: the run's configuration in its folder.
        offline: exported replay to learn from; None: the agents' experience.

    Raises:
        ConfigError: the port of the RLX servers is taken.
    """
    learner = [*common, *(() if offline is None else ("--offline", str(offline.absolute())))]
    arguments: dict[Role, Callable[[int], Sequence[str]]] = {
        LEARNER: lambda _: learner,
        PARAMETER_SERVER: lambda number: [*common, "--index", str(number)],
        AGENT: lambda number: [*common, "--index", str(number)],
        EVAL: lambda _: common,
    }
    if RLX_SERVER.count(config):
        from surreal.run.build.rlx_server import port_owner  # brings gymnasium, for the wrappers
        from surreal.run.launch.rlx.arguments import rlx_arguments

        arguments |= rlx_arguments(config, common, stack, say, owner=port_owner(client), config_path=config_path)
    return [Child(role, number, arguments[role](number)) for role in ROLES for number in range(role.count(config))]
