"""The part of a configuration that the processes of a run share: its fingerprint, and differences in words.

The first process stores the shared part (`Config.shared()`) in Redis; every other one compares its own with it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from surreal.config.yaml_tree import join

_ABSENT = object()


def fingerprint(shared: Mapping[str, Any]) -> str:
    """Return 16 hexadecimal digits that differ when the shared part differs, whatever the order of its keys."""
    text = json.dumps(shared, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def diff_shared(theirs: Mapping[str, Any], here: Mapping[str, Any]) -> tuple[str, ...]:
    """List the differences between two shared parts, one line each: `env.id: "CartPole-v1" -> "Acrobot-v1"`."""
    flat_theirs, flat_here = _flatten(theirs), _flatten(here)
    keys = sorted({*flat_theirs, *flat_here})
    # As text, 1 and 1.0 and true are three things, as for the fingerprint.
    shown = [(key, *(_show(flat.get(key, _ABSENT)) for flat in (flat_theirs, flat_here))) for key in keys]
    return tuple(f"{key}: {first} -> {second}" for key, first, second in shown if first != second)


def _flatten(value: Any, key: str = "") -> dict[str, Any]:
    if isinstance(value, Mapping) and value:
        return {path: leaf for name, child in value.items() for path, leaf in _flatten(child, join(key, name)).items()}
    if isinstance(value, list | tuple) and any(isinstance(item, Mapping) for item in value):
        return {path: leaf for i, child in enumerate(value) for path, leaf in _flatten(child, join(key, i)).items()}
    return {key: list(value) if isinstance(value, tuple) else value}


def _show(value: Any) -> str:
    return "(absent)" if value is _ABSENT else json.dumps(value, sort_keys=True, ensure_ascii=False)
