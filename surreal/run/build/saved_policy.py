"""A saved policy: an evaluation's `best.safetensors`, the policy in a checkpoint, an export, or a pretrained one.

Read by `surreal play`, by the check after a run, and by processes that start from `checkpoint.restore`.

Pretrained policies have the names of their presets, as in `surreal.load("cartpole-ppo")`. A folder, or an https
address, has them as NAME.safetensors, next to `index.json` with their digests:

    {"version": 1, "policies": {"cartpole-ppo": {"sha256": "9f86d081...", "mean_return": 500.0, ...}, ...}}

`make policies` writes both. A file is read whole and compared with its digest before it is parsed. Parsing it executes
no code.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from http.client import HTTPException
from pathlib import Path
from typing import IO, Annotated, Any, Literal
from urllib.error import URLError
from urllib.request import HTTPRedirectHandler, Request, build_opener

from pydantic import BaseModel, Field, ValidationError
from torch import Tensor

import surreal
from surreal.agent.exported import FORMATS, ExportedFile
from surreal.base.checkpoint import Checkpoint, open_checkpoint, save_checkpoint
from surreal.base.checkpoint.format import decode_checkpoint
from surreal.base.errors import CheckpointError, ConfigError
from surreal.base.system.files import write_whole
from surreal.config import Config
from surreal.config.loading import from_plain
from surreal.config.problems import explain, nearest
from surreal.run.build.construct import trusted_config
from surreal.run.process.finding import named_folder
from surreal.run.process.registry import plain_config
from surreal.run.process.run_folder import RUN_NAME, RUNS_FOLDER, newest_checkpoint

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
    """Return the file to read: of a run (folder, name or id) the best policy or newest checkpoint, else `source`."""
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


#: Folder or https address, unless a caller names one; without both, the policies of the installation.
VARIABLE = "SURREAL_POLICIES"
INDEX_NAME = "index.json"
#: Largest policy, and largest index, bytes.
MAX_BYTES = 1_000_000
_TIMEOUT_S = 30.0


class PolicyEntry(BaseModel):
    """A policy in the index."""

    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    mean_return: float  #: over fresh episodes
    standard_error: float
    episodes: int
    env_steps: int  #: of the run that it comes from
    seed: int


class PolicyIndex(BaseModel):
    """The content of `index.json`."""

    version: Literal[1] = 1
    policies: dict[Annotated[str, Field(pattern="^[a-z0-9]+(-[a-z0-9]+)*$")], PolicyEntry]


def read_pretrained(name: str, place: str | None = None) -> Checkpoint:
    """Read a policy and verify its digest.

    Args:
        name: name of a preset.
        place: folder or https address; None is that of `SURREAL_POLICIES`, otherwise the installation's.

    Returns:
        The checkpoint, whose `path` is the name.

    Raises:
        CheckpointError: the index or the file is missing, too large, damaged, or cannot be reached.
        ConfigError: the place has no such policy, or is neither a folder nor an https address.
    """
    place = place or os.environ.get(VARIABLE) or str(installed_folder())
    known = read_index(place).policies
    if name not in known:
        similar = nearest(name, [*known, *(path.parent.name for path in RUNS_FOLDER.glob(f"*/{RUN_NAME}"))])
        advice = f"did you mean {similar}?" if similar else f"there are policies for {', '.join(sorted(known))}"
        raise ConfigError(f"{name} is neither a run below {RUNS_FOLDER} nor a policy of {place}; {advice}")
    file_name = f"{name}.safetensors"
    data = _read(place, file_name)
    path = f"{place.rstrip('/')}/{file_name}"
    digest = hashlib.sha256(data).hexdigest()
    if digest != known[name].sha256:
        problem = f"{path} is damaged, or is not the file of the index"
        raise CheckpointError(f"{problem}: its SHA-256 digest is {digest}, and {INDEX_NAME} has {known[name].sha256}")
    return replace(decode_checkpoint(data, path), path=name)


def read_index(place: str) -> PolicyIndex:
    """Read the index of a folder or an https address."""
    data = _read(place, INDEX_NAME)
    try:
        return PolicyIndex.model_validate_json(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise CheckpointError(f"{place.rstrip('/')}/{INDEX_NAME} cannot be used: {where}: {first['msg']}") from error


def installed_folder() -> Path:
    """Return the folder of the policies that are installed: inside of the package, or next to it in a clone."""
    package = Path(surreal.__file__).resolve().parent
    inside = package / "run" / "build" / "policies"
    return inside if inside.is_dir() else package.parent / "policies"


def _read(place: str, name: str) -> bytes:
    path = f"{place.rstrip('/')}/{name}"
    if "://" in place and not place.startswith("https://"):
        problem = "pretrained policies are read from a folder or an https address"
        raise ConfigError(f"{problem}, but {VARIABLE} or `policies` is {place}", key=VARIABLE)
    try:
        with _open(path) as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError as error:
        raise CheckpointError(f"{path} does not exist; {VARIABLE} names the place of pretrained policies") from error
    except (OSError, HTTPException, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    if len(data) > MAX_BYTES:
        raise CheckpointError(f"{path} has more than {MAX_BYTES:,} bytes, which is the limit of a pretrained policy")
    return data


def _open(path: str) -> IO[bytes]:
    if "://" not in path:
        return Path(path).expanduser().open("rb")
    opened: IO[bytes] = build_opener(_HttpsOnly).open(path, timeout=_TIMEOUT_S)
    return opened


class _HttpsOnly(HTTPRedirectHandler):
    """Refuses to leave https."""

    def redirect_request(self, req: Request, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Request | None:
        if not newurl.startswith("https://"):
            raise URLError(f"it redirects to {newurl}, which is not https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)
