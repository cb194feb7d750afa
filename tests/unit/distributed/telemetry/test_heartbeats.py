from __future__ import annotations

import json
import math
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surreal.base.errors import CodecError
from surreal.base.metrics import Reading
from surreal.distributed.telemetry.heartbeats import (
    MAX_AHEAD,
    Heartbeat,
    newest_version,
    parse_heartbeats,
    process_id,
)


def beat(**changes: object) -> Heartbeat:
    content: dict[str, object] = {
        "id": "a",
        "role": "agent",
        "name": "agent-0",
        "pid": 1,
        "host": "h",
        "started": 900.0,
        "time": 1000.0,
    }
    return Heartbeat(**(content | changes))  # type: ignore[arg-type]


def test_heartbeat_survives_the_round_trip_with_its_age() -> None:
    original = beat(
        version=4, global_step=10**12, metrics={"a/b": 1.5, "a/inf": math.inf}, warning="full", warned=990.0,
        reading=Reading(998.5, 70, {"a/loss": math.inf}),
    )  # fmt: skip
    decoded = Heartbeat.decode(original.encode(), now_s=1003.0)
    assert decoded.age_s == 3.0
    assert decoded.metrics == original.metrics
    assert decoded.reading == original.reading
    assert (decoded.version, decoded.global_step, decoded.id) == (4, 10**12, "a")
    assert (decoded.warning, decoded.warned) == ("full", 990.0)


@pytest.mark.parametrize(("now_s", "is_alive"), [(1000.0, True), (1009.0, True), (1011.0, False), (900.0, False)])
def test_only_a_fresh_heartbeat_is_alive(now_s: float, is_alive: bool) -> None:
    assert Heartbeat.decode(beat().encode(), now_s=now_s).is_alive(10.0) is is_alive


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff",
        b"[" * 100_000,
        beat().encode().replace(b"1000.0", b'"nan"'),
        beat().encode().replace(b'"pid":1', b'"pid":Infinity'),
        beat().encode().replace(b'"metrics":{}', b'"metrics":[1]'),
        beat().encode().replace(b'"metrics":{}', b'"metrics":{"a":"b"}'),
        beat().encode().replace(b'"reading":[0.0,0,{}]', b'"reading":[0.0,0]'),
        beat().encode().replace(b'"reading":[0.0,0,{}]', b'"reading":[0.0,null,{}]'),
        b" " * (1 << 21),
    ],
)
def test_what_is_no_heartbeat_is_refused_and_left_out(data: bytes) -> None:
    with pytest.raises(CodecError):
        Heartbeat.decode(data, now_s=0.0)
    assert [found.name for found in parse_heartbeats([data, beat().encode()], now_s=1.0)] == ["agent-0"]


@given(st.binary())
def test_random_bytes_raise_nothing_but_codec_error(data: bytes) -> None:
    assert parse_heartbeats([data], now_s=0.0) == []


def test_newest_version_is_the_largest_of_all_that_are_near_what_is_known() -> None:
    assert newest_version([], 0) == 0
    assert newest_version([beat(version=3), beat(version=9), beat()], 0) == 9
    assert newest_version([beat(version=3)], 5) == 5
    assert newest_version([beat(version=7 + MAX_AHEAD), beat(version=8 + MAX_AHEAD)], 7) == 7 + MAX_AHEAD


@pytest.mark.parametrize("field", ["version", "global_step"])
@pytest.mark.parametrize("value", [-1, 2**53 + 1, 0.5, True, "7", None, float("nan")])
def test_heartbeat_with_an_impossible_count_is_refused(field: str, value: Any) -> None:
    content = {**json.loads(beat().encode()), field: value}
    with pytest.raises(CodecError, match="not a heartbeat"):
        Heartbeat.decode(json.dumps(content).encode(), now_s=0.0)


def test_process_ids_are_unique_and_fit_anywhere() -> None:
    ids = {process_id("agent", "agent-0", "my host", 12) for _ in range(100)}
    assert len(ids) == 100
    assert all(re.fullmatch(r"agent-0-my_host-12-[0-9a-f]{8}", found) for found in ids)
    assert process_id("agent", "left", "h", 1).startswith("agent-left-h-1-")
    assert re.fullmatch(r"[A-Za-z0-9_.-]{1,200}", process_id("r", "ä/" * 300, "h", 1))
