"""`surreal.train`, and what it returns."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from rich.console import Console

from surreal.api.policy import Policy, load
from surreal.api.sources import Source, write_source
from surreal.api.tables import read_lines, table
from surreal.base.errors import ConfigError, StoppedError, SurrealError
from surreal.config import Config, load_config
from surreal.config.problems import nearest
from surreal.run.launch.check import PreparedRun, RunOptions, prepare
from surreal.run.launch.launcher import Launcher
from surreal.run.launch.servers import RunServers
from surreal.run.launch.starting import ForkServer
from surreal.run.process.arguments import parse
from surreal.run.process.ending import ExitCode
from surreal.run.process.interrupts import Interrupts
from surreal.run.process.roles import AGENT, EVAL, LEARNER
from surreal.run.view.run_view import RunOutcome


@dataclass(frozen=True)
class PlottedCurve:
    """A picture in a file, which a notebook shows."""

    path: Path

    def _repr_png_(self) -> bytes:
        return self.path.read_bytes()


@dataclass(frozen=True, repr=False)
class Result:
    """The result of a run."""

    run: str  #: its id
    folder: Path
    config: Config
    status: str  #: finished, or interrupted
    reason: str  #: why it ended
    env_steps: int
    time_s: float
    best_return: float | None  #: mean return of the best round of its evaluation; None if there was none

    def __repr__(self) -> str:
        best = "no evaluation" if self.best_return is None else f"best return {self.best_return:.6g}"
        return f"<Result {self.run}: {self.status}, {best}, {self.env_steps:,} env steps, {self.time_s:.0f} s>"

    @property
    def policy(self) -> Policy:
        """The best policy, loaded again at each call."""
        return load(self)

    @property
    def scores(self) -> Any:
        """The rounds of evaluation: a `pandas.DataFrame`, or a dict of columns where pandas is not installed."""
        rounds = (line for line in read_lines(self.folder / "eval" / "scores.jsonl") if line.get("kind") == "round")
        names = ("round", "global_step", "mean_return", "std_return")  # before all others
        return table({name: row[name] for name in (*names, *row) if name in row and name != "kind"} for row in rounds)

    def metrics(self, *names: str) -> Any:
        """Return metrics over time, one row for each reading of a process.

        Args:
            names: the metrics, such as "learner/loss"; without any, all of them.

        Returns:
            A table like `scores` with the columns `time` (s since 1970), `process`, `step` (env steps) and the metrics.

        Raises:
            ValueError: the run recorded no metric of such a name; names the most similar one.
        """
        rows, known = [], set[str]()
        for line in read_lines(self.folder / "metrics.jsonl"):
            known |= line["metrics"].keys()
            found = {name: value for name, value in line["metrics"].items() if not names or name in names}
            if found:
                rows.append({"time": line["time"], "process": line["process"], "step": line["step"], **found})
        for name in {*names} - known:
            similar = nearest(name, sorted(known))
            raise ValueError(f"the run has no metric {name}{f'; did you mean {similar}?' if similar else ''}")
        return table(rows)

    def plot(self, path: str | os.PathLike[str] | None = None) -> PlottedCurve:
        """Draw the run's learning curve, as `surreal plot` does.

        Args:
            path: file of the picture (.png, .svg or .pdf); None: `curve.png` in the run's folder.

        Raises:
            SurrealError: the extra `plot` is not installed, or there is nothing to draw.
        """
        picture = Path(path or self.folder / "curve.png")
        command = [sys.executable, "-m", "surreal", "plot", str(self.folder), "-o", str(picture)]
        drawn = subprocess.run(command, capture_output=True, text=True, check=False)
        if drawn.returncode:
            raise SurrealError(drawn.stderr.strip().removeprefix("error: "))
        return PlottedCurve(picture)


def train(
    source: Source,
    algorithm: str | None = None,
    *,
    seed: int | None = None,
    steps: int | None = None,
    device: str | None = None,
    overrides: Mapping[str, Any] | None = None,
    run_dir: str | os.PathLike[str] | None = None,
    redis: str | None = None,
    resume: bool = False,
    progress: bool = True,
    inline: bool = False,
) -> Result:
    """Train on this machine until the goal, a limit, or Ctrl-C.

        surreal.train("cartpole-ppo", seed=1)
        surreal.train("LunarLander-v3", "dqn", steps=200_000)
        surreal.train(MyEnv, "sac", overrides={"learner.gamma": 0.98})

    Args:
        source: a preset, a YAML file, a dict of settings, or a `Config`. With an algorithm, an environment instead: its
            id, or a class or function that makes it, which may be defined in a script or a notebook's cell.
        algorithm: the end of a preset's name, such as "ppo". The settings are those of the preset for the most similar
            kind of observations and actions.
        seed: the seed of all random numbers; None uses the configuration's.
        steps: env steps, `run.max_env_steps`; None uses the configuration's.
        device: device of the learner: auto, cpu, cuda, cuda:N or mps; None uses the configuration's.
        overrides: settings by their dotted names, such as {"learner.gamma": 0.98}, or sections with the settings to
            change, such as {"learner": {"gamma": 0.98}}; the section's other settings stay.
        run_dir: the run's folder; None makes a new one below `runs`.
        redis: address of a Redis; None starts one for this run.
        resume: continue the run in `run_dir`.
        progress: show how far it is; without, only warnings.
        inline: act and learn in this process, in a fixed order, where a debugger can stop. It is slower.

    Raises:
        ConfigError: the configuration makes no sense.
        KeyboardInterrupt: Ctrl-C has ended the run in order; `run_dir` and `resume` continue it. SIGTERM and SIGHUP
            also reach the program, once the run has ended.
        SurrealError: it could not be started, or something has ended it that was not asked for.
    """
    named = {"seed": seed, "run.max_env_steps": steps, "device": device, "run.deterministic": inline or None}
    settings = dict(overrides or {}) | {name: value for name, value in named.items() if value is not None}
    # YAML reads JSON: quoted as such, a string stays one.
    given = tuple(f"{name}={json.dumps(value)}" for name, value in settings.items())
    folder = None if run_dir is None else Path(run_dir)
    with _naming_overrides(), tempfile.TemporaryDirectory(prefix="surreal-train-") as place:
        path = write_source(source, algorithm, Path(place))
        if algorithm is not None and progress:
            sys.stdout.write(f"# the settings, which the run's folder keeps\n{Path(path).read_text(encoding='utf-8')}")
        options = RunOptions(
            path, given, run_dir=folder, redis=redis, resume=resume, is_quiet=not progress, shows_progress=progress
        )
        return _train_inline(options) if inline else _train(options)


def _train(options: RunOptions) -> Result:
    interrupts = Interrupts()
    outcome: RunOutcome | None = None
    # Signals come to the main thread alone; elsewhere the program has them, and ends the run by `surreal stop`.
    is_main = threading.current_thread() is threading.main_thread()
    with (
        open(os.devnull, "w") as nowhere,
        interrupts.installed() if is_main else nullcontext(),
        ForkServer([role.module for role in (LEARNER, AGENT, EVAL)]) as starter,
    ):
        console = Console(file=None if options.shows_progress else cast(IO[str], nowhere), soft_wrap=True)
        with suppress(StoppedError):
            outcome = Launcher(options, console, interrupts, starter).execute()
    if (asked := interrupts.ending) is not None:  # it is meant for the program as well, whose handlers are back
        signal.raise_signal(asked.exit_code - 128)
    if outcome is None:
        raise StoppedError("the run was asked to end before it began")
    if outcome.ending.exit_code is ExitCode.FAILED:
        raise SurrealError(f"{outcome.ending.reason}; see {outcome.folder / 'logs'}")
    best = None if outcome.best is None else float(outcome.best["mean_return"])
    ending = outcome.ending
    return Result(
        outcome.run, outcome.folder, outcome.config, ending.status, ending.reason, outcome.counts.env_steps,
        outcome.time_s, best,
    )  # fmt: skip


def _train_inline(options: RunOptions) -> Result:
    """Be the learner process of a deterministic run, whose errors and breakpoints are those of this process."""
    import torch

    from surreal.run.process.role import run_role
    from surreal.run.roles.learner import body

    prepared = prepare(options)
    with ExitStack() as stack:
        servers = RunServers(prepared.config, prepared.run, prepared.folder.path, options.redis, stack)
        stack.enter_context(_keeping_signals())
        stack.callback(torch.set_deterministic_debug_mode, torch.get_deterministic_debug_mode())
        code = run_role(LEARNER, body, parse(LEARNER, _learner_arguments(prepared, options, servers.address)))
    if code > 128:
        signal.raise_signal(code - 128)
    found = json.loads((prepared.folder.path / "result.json").read_text())
    best = None if found["best"] is None else float(found["best"]["mean_return"])
    folder, reason = prepared.folder.path, found["reason"]
    config = load_config(prepared.folder.config_path)
    return Result(prepared.run, folder, config, found["status"], reason, found["env_steps"], found["time_s"], best)


def _learner_arguments(prepared: PreparedRun, options: RunOptions, address: str) -> list[str]:
    # A debugger may stop this process for as long as its user likes.
    overrides = (*prepared.overrides, "run.hang_timeout_s=1e6", "env.pool=local")
    arguments = ["--config", prepared.source, "--run", prepared.run, "--run-dir", str(prepared.folder.path)]
    arguments += ["--redis", address, "--debug", *(["--resume"] if options.resume else [])]
    arguments += ["--log-level", "INFO" if options.shows_progress else "WARNING"]
    return [*arguments, *(part for each in overrides for part in ("--set", each))]


@contextmanager
def _keeping_signals() -> Iterator[None]:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
    kept = {number: signal.getsignal(number) for number in numbers}
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


@contextmanager
def _naming_overrides() -> Iterator[None]:
    """Name a program's `overrides` in a `ConfigError` where the command line would name `--set`."""
    try:
        yield
    except ConfigError as error:
        text, source = (words.replace("(--set", "(overrides") for words in (str(error), f"({error.source}"))
        raise ConfigError(text, key=error.key, source=source[1:]) from error
