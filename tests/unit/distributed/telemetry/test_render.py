from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from surreal.base.metrics import summarize
from surreal.distributed.telemetry.records import (
    LogEntry,
    decode_entry,
    encode_histogram,
    encode_log,
    encode_metrics,
    entry_fields,
)
from surreal.distributed.telemetry.render import event_path, file_name, render_events, render_log, render_metrics


def entry_of(*lines: bytes, offset_s: float = 0.0) -> LogEntry:
    fields = entry_fields(process="p-1", name="agent-0", role="agent", sequence=1, offset_s=offset_s, lines=lines)
    return decode_entry({key.encode(): value for key, value in fields.items()})


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("agent-0", "agent-0"),
        ("../../etc/passwd", "_.._etc_passwd"),
        ("/abs", "_abs"),
        ("..", "unnamed"),
        ("", "unnamed"),
        ("-rf", "rf"),
        (".hidden", "hidden"),
        ("a\x00b\nc d", "a_b_c_d"),
        ("x" * 300, "x" * 80),
    ],
)
def test_a_process_name_becomes_a_harmless_file_name(name: str, expected: str) -> None:
    assert file_name(name) == expected


def test_log_records_are_lines_in_the_servers_time() -> None:
    line = encode_log(time_s=1.5, level="WARNING", logger="a.b", message="first\nsecond", exception="Trace\n  at x")
    text = render_log(entry_of(line, offset_s=60.0), is_new=True).decode()
    assert text == (
        "1970-01-01T00:01:01.500Z -------- process p-1 (agent)\n"
        "1970-01-01T00:01:01.500Z WARNING  a.b: first\n"
        "    second\n"
        "    Trace\n"
        "      at x\n"
    )


def test_a_message_cannot_pass_for_another_line_or_steer_a_terminal() -> None:
    message = "x\r2026-01-01 fake\x1b[2J\x85\u2028end\n1970 fake"
    lines = render_log(entry_of(encode_log(time_s=0.0, level="INFO\n", logger="\x07", message=message)), is_new=False)
    text = lines.decode()
    assert "\x1b" not in text
    assert "\r" not in text
    assert text.splitlines()[-1] == "    1970 fake"
    assert len(text.splitlines()) == len(text.split("\n")) - 1


def test_times_beyond_the_calendar_are_held_at_its_end() -> None:
    entry = entry_of(encode_log(time_s=9e10, level="INFO", logger="x", message="m"), offset_s=1e300)
    assert render_log(entry, is_new=False).startswith(b"5138-")


def test_metrics_are_strict_json_lines() -> None:
    histogram = summarize(np.arange(4.0), bins=2)
    lines = encode_metrics(time_s=5.0, step=7, values={"a/b": 1.0, "a/nan": math.nan})
    lines.append(encode_histogram(time_s=6.0, step=8, name="a/h", histogram=histogram))
    lines.append(encode_log(time_s=6.0, level="INFO", logger="x", message="elsewhere"))
    text = render_metrics(entry_of(*lines, offset_s=1.0), "agent-0").decode()

    def refuse(constant: str) -> float:
        raise AssertionError(constant)

    first, second = [json.loads(line, parse_constant=refuse) for line in text.splitlines()]
    assert first == {"time": 6.0, "process": "agent-0", "step": 7, "metrics": {"a/b": 1.0, "a/nan": "nan"}}
    assert second["histograms"]["a/h"]["counts"] == [2.0, 2.0]
    assert second["step"] == 8


def test_events_are_what_tensorboard_reads(tmp_path: Path) -> None:
    lines = encode_metrics(time_s=5.0, step=7, values={"a/b": 1.5, "a/nan": math.nan})
    lines.append(encode_histogram(time_s=6.0, step=8, name="a/h", histogram=summarize(np.arange(4.0), bins=2)))
    entry = entry_of(*lines, offset_s=1.0)
    events = read_events(render_events(entry, is_new=True) + render_events(entry, is_new=False))
    assert events[0].file_version == "brain.Event:2"
    assert len(events) == 5
    scalars, histogram = events[1], events[2]
    assert (scalars.step, scalars.wall_time) == (7, 6.0)
    assert scalars.summary.value[0].tag == "a/b"
    assert scalars.summary.value[0].simple_value == 1.5
    assert math.isnan(scalars.summary.value[1].simple_value)
    assert list(histogram.summary.value[0].histo.bucket) == [2.0, 2.0]
    assert list(histogram.summary.value[0].histo.bucket_limit) == [1.5, 3.0]


def test_an_entry_without_metrics_writes_no_events() -> None:
    entry = entry_of(encode_log(time_s=0.0, level="INFO", logger="x", message="m"))
    assert render_events(entry, is_new=True) == b""
    assert render_metrics(entry, "a") == b""
    assert "tfevents" in event_path("a")


def read_events(data: bytes) -> list:
    """Read the framing with checks of its own, and the messages with tensorboardX's classes."""
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.record_writer import masked_crc32c

    events = []
    while data:
        length = int.from_bytes(data[:8], "little")
        assert int.from_bytes(data[8:12], "little") == masked_crc32c(data[:8])
        body = data[12 : 12 + length]
        assert int.from_bytes(data[12 + length : 16 + length], "little") == masked_crc32c(body)
        events.append(Event.FromString(body))
        data = data[16 + length :]
    return events


def test_events_do_without_boto3_which_can_still_be_imported_later() -> None:
    script = """
import sys
from surreal.distributed.telemetry.render import scalar_event
assert scalar_event(0.0, 1, {"a": 1.0})
assert "boto3" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True)
