"""Companions."""

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
from surreal.run.launch.children import environment_arguments, server_url
from surreal.run.launch.starting import Starter
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
    "The logs and metrics of a run, brought into its folder.",
    count=lambda _: 1,
    drain_order=2,
    drain_timeout_s=15.0,
    last_work="the last of the log",
    counts_as=Part.METRICS_SERVER,
    normal_end=NormalEnd.ALL_END_RUN,
    is_single=True,
)
_POLL_S = 0.1


class Place(NamedTuple):
    """A run that goes on, and where it is."""

    run: str
    address: str  #: of its Redis
    run_dir: Path


class Companions:
    """Runs parts of an app beside a run.

    Args:
        parts: which; not the learner.
        source: of the app's configuration.
        overrides: of it.
        place: the run; None of environment programs alone, which need only the server's address.
        starter: starts the processes.
        say: shows a line.

    Raises:
        ConfigError: the app has no program, or does not say where its server is.
    """

    def __init__(
        self,
        parts: frozenset[Part],
        source: str,
        overrides: Sequence[str],
        place: Place | None,
        starter: Starter,
        say: Callable[[str], object],
    ) -> None:
        self._config = load_config(source, overrides)
        self._parts, self._place, self._starter, self._say = parts, place, starter, say
        self._own = [source, *(part for override in overrides for part in ("--set", override))]
        if Part.ENVIRONMENTS in parts:
            _check_program(self._config)

    def execute(self, interrupts: Interrupts) -> Ending:
        """Run them until the programs have ended, or the run has, or a signal comes; returns why."""
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
        """Tell the processes where the run's Redis is; an address out of its folder gets no secrets."""
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
        """Whether the run's folder says where its Redis is: the end of one that is the run's own may be missed."""
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
            settings = folder / "app.yaml"  # with what the command line has changed
            settings.write_text(to_yaml(self._config), encoding="utf-8")
            url = server_of(self._config)
            children += [
                Child(ENVIRONMENT, number, environment_arguments(self._config, str(settings), url, number))
                for number in range(self._config.environment.count)
            ]
        return children


def server_of(config: Config) -> str:
    """Give the address that an app's programs find their server at.

    Raises:
        ConfigError: it is not written down.
    """
    if config.relaax_rlx_server.bind is not None:
        return config.relaax_rlx_server.bind
    if not config.rlx.port:
        raise ConfigError(
            "rlx.port is 0, a port that only `surreal run` knows; set it, or relaax_rlx_server.bind to HOST:PORT",
            key="rlx.port",
            source=config.source_of("rlx.port"),
        )
    return server_url(config, config.rlx.port)


def _check_program(config: Config) -> None:
    if not config.environment.count:
        key = "run" if config.environment.run is None else "n_environments"
        raise ConfigError(
            f"environment.{key} is {'not set' if key == 'run' else 0}: there is no environment program to start; "
            "set it, as in run: python environment/training.py",
            key=f"environment.{key}",
        )
