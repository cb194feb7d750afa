"""A saved policy: an evaluation's `best.safetensors`, the policy in a checkpoint, an export, or a pretrained one.

Read by `surreal play`, by the check after a run, and by processes that start from `checkpoint.restore`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from torch import Tensor

from surreal.agent.exported import FORMATS, ExportedFile
from surreal.base.checkpoint import Checkpoint, open_checkpoint, save_checkpoint
from surreal.base.errors import CheckpointError
from surreal.base.system.files import write_whole
from surreal.config import Config
from surreal.config.loading import from_plain
from surreal.config.problems import explain
from surreal.run.build.pretrained import read_pretrained
from surreal.run.build.trust import trusted_config
from surreal.run.process.finding import named_folder
from surreal.run.process.registry import plain_config
from surreal.run.process.run_folder import newest_checkpoint

#: Files of a run's folder.
BEST_POLICY = Path("eval") / "best.safetensors"
_KINDS = ("policy", "learner")
_MODEL_PREFIX = "model/"


@dataclass(frozen=True)
class SavedPolicy:
    """A policy file's content."""

    config: Config
    tensors: dict[str, Any]
    header: dict[str, Any]  #: of the model, see `surreal.base.pytorch.Module`
    version: int
    path: str = ""
    exported: ExportedFile | None = None  #: then there are no tensors

    def save(self, path: Path) -> None:
        """Write the policy to a file that `load_policy` reads; raises `CheckpointError` or `OSError`."""
        if self.exported is not None:
            write_whole(path, Path(self.path).read_bytes())
            return
        content = {"version": self.version, "config": plain_config(self.config), "model": self.header}
        save_checkpoint(path, self.tensors, {"kind": "policy", **content}, step=self.version)

    def with_settings(self, overrides: Sequence[str]) -> SavedPolicy:
        """Return the policy with some settings of its configuration changed, each as `key.path=value`."""
        if not overrides:
            return self
        plain = self.config.model_dump(mode="json", by_alias=True)
        return replace(self, config=from_plain(plain, overrides, self.path))


def load_policy(source: str | os.PathLike[str], *, trust: bool = False, policies: str | None = None) -> SavedPolicy:
    """Read a policy.

    Args:
        source: path or URL of a policy or a learner's checkpoint, path of an exported policy, a run's folder, name or
            id, of which the best policy is taken, else the newest checkpoint, or the name of a pretrained policy.
        trust: whether classes and folders that the file names may be imported, which runs their code.
        policies: place of pretrained policies, see `read_pretrained`.

    Raises:
        CheckpointError: it is missing, damaged, or none of them.
        ConfigError: there is no run or policy of that name, or the file names code outside of Surreal and is not
            trusted.
    """
    path = policy_file(source)
    if Path(path).suffix in FORMATS:
        file = ExportedFile(path)
        version = int(file.metadata["policy"]["version"])
        return SavedPolicy(_read_config(path, file.metadata, trust=trust), {}, {}, version, path, file)
    is_file = os.path.exists(path) or bool(Path(path).suffix)
    checkpoint = open_checkpoint(path) if is_file else read_pretrained(path, policies)
    tensors = policy_tensors(checkpoint)
    version = int(checkpoint.metadata.get("version", 0))
    config = _read_config(path, checkpoint.metadata, trust=trust)
    return SavedPolicy(config, tensors, policy_header(checkpoint), version, path)


def policy_file(source: str | os.PathLike[str]) -> str:
    """Return the file to read: of a run (folder, name or id), the best policy, or else the newest checkpoint.

    Any other path or URL is given back as it is.
    """
    path = os.fspath(source)
    if os.path.isfile(path):
        return path
    run = named_folder(path)
    if run is None and not os.path.isdir(path):
        return path
    folder = Path(path) if run is None else run.path
    if (best := folder / BEST_POLICY).exists():
        return str(best)
    if updates := newest_checkpoint(folder):
        return str(folder / "checkpoints" / f"{updates:010d}.safetensors")
    raise CheckpointError(f"{folder} has neither {BEST_POLICY} nor a checkpoint")


def _read_config(path: str, metadata: Mapping[str, Any], *, trust: bool) -> Config:
    plain = metadata.get("config")
    if not isinstance(plain, dict):
        raise CheckpointError(f"{path} has no configuration, so its environment is unknown")
    try:
        config = Config.model_validate(plain)
    except ValidationError as error:
        problem = explain(Config, error, {}, "")
        raise CheckpointError(f"{path} has a configuration that this Surreal cannot read: {problem}") from error
    return trusted_config(config, path, trust=trust)


def policy_tensors(checkpoint: Checkpoint) -> dict[str, Tensor]:
    """Return the model's parameters in a checkpoint of either kind."""
    kind = checkpoint.metadata.get("kind")
    if kind not in _KINDS:
        raise CheckpointError(f"{checkpoint.path} is neither a policy nor a learner's checkpoint of Surreal")
    if kind == "policy":
        return checkpoint.tensors
    return {
        name.removeprefix(_MODEL_PREFIX): tensor
        for name, tensor in checkpoint.tensors.items()
        if name.startswith(_MODEL_PREFIX)
    }


def policy_header(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return the model's header in a checkpoint of either kind, {} if it has none."""
    metadata = checkpoint.metadata
    holder = metadata.get("state") if metadata.get("kind") == "learner" else metadata
    header = holder.get("model") if isinstance(holder, dict) else None
    return header if isinstance(header, dict) else {}
