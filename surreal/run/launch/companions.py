"""Parts of an app next to a run that was started elsewhere: `surreal run environment`, `rlx-server`, ..."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from surreal.base.errors import ConfigError
from surreal.config import Config, load_config, to_yaml
from surreal.distributed.connection.address import WITHOUT_SECRETS, FoundAddress
from surreal.run.launch.rlx_children import environment_arguments, server_url
from surreal.run.launch.starting import Spawner
from surreal.run.launch.supervise import Child, Supervision
from surreal.run.process.arguments import REDIS_VARIABLE
from surreal.run.process.ending import Ending, ExitCode
from surreal.run.process.interrupts import Interrupts
from surreal.run.process.roles import ENVIRONMENT, RLX_SERVER, NormalEnd, Part, Role
from surreal.run.process.run_folder import RunFolder
from surreal.run.view.live.child_warnings import ChildWarnings

_COLLECTOR = Role(
    Part.METRICS_SERVER,
    "surreal.run.launch.collecting",
    "Collect the logs and metrics of a run into its folder.",
    count=lambda _: 1,
    drain_order=2,
    drain_timeout_s=15.0,
    last_work="the last of the log",
    counts_as=Part.METRICS_SERVER,
    normal_end=NormalEnd.ALL_END_RUN,
    is_single=True,
)
_POLL_S = 0.1


class RunPlace(NamedTuple):
    """A run in progress."""

    run: str
    address: str  #: of its Redis
    run_dir: Path


class Companions:
    """Runs parts of an app next to a run.

    Args:
        place: the run; None for environment programs alone, which need only the server's address.

    Raises:
        ConfigError: the app has no program, or does not name its server.
    """

    def __init__(
        self,
        parts: frozenset[Part],
        source: str,
        overrides: Sequence[str],
        place: RunPlace | None,
        starter: Spawner,
        say: Callable[[str], object],
    ) -> None:
        self._config = config = load_config(source, overrides)
        self._parts, self._place, self._starter, self._say = parts, place, starter, say
        self._own = [source, *(part for override in overrides for part in ("--set", override))]
        if Part.ENVIRONMENTS in parts and not config.environment.count:
            key, found = ("run", "not set") if config.environment.run is None else ("n_environments", 0)
            problem = f"environment.{key} is {found}: there is no environment program to start"
            raise ConfigError(f"{problem}; set it, as in run: python environment/training.py", key=f"environment.{key}")

    def execute(self, interrupts: Interrupts) -> Ending:
        """Run the parts until their programs or the run end, or a signal comes; returns why."""
        with ExitStack() as stack:
            folder = Path(tempfile.mkdtemp(prefix="surreal-app-"))
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            children = self._children(folder)
            supervision = Supervision(
                children,
                self._starter,
                log_dir=folder,
                environment=self._environment(),
                restart_limit=self._config.run.restart_limit,
            )
            stack.callback(supervision.kill)
            printing = [child.name for child in children if child.role.prints]
            output = ChildWarnings(supervision.consoles, self._say, printing=printing)
            supervision.start()
            ending = self._watch(supervision, output, interrupts)
            problem = supervision.drain(is_hurried=lambda: interrupts.is_hurried)
            output.poll()
            return ending if problem is None else Ending(problem, ExitCode.FAILED)

    def _environment(self) -> dict[str, str]:
        """Return the address of the run's Redis; an address from its folder gets no secrets."""
        if self._place is None:
            return {}
        is_found = isinstance(self._place.address, FoundAddress)
        return {REDIS_VARIABLE: self._place.address, **(WITHOUT_SECRETS if is_found else {})}

    def _watch(self, supervision: Supervision, output: ChildWarnings, interrupts: Interrupts) -> Ending:
        is_known = self._knows_address()
        while True:
            if interrupts.ending is not None:
                return interrupts.ending
            failure = supervision.poll()
            output.poll()
            if failure is not None:
                return Ending(failure, ExitCode.FAILED)
            if supervision.are_finished(NormalEnd.LAST_ENDS_RUN):
                return Ending("all environments have played their episodes")
            if supervision.are_finished(NormalEnd.ALL_END_RUN) or (is_known and not self._knows_address()):
                return Ending("the run is over")
            time.sleep(_POLL_S)

    def _knows_address(self) -> bool:
        """Whether the folder names the run's Redis: the stop key may be missed when the Redis ends with its run."""
        return self._place is not None and RunFolder(self._place.run_dir).read_address() is not None

    def _children(self, folder: Path) -> list[Child]:
        children: list[Child] = []
        if self._parts & {Part.ENVIRONMENTS, Part.RLX_SERVERS}:
            self._say(f"environments connect to {server_of(self._config)}")
        if self._place is not None:
            run = ["--run", self._place.run, "--run-dir", str(self._place.run_dir)]
            if Part.METRICS_SERVER in self._parts:
                children.append(Child(_COLLECTOR, 0, [*run, "--beside"]))
            if Part.RLX_SERVERS in self._parts:
                children.append(Child(RLX_SERVER, 0, [*self._own, *run]))
        if Part.ENVIRONMENTS in self._parts:
            settings = folder / "app.yaml"  # with the overrides
            settings.write_text(to_yaml(self._config), encoding="utf-8")
            url = server_of(self._config)
            children += [
                Child(ENVIRONMENT, number, environment_arguments(self._config, str(settings), url, number))
                for number in range(self._config.environment.count)
            ]
        return children


def server_of(config: Config) -> str:
    """Return the address at which an app's programs find their server."""
    if config.relaax_rlx_server.bind is not None:
        return config.relaax_rlx_server.bind
    if not config.rlx.port:
        problem, key = "rlx.port is 0, a port that only `surreal run` knows", "rlx.port"
        advice = "set it, or relaax_rlx_server.bind to HOST:PORT"
        raise ConfigError(f"{problem}; {advice}", key=key, source=config.source_of(key))
    return server_url(config, config.rlx.port)
