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
    """Make all children of a run, in the order of their start; nothing starts here."""
    learner = [*common, *(() if offline is None else ("--offline", str(offline.absolute())))]
    arguments: dict[Role, Callable[[int], Sequence[str]]] = {
        LEARNER: lambda _: learner,
        PARAMETER_SERVER: lambda number: [*common, "--index", str(number)],
        AGENT: lambda number: [*common, "--index", str(number)],
        EVAL: lambda _: common,
    }
    if RLX_SERVER.count(config):
        from surreal.run.build.rlx_server import port_owner  # both bring gymnasium, for the wrappers
        from surreal.run.launch.rlx_children import rlx_arguments

        arguments |= rlx_arguments(config, common, stack, say, owner=port_owner(client), config_path=config_path)
    return [Child(role, number, arguments[role](number)) for role in ROLES for number in range(role.count(config))]
