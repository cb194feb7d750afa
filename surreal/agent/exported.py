"""Acting by a file that `surreal export` wrote, with TorchScript or onnxruntime.

    file = ExportedFile("best.onnx")
    outputs = file.run({"obs": obs})              # arrays by name, all with a batch axis
    outputs["action"]

`surreal.run` makes the `ExportedAgent`, and `surreal.plugins.export` writes the files. Programs without Surreal call
the runtime directly, with the same names; see docs/deployment.md.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from surreal.agent.base import ActContext, Agent
from surreal.agent.slots import SlotMemory
from surreal.base import tree
from surreal.base.errors import CheckpointError
from surreal.base.pytorch import Module
from surreal.base.specs import ObsSpec
from surreal.base.system.program import install_command
from surreal.base.types import Obs

#: Formats by the ending of their files' names.
FORMATS: Mapping[str, str] = {".pt": "torchscript", ".onnx": "onnx"}
#: Inputs in addition to the observation, and the output in addition to the action.
MASK, STATE, NEXT_STATE = "action_mask", "state", "next_state"
#: Key of the file's JSON metadata; see `surreal.plugins.export.exporter`.
METADATA = "surreal"
#: Version of that JSON; files of other versions are refused.
FORMAT_VERSION = 1

Arrays = Mapping[str, NDArray[Any]]


class ExportedFile:
    """An exported policy and its `metadata`, see `surreal.plugins.export.exporter`.

    Raises:
        CheckpointError: it is missing, damaged, or was not written by `surreal export`; or onnxruntime is missing.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if not self.path.is_file():
            raise CheckpointError(f"policy {self.path} does not exist")
        opened = _open_torchscript if FORMATS[self.path.suffix] == "torchscript" else _open_onnx
        self._run, text = opened(self.path)
        try:
            self.metadata: dict[str, Any] = json.loads(text)
            is_known = self.metadata["format_version"] == FORMAT_VERSION
        except (ValueError, TypeError, KeyError) as error:
            raise CheckpointError(f"{self.path} was not written by `surreal export`: it has no metadata") from error
        if not is_known:
            found = self.metadata["format_version"]
            raise CheckpointError(f"{self.path} is of format version {found}; this Surreal reads {FORMAT_VERSION}")

    @property
    def inputs(self) -> list[dict[str, Any]]:
        """Name, shape without the batch axis and dtype of each input."""
        return list(self.metadata["inputs"])

    @property
    def outputs(self) -> list[dict[str, Any]]:
        """The same of each output, and the space of actions."""
        return list(self.metadata["outputs"])

    def run(self, inputs: Arrays) -> dict[str, NDArray[Any]]:
        """Compute all outputs for a batch, [B, *shape] by name; `action_mask` may be left out."""
        return self._run(inputs)


def _open_torchscript(path: Path) -> tuple[Callable[[Arrays], dict[str, NDArray[Any]]], str]:
    extra = {f"{METADATA}.json": ""}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # torch would rather have torch.export
            module: Any = torch.jit.load(path, map_location="cpu", _extra_files=extra)  # type: ignore[no-untyped-call]
    except (RuntimeError, ValueError) as error:
        raise _damaged(path, error) from error
    text: str | bytes = extra[f"{METADATA}.json"]

    def run(inputs: Arrays) -> dict[str, NDArray[Any]]:
        with torch.inference_mode():
            outputs = module({name: torch.from_numpy(np.ascontiguousarray(each)) for name, each in inputs.items()})
        return {name: tensor.numpy() for name, tensor in outputs.items()}

    return run, text if isinstance(text, str) else text.decode(errors="replace")


def _open_onnx(path: Path) -> tuple[Callable[[Arrays], dict[str, NDArray[Any]]], str]:
    try:
        import onnxruntime
    except ImportError as error:
        raise CheckpointError(f"{path} needs onnxruntime; run: {install_command('onnx')}") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3  # errors come as exceptions
    try:
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # of classes that its binary library makes
        raise _damaged(path, error) from error
    names = [output.name for output in session.get_outputs()]

    def run(inputs: Arrays) -> dict[str, NDArray[Any]]:
        return dict(zip(names, session.run(names, dict(inputs)), strict=True))

    return run, session.get_modelmeta().custom_metadata_map.get(METADATA, "")


def _damaged(path: Path, error: Exception) -> CheckpointError:
    return CheckpointError(f"policy {path} is damaged: {str(error).strip().splitlines()[0][:200]}")


class ExportedAgent(Agent):
    """An agent that never explores, over a file for these observations, which are not raw; else `CheckpointError`."""

    def __init__(self, file: ExportedFile, *, obs_spec: ObsSpec | None) -> None:
        super().__init__(Module(), obs_spec=obs_spec)
        self._file = file
        described = [each for each in file.inputs if each["name"] not in (MASK, STATE)]
        self._names = [each["name"] for each in described]
        wanted = [(each["shape"], each["dtype"]) for each in described]
        given = [] if obs_spec is None else [(list(leaf.shape), leaf.dtype.name) for leaf in obs_spec.leaves]
        if wanted != given:
            raise CheckpointError(f"{file.path} is for observations {wanted}, but here they are {given or 'raw'}")
        self._takes_mask = any(each["name"] == MASK for each in file.inputs)
        self._actions = [each for each in file.outputs if each["name"] != NEXT_STATE]
        state = next((each for each in file.inputs if each["name"] == STATE), None)
        self._states = None if state is None else SlotMemory(tuple(state["shape"]), torch.device("cpu"))

    def _act(self, obs: Obs, explore: NDArray[np.bool_], context: ActContext) -> NDArray[Any]:
        leaves = [leaf.numpy() for leaf in tree.leaves(obs)]
        inputs = dict(zip(self._names, leaves, strict=True))
        if self._takes_mask and context.action_mask is not None:
            inputs[MASK] = context.action_mask
        if self._states is not None:
            inputs[STATE] = self._states.take(context.slots, context.is_first).numpy()
        outputs = self._file.run(inputs)
        if self._states is not None:
            self._states.put(context.slots, torch.from_numpy(outputs[NEXT_STATE]))
        return self._flat([outputs[each["name"]] for each in self._actions])

    def _flat(self, actions: list[NDArray[Any]]) -> NDArray[Any]:
        """Turn the environment's actions back into an agent's: counted from 0, and in one array."""
        found = [
            action - np.asarray(each["start"]) if "start" in each else action
            for each, action in zip(self._actions, actions, strict=True)
        ]
        if len(found) == 1:
            return found[0]
        return np.concatenate([action.reshape(len(action), -1) for action in found], axis=1)
