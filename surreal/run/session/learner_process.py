"""The leading rank of a learner: its folder, description, threads and caches."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import torch

from surreal.base.errors import CheckpointError
from surreal.base.system.process import count_cores
from surreal.config import Config, to_yaml
from surreal.config.schema.learning import LearnerConfig
from surreal.config.yaml_tree import join
from surreal.distributed.telemetry.render import event_header, hyperparameter_events, text_event
from surreal.run.build.checkpoints import go_back, read_best
from surreal.run.process.ending import Counts, result_of
from surreal.run.process.role import RoleProcess
from surreal.run.process.run_folder import RunFolder

logger = logging.getLogger(__name__)


class OwnFolder:
    """Claims a learner's folder: `begin` after all checks, `finish` at the end, `release`; raises `BusyError`."""

    def __init__(self, process: RoleProcess) -> None:
        self._process = process
        self._started, self._started_s = time.time(), time.monotonic()
        self._folder = RunFolder(process.run_dir)
        self._folder.claim()
        try:
            if process.arguments.resume and (words := go_back(process.config, process.run_dir)):
                logger.info("%s", words)
        except CheckpointError:
            self._folder.release()
            raise

    def begin(self) -> None:
        self._folder.begin(self._process.config, self._process.client.run, self._started)

    def finish(self, counts: Counts, error: Exception | None = None) -> None:
        result = result_of(
            self._process.config,
            self._process.client.run,
            self._process.ending(error),
            started=self._started,
            time_s=self._folder.earlier_s + time.monotonic() - self._started_s,
            counts=counts,
            best=read_best(self._folder.path / "eval"),
        )
        self._folder.write_result(result)

    def release(self) -> None:
        self._folder.release()


_NAME = "events.out.tfevents.0.surreal-config"
#: Sections that make a difference to curves; the others set places and limits.
_SECTIONS = ("env", "model", "agent", "learner", "replay", "sender", "broadcast")
#: What the table of hyperparameters shows of a run: folder and name.
_RESULTS = (("eval", "eval/episode_return"), ("eval", "eval/episode_return_best"))


def describe_run(config: Config, run: str, run_dir: Path) -> None:
    """Write the configuration as text and as hyperparameters; a folder that cannot be written is no reason to fail."""
    now = time.time()
    yaml = to_yaml(config, hide_passwords=True)
    indented = "\n".join(f"    {line}" for line in yaml.splitlines())  # a block of code, in Markdown
    records = [
        event_header(now),
        text_event(now, "run/configuration", indented),
        hyperparameter_events(now, run, hyperparameters(config), _RESULTS),
    ]
    path = run_dir / "tensorboard" / _NAME
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(records))
    except OSError as error:
        logger.warning("the configuration is not written for TensorBoard: %s", error)


def hyperparameters(config: Config) -> dict[str, float | str]:
    """Return the settings that curves differ by, by their keys: numbers, words, and 1 or 0 for what is on or off."""
    plain: dict[str, Any] = config.model_dump(mode="json", by_alias=True)
    found: dict[str, float | str] = {"seed": float(config.seed)}
    for section in _SECTIONS:
        found.update(_leaves(plain[section], section))
    return found


def _leaves(section: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, float | str]]:
    for name, value in section.items():
        key = join(prefix, name)
        if isinstance(value, dict):
            yield from _leaves(value, key)
        elif isinstance(value, int | float):
            yield key, float(value)
        elif value is not None:
            yield key, value if isinstance(value, str) else ", ".join(map(str, value))


_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"


def keep_torch_out_of_tmp(run_dir: Path, stack: ExitStack) -> None:
    """Set where torch's optimizers make their compiler cache, unless the user did; removed if it stays empty."""
    if _VARIABLE not in os.environ:
        folder = (run_dir / "torch-cache").absolute()
        os.environ[_VARIABLE] = str(folder)
        stack.callback(_remove_if_empty, folder)


def _remove_if_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()


def set_torch_threads(learner: LearnerConfig, variables: Mapping[str, str] = os.environ) -> None:
    """Set the number of torch's threads, if the configuration has it; for the thread that learns."""
    if learner.threads == "all":
        ranks_here = int(variables.get("LOCAL_WORLD_SIZE", learner.ranks))
        torch.set_num_threads(max(1, count_cores() // ranks_here))
    elif learner.threads is not None:
        torch.set_num_threads(learner.threads)
