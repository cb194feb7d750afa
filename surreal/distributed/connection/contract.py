"""Contracts that all processes of a run must agree on, as JSON in Redis: the first one writes it, the others compare.

Broadcasters write the model contract of a policy, and listeners compare it. `describe_difference` also compares the
data contract of a stream. A contract expires unless its writer renews it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from redis.exceptions import RedisError

from surreal.base.errors import ContractError
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.connection.retry import is_out_of_memory

#: Lifetime of a contract after its last renewal, s.
CONTRACT_TTL_S = 60.0
_TTL_MS = int(1000 * CONTRACT_TTL_S)
_MAX_BYTES = 16 << 20
_ABSENT = object()


def register_model_contract(client: RedisClient, key: str, contract: Mapping[str, Any]) -> None:
    """Store the contract of a model's parameters if there is none, else compare it and renew its lifetime. `key` is
    `PolicyKeys.contract`.

    Call it again within `CONTRACT_TTL_S`. May be repeated, so it can run under `client.retry`. The `ContractError` of
    another model names the first parameter that differs, and its `diff` has all differences.
    """
    _compare(_exchange(client, key, contract), contract, client.run)


def compare_model_contract(client: RedisClient, key: str, contract: Mapping[str, Any]) -> None:
    """Compare a model with the run's, if there is one. Arguments and errors are those of `register_model_contract`."""
    stored: Any = client.redis.get(key)
    if stored is not None:
        _compare(_parse(stored, key), contract, client.run)


def _compare(theirs: Any, contract: Mapping[str, Any], run: str) -> None:
    difference = describe_difference(theirs, json.loads(json.dumps(contract)))
    if difference:
        sentence = describe_model_difference(theirs if isinstance(theirs, dict) else {}, contract, run)
        raise ContractError(
            f"{sentence}; processes of a run need the same model, else use another run", diff=difference
        )


def describe_difference(theirs: Any, ours: Any) -> tuple[str, ...]:
    """List the differences between two JSON values, one line each: `path.to.entry: theirs -> ours`."""
    differing = _walk(theirs, ours, "")
    return tuple(f"{path or '(all)'}: {_show(first)} -> {_show(second)}" for path, first, second in differing)


def describe_model_difference(theirs: Mapping[str, Any], local: Mapping[str, Any], run: str) -> str:
    """Describe the first parameter that differs: `fc1.weight is [64, 4] here and [128, 4] in run R`."""
    names = [*local, *(name for name in theirs if name not in local)]
    differing = [name for name in names if theirs.get(name) != local.get(name)]
    name = differing[0] if differing else "(all)"
    here, there = local.get(name), theirs.get(name)
    if here is None:
        sentence = f"{name} is missing here and {_show_entry(there)} in run {run}"
    elif there is None:
        sentence = f"{name} is {_show_entry(here)} here and missing in run {run}"
    else:
        same_shape = here.get("shape") == there.get("shape")
        first, second = (_show_entry(entry, with_dtype=same_shape) for entry in (here, there))
        sentence = f"{name} is {first} here and {second} in run {run}"
    more = len(differing) - 1
    return f"{sentence} ({more} more differ)" if more > 0 else sentence


def _walk(theirs: Any, ours: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(theirs, Mapping) and isinstance(ours, Mapping):
        for name in sorted({*theirs, *ours}, key=str):
            below = f"{path}.{name}" if path else str(name)
            yield from _walk(theirs.get(name, _ABSENT), ours.get(name, _ABSENT), below)
    elif _has_mappings(theirs) and _has_mappings(ours):
        for i in range(max(len(theirs), len(ours))):
            first = theirs[i] if i < len(theirs) else _ABSENT
            second = ours[i] if i < len(ours) else _ABSENT
            yield from _walk(first, second, f"{path}[{i}]")
    elif _show(theirs) != _show(ours):  # as text, 1, 1.0 and true are different
        yield path, theirs, ours


def _has_mappings(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str) and any(isinstance(x, Mapping) for x in value)


def _show(value: Any) -> str:
    return "(absent)" if value is _ABSENT else json.dumps(value, sort_keys=True, ensure_ascii=False)


def _show_entry(entry: Any, *, with_dtype: bool = False) -> str:
    shape = entry.get("shape") if isinstance(entry, Mapping) else entry
    return f"{shape} {entry.get('dtype')}" if with_dtype and isinstance(entry, Mapping) else f"{shape}"


def _exchange(client: RedisClient, key: str, contract: Mapping[str, Any]) -> Any:
    """Store the contract or renew the stored one; return what is stored."""
    ours = json.dumps(contract, sort_keys=True)
    # One SET with NX and GET needs Redis 7. If the key expires between the two commands, the next pass sets it.
    for _ in range(3):
        try:
            if client.redis.set(key, ours, nx=True, px=_TTL_MS):
                break
        except RedisError as error:
            if not is_out_of_memory(error):
                raise  # a full Redis can still be read, and a later renewal stores the contract
        stored: Any = client.redis.get(key)
        if stored is not None:
            client.redis.pexpire(key, _TTL_MS)
            return _parse(stored, key)
    return json.loads(ours)


def _parse(stored: bytes, key: str) -> Any:
    if len(stored) > _MAX_BYTES:
        raise ContractError(f"{key} is {len(stored)} bytes; a contract has at most {_MAX_BYTES}")
    try:
        return json.loads(stored)
    except (ValueError, RecursionError) as error:
        raise ContractError(f"{key} is not JSON: {error}") from None
