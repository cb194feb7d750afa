"""Wire format of the run's log stream, which telemetry writes and the collector reads. Pure: no client, no clock.

One stream entry is the report of one process about one interval:

    process   id of the process, unique forever
    name      name of the process; several in a row may share it ("agent-0", restarted)
    role      agent, learner, eval, ...
    seq       1, 2, 3, ... within this process: a reader drops duplicates and notices gaps
    offset    seconds to add to the process's clock to get that of the Redis server
    lines     JSON objects, one per line, each with `kind` and `time`

Kinds: `log` (level, logger, message, exception), `metrics` (step, values), `histogram` (step, name, and the fields of
`surreal.base.metrics.Histogram`). JSON has no NaN: numbers that are not finite travel as "nan", "inf" and "-inf", which
`float()` reads. A reader trusts nothing: it checks sizes and types, and skips and counts bad lines.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from surreal.base.errors import CodecError
from surreal.base.metrics import Histogram

#: Most bytes of lines in an entry of a writer, and in one that a reader accepts.
MAX_ENTRY_BYTES = 64 << 10
MAX_READ_BYTES = 4 * MAX_ENTRY_BYTES
#: Longest message and exception text, in characters; longer ones lose their middle.
MAX_MESSAGE_CHARS = 4096
MAX_EXCEPTION_CHARS = 8192
#: Most metrics in one line, and the longest name of one, so that a line stays far below MAX_ENTRY_BYTES.
MAX_VALUES = 200
MAX_NAME_CHARS = 120

_PROCESS_ID = re.compile(r"[A-Za-z0-9_.-]{1,200}")
_MAX_STEP = 1 << 62


class LogEntry(NamedTuple):
    """A decoded entry of the log stream."""

    process: str
    name: str
    role: str
    sequence: int
    offset_s: float
    lines: list[dict[str, Any]]
    skipped: int  #: number of invalid lines


def shorten(text: str, limit: int) -> str:
    """Cut the middle out of a text longer than `limit` characters."""
    if len(text) <= limit:
        return text
    half = (limit - 40) // 2
    return f"{text[:half]} ... {len(text) - 2 * half} characters ... {text[-half:]}"


def metric_name(name: str, role: str) -> str:
    """Return a metric's full name: a bare name belongs to the role; other characters become underscores."""
    clean = re.sub(r"[^\w./:-]", "_", name)[:MAX_NAME_CHARS].strip("/")
    return clean if "/" in clean else f"{role}/{clean or 'unnamed'}"


def encode_number(value: float) -> float | str:
    """Return a number's form in JSON."""
    number = float(value)
    return number if math.isfinite(number) else str(number)


def decode_number(value: object) -> float:
    """Undo `encode_number`; raises `CodecError` if it is neither a number nor one of the three words."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise CodecError(f"{type(value).__name__} is not a number")
    if isinstance(value, str) and value not in ("nan", "inf", "-inf"):
        raise CodecError("text is not a number")
    try:
        return float(value)
    except OverflowError as error:
        raise CodecError("number is too large") from error


def encode_line(record: Mapping[str, object]) -> bytes:
    """Encode one record as a line of strict JSON, without its newline."""
    text = json.dumps(record, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    return text.encode("utf-8", "replace")


def encode_log(*, time_s: float, level: str, logger: str, message: str, exception: str = "") -> bytes:
    """Encode a log record; long texts are shortened."""
    record: dict[str, object] = {"kind": "log", "time": time_s, "level": level, "logger": logger}
    record["message"] = shorten(message, MAX_MESSAGE_CHARS)
    if exception:
        record["exception"] = shorten(exception, MAX_EXCEPTION_CHARS)
    line = encode_line(record)
    if len(line) > MAX_ENTRY_BYTES:  # many characters that need an escape of six bytes each
        record["message"] = shorten(message, 512)
        record.pop("exception", None)
        line = encode_line(record)
    return line


def encode_metrics(*, time_s: float, step: int, values: Mapping[str, float]) -> list[bytes]:
    """Encode scalars of one time and step, at most MAX_VALUES per line."""
    items = list(values.items())
    return [
        encode_line(
            {
                "kind": "metrics",
                "time": time_s,
                "step": step,
                "values": {name: encode_number(value) for name, value in items[begin : begin + MAX_VALUES]},
            }
        )
        for begin in range(0, len(items), MAX_VALUES)
    ]


def encode_histogram(*, time_s: float, step: int, name: str, histogram: Histogram) -> bytes:
    """Encode a histogram as one line, with its bins and sums."""
    head = {"kind": "histogram", "time": time_s, "step": step, "name": name}
    return encode_line(head | histogram_fields(histogram))


def histogram_fields(histogram: Histogram) -> dict[str, Any]:
    """Return the form of a histogram in JSON."""
    return {
        "edges": histogram.edges.tolist(),
        "counts": [encode_number(value) for value in histogram.counts],
        "low": encode_number(histogram.low),
        "high": encode_number(histogram.high),
        "size": histogram.size,
        "total": encode_number(histogram.total),
        "total_squares": encode_number(histogram.total_squares),
    }


def entry_fields(
    *, process: str, name: str, role: str, sequence: int, offset_s: float, lines: Sequence[bytes] | bytes
) -> dict[str, bytes]:
    """Return the fields of one stream entry."""
    return {
        "process": process.encode(),
        "name": name.encode(),
        "role": role.encode(),
        "seq": str(sequence).encode(),
        "offset": f"{offset_s:.3f}".encode(),
        "lines": lines if isinstance(lines, bytes) else b"\n".join(lines),
    }


def decode_entry(fields: Mapping[bytes, bytes]) -> LogEntry:
    """Check and decode an entry; raises `CodecError` if all of it is invalid. Single bad lines are only counted."""
    try:
        process, name, role = (fields[key].decode() for key in (b"process", b"name", b"role"))
        sequence, offset_s = int(fields[b"seq"][:20]), float(fields[b"offset"][:40])
        payload = fields[b"lines"]
    except (KeyError, ValueError) as error:  # UnicodeDecodeError is a ValueError
        raise CodecError(f"log entry without a usable field: {error!r}") from error
    if not _PROCESS_ID.fullmatch(process):
        raise CodecError(f"log entry of a process with the id {process[:80]!r}")
    if sequence < 1 or not math.isfinite(offset_s):
        raise CodecError(f"log entry of {process} with sequence {sequence}, clock offset {offset_s}")
    if len(payload) > MAX_READ_BYTES:
        raise CodecError(f"log entry of {process} has {len(payload)} bytes; the limit is {MAX_READ_BYTES}")
    lines, skipped = [], 0
    for line in payload.split(b"\n") if payload else []:
        try:
            lines.append(_check_line(json.loads(line), role))
        except (CodecError, ValueError, RecursionError):
            skipped += 1
    return LogEntry(process, name, role, sequence, offset_s, lines, skipped)


def _check_line(line: object, role: str) -> dict[str, Any]:
    if not isinstance(line, dict):
        raise CodecError("a line is not an object")
    kind, time_s = line.get("kind"), decode_number(line.get("time"))
    if not 0 <= time_s < 1e11:  # the year 5138; beyond it dates overflow
        raise CodecError(f"time {time_s}")
    checked: dict[str, Any] = {"kind": kind, "time": time_s}
    if kind == "log":
        for key in ("level", "logger", "message", "exception"):
            checked[key] = _text(line.get(key, ""))
        return checked
    step = line.get("step")
    if isinstance(step, bool) or not isinstance(step, int) or not 0 <= step <= _MAX_STEP:
        raise CodecError("step is not a count")
    checked["step"] = step
    if kind == "metrics":
        values = line.get("values")
        if not isinstance(values, dict) or len(values) > MAX_VALUES:
            raise CodecError("values are not a mapping")
        checked["values"] = {metric_name(name, role): decode_number(value) for name, value in values.items()}
    elif kind == "histogram":
        checked["name"] = metric_name(_text(line.get("name")), role)
        checked["histogram"] = _check_histogram(line)
    else:
        raise CodecError("unknown kind")
    return checked


def _check_histogram(line: Mapping[str, Any]) -> Histogram:
    edges, counts = (
        np.array([decode_number(value) for value in line[key]]) if isinstance(line.get(key), list) else np.empty(0)
        for key in ("edges", "counts")
    )
    if len(counts) < 1 or len(edges) != len(counts) + 1 or not np.isfinite(edges).all():
        raise CodecError("a histogram's edges and counts do not fit")
    low, high, size, total, squares = (
        decode_number(line.get(key)) for key in ("low", "high", "size", "total", "total_squares")
    )
    if not 0 <= size <= _MAX_STEP:
        raise CodecError("a histogram's size")
    return Histogram(edges, counts, low, high, int(size), total, squares)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise CodecError("text expected")
    return value.encode("utf-8", "replace").decode()  # lone surrogates cannot be written to a file
