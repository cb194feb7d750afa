from __future__ import annotations

import contextlib
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surreal.base.errors import CodecError
from surreal.base.metrics import summarize
from surreal.distributed.telemetry.records import (
    MAX_ENTRY_BYTES,
    MAX_READ_BYTES,
    MAX_VALUES,
    decode_entry,
    decode_number,
    encode_histogram,
    encode_log,
    encode_metrics,
    encode_number,
    entry_fields,
    metric_name,
    shorten,
)
from tests.examples import examples


def on_wire(lines: list[bytes], /, **changes: bytes) -> dict[bytes, bytes]:
    fields = entry_fields(
        process="agent-0-host-1-ab", name="agent-0", role="agent", sequence=3, offset_s=-1.5, lines=lines
    )
    return {key.encode(): value for key, value in (fields | changes).items()}


def test_entry_survives_the_round_trip() -> None:
    lines = [encode_log(time_s=10.5, level="INFO", logger="a.b", message="grüße\n\x00", exception="Traceback")]
    lines += encode_metrics(time_s=11.0, step=7, values={"agent/x": 1.5, "agent/bad": math.nan, "agent/up": math.inf})
    histogram = summarize(np.arange(5.0), bins=2)
    lines.append(encode_histogram(time_s=12.0, step=8, name="agent/h", histogram=histogram))
    entry = decode_entry(on_wire(lines))
    assert entry[:5] == ("agent-0-host-1-ab", "agent-0", "agent", 3, -1.5)
    assert entry.skipped == 0
    log, metrics, binned = entry.lines
    assert log["message"] == "grüße\n\x00"
    assert log["exception"] == "Traceback"
    assert metrics["step"] == 7
    assert metrics["values"]["agent/x"] == 1.5
    assert math.isnan(metrics["values"]["agent/bad"])
    assert metrics["values"]["agent/up"] == math.inf
    np.testing.assert_array_equal(binned["histogram"].counts, histogram.counts)
    assert binned["histogram"][2:] == histogram[2:]


@given(st.floats())
def test_every_number_is_strict_json_and_reads_back(value: float) -> None:
    text = json.dumps(encode_number(value), allow_nan=False)
    np.testing.assert_equal(decode_number(json.loads(text)), value)
    np.testing.assert_equal(float(json.loads(text)), value)


@pytest.mark.parametrize("value", [None, True, "1", "NaN", [], {}, 10**400])
def test_what_is_no_number_is_refused(value: object) -> None:
    with pytest.raises(CodecError):
        decode_number(value)


def test_long_texts_lose_their_middle_and_fit_an_entry() -> None:
    text = shorten("a" * 500 + "b" * 500, 100)
    assert len(text) <= 100
    assert text.startswith("aaa")
    assert text.endswith("bbb")
    for filling in ("x", "\x00", "\U0001f600", "\ud800"):
        line = encode_log(time_s=0.0, level="INFO", logger="x", message=filling * 10**5, exception=filling * 10**5)
        assert len(line) < MAX_ENTRY_BYTES
        assert decode_entry(on_wire([line])).skipped == 0


def test_many_metrics_are_split_into_lines_that_fit() -> None:
    values = {metric_name("n" * 300 + str(i), "agent"): float(i) for i in range(3)}
    assert all(len(name) <= 130 for name in values)
    lines = encode_metrics(time_s=0.0, step=0, values={f"agent/{'n' * 100}{i}": 0.1 for i in range(450)})
    assert len(lines) == 3
    assert all(len(line) < MAX_ENTRY_BYTES for line in lines)
    assert len(decode_entry(on_wire(lines[:1])).lines[0]["values"]) == MAX_VALUES


@pytest.mark.parametrize(
    ("given_name", "full"),
    [
        ("score", "rlx/score"),
        ("game/score", "game/score"),
        ("act latency", "rlx/act_latency"),
        ("", "rlx/unnamed"),
        ("a/b\n\x1b", "a/b__"),
        ("/x/", "rlx/x"),
    ],
)
def test_bare_metric_names_belong_to_the_role(given_name: str, full: str) -> None:
    assert metric_name(given_name, "rlx") == full


BAD_LINES = [
    b"",
    b"{",
    b"[]",
    b"\xff",
    b"[" * 5000,
    b'{"kind":"log"}',
    b'{"kind":"log","time":1e300,"message":"x"}',
    b'{"kind":"log","time":1,"message":3}',
    b'{"kind":"other","time":1,"step":1}',
    b'{"kind":"metrics","time":1,"step":-1,"values":{}}',
    b'{"kind":"metrics","time":1,"step":1,"values":[]}',
    b'{"kind":"metrics","time":1,"step":1,"values":{"a/b":"c"}}',
    b'{"kind":"metrics","time":1,"step":1e3,"values":{}}',
    b'{"kind":"metrics","time":1,"step":' + b"9" * 5000 + b',"values":{}}',
    b'{"kind":"histogram","time":1,"step":1,"name":"a","edges":[1],"counts":[1]}',
    b'{"kind":"histogram","time":1,"step":1,"name":"a","edges":[1,"inf"],"counts":[1],"low":0,"high":0,"size":1,'
    b'"total":1,"total_squares":1}',
]


@pytest.mark.parametrize("line", BAD_LINES)
def test_a_bad_line_is_counted_and_its_neighbours_are_kept(line: bytes) -> None:
    good = encode_log(time_s=1.0, level="INFO", logger="x", message="kept")
    entry = decode_entry(on_wire([good, line, good]))
    assert [item["message"] for item in entry.lines] == ["kept", "kept"]
    assert entry.skipped == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"process": b"../../etc/passwd"},
        {"process": b""},
        {"process": b"\xff"},
        {"process": b"x" * 201},
        {"seq": b"0"},
        {"seq": b"-3"},
        {"seq": b"many"},
        {"offset": b"nan"},
        {"offset": b""},
        {"lines": b"x" * (MAX_READ_BYTES + 1)},
    ],
)
def test_a_bad_entry_is_refused(changes: dict[str, bytes]) -> None:
    with pytest.raises(CodecError):
        decode_entry(on_wire([], **changes))


def test_an_entry_without_a_field_is_refused() -> None:
    for missing in (b"process", b"name", b"role", b"seq", b"offset", b"lines"):
        fields = on_wire([])
        del fields[missing]
        with pytest.raises(CodecError):
            decode_entry(fields)


@examples(200)
@given(st.dictionaries(st.sampled_from([b"process", b"name", b"role", b"seq", b"offset", b"lines"]), st.binary()))
def test_random_bytes_raise_nothing_but_codec_error(fields: dict[bytes, bytes]) -> None:
    with contextlib.suppress(CodecError):
        decode_entry(on_wire([]) | fields)
