"""The configuration of a run for TensorBoard, written by its learner: what a curve came of is seen beside the curve."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from surreal.config import Config, to_yaml
from surreal.config.yaml_tree import join
from surreal.distributed.telemetry.render import event_header, hyperparameter_events, text_event

logger = logging.getLogger(__name__)

_NAME = "events.out.tfevents.0.surreal-config"
#: What curves differ by; the rest of a configuration says where and for how long.
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
    """Give the settings that curves differ by, by their keys: numbers, words, and whether something is on (1 or 0)."""
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
