"""The state of random generators as plain data, for a checkpoint's metadata.

Learners draw by seed and update, and need none of it (`surreal.learner.off_policy.noise`). It is for what draws one
number after the other: a replay's sampling, and a user's class that uses the global generators.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch


def random_state(generator: np.random.Generator) -> dict[str, Any]:
    """Give the states of a generator, which other threads may use meanwhile, and of the global ones; JSON-able."""
    bits = generator.bit_generator
    with bits.lock:
        own = _plain(bits.state)
    version, words, gauss = random.getstate()
    kind, keys, position, has_gauss, cached = np.random.get_state()  # noqa: NPY002 - not ours, but a user's
    state: dict[str, Any] = {
        "generator": own,
        "python": [version, list(words), gauss],
        "numpy": [kind, np.asarray(keys).tolist(), position, has_gauss, cached],
        "torch": _to_text(torch.get_rng_state()),
    }
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        state["cuda"] = [_to_text(device) for device in torch.cuda.get_rng_state_all()]
    return state


def set_random_state(state: Mapping[str, Any], generator: np.random.Generator) -> None:
    """Take over what `random_state` gave; nothing uses the generator meanwhile.

    Raises:
        ValueError: it is damaged, or of another kind of generator.
    """
    try:
        version, words, gauss = state["python"]
        python = (version, tuple(words), gauss)
        torch_state = _from_text(state["torch"])
        generator.bit_generator.state = state["generator"]
        np.random.set_state(tuple(state["numpy"]))  # noqa: NPY002
        random.setstate(python)
        torch.set_rng_state(torch_state)
        devices = [_from_text(text) for text in state.get("cuda", ())]
        if torch.cuda.is_available() and len(devices) == torch.cuda.device_count():
            torch.cuda.set_rng_state_all(devices)
    except (KeyError, TypeError, AttributeError, RuntimeError) as error:
        raise ValueError(f"the state of the random generators cannot be used: {error}") from error


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def _to_text(state: torch.Tensor) -> str:
    return base64.b64encode(state.cpu().numpy().tobytes()).decode()


def _from_text(text: str) -> torch.Tensor:
    return torch.from_numpy(np.frombuffer(base64.b64decode(text), np.uint8).copy())
