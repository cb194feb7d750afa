"""The files of a run's folder, rendered from one entry of the log stream: path -> bytes to append. Pure.

Names come from the network. They are cleaned before they become file names. Anything that could pass for another line,
or control a terminal, is escaped before it becomes a log line.
"""

from __future__ import annotations

import datetime
import json
import re
from typing import Any

from surreal.distributed.telemetry import event_file
from surreal.distributed.telemetry.records import LogEntry, encode_number

METRICS_PATH = "metrics.jsonl"
EVENT_NAME = "events.out.tfevents.0.surreal"

_CONTROL = re.compile(r"[^\S\n ]|[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def file_name(name: str) -> str:
    """Convert a process's name to a file name: without a path, not hidden, not long."""
    return re.sub(r"[^A-Za-z0-9_.-]", "_", name).lstrip(".-")[:80] or "unnamed"


def log_path(name: str) -> str:
    """Return the path of a process's log; `name` is a file name."""
    return f"logs/{name}.log"


def event_path(name: str) -> str:
    """Return the path of a process's TensorBoard events; `name` is a file name."""
    return f"tensorboard/{name}/{EVENT_NAME}"


def render_log(entry: LogEntry, *, is_new: bool) -> bytes:
    """Return an entry's log records as text; the process's id precedes its first entry."""
    text = []
    if is_new:
        time_s = entry.lines[0]["time"] + entry.offset_s if entry.lines else 0.0
        text.append(f"{_timestamp(time_s)} -------- process {entry.process} ({_clean(entry.role)})\n")
    text += [_log_text(line, entry.offset_s) for line in entry.lines if line["kind"] == "log"]
    return "".join(text).encode("utf-8", "replace")


def render_metrics(entry: LogEntry, name: str) -> bytes:
    """Return an entry's metrics as JSON lines: time, process, step, metrics or histograms."""
    text = []
    for line in entry.lines:
        if line["kind"] == "log":
            continue
        record: dict[str, Any] = {
            "time": round(line["time"] + entry.offset_s, 3),
            "process": name,
            "step": line["step"],
        }
        if line["kind"] == "metrics":
            record["metrics"] = {key: encode_number(value) for key, value in line["values"].items()}
        else:
            content = line["histogram"]
            record["histograms"] = {
                line["name"]: {
                    "edges": content.edges.tolist(),
                    "counts": [encode_number(value) for value in content.counts],
                    "low": encode_number(content.low),
                    "high": encode_number(content.high),
                    "size": content.size,
                    "total": encode_number(content.total),
                    "total_squares": encode_number(content.total_squares),
                }
            }
        text.append(json.dumps(record, allow_nan=False) + "\n")
    return "".join(text).encode()


def render_events(entry: LogEntry, *, is_new: bool) -> bytes:
    """Return an entry's metrics as TensorBoard records; `is_new`: the file has no header yet."""
    records = []
    for line in entry.lines:
        time_s = line["time"] + entry.offset_s
        if line["kind"] == "metrics":
            records.append(event_file.scalars(time_s, line["step"], line["values"]))
        elif line["kind"] == "histogram":
            records.append(event_file.histogram(time_s, line["step"], line["name"], line["histogram"]))
    if records and is_new:
        records.insert(0, event_file.header(entry.lines[0]["time"] + entry.offset_s))
    return b"".join(records)


def _log_text(line: dict[str, Any], offset_s: float) -> str:
    """Render one record: the first line has time, level and logger, further lines are indented."""
    text = f"{_timestamp(line['time'] + offset_s)} {_clean(line['level']):<8} {_clean(line['logger'])}: "
    body = _clean(line["message"])
    if line["exception"]:
        body += "\n" + _clean(line["exception"])
    return text + body.rstrip("\n").replace("\n", "\n    ") + "\n"


def _clean(text: str) -> str:
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def _timestamp(time_s: float) -> str:
    moment = datetime.datetime.fromtimestamp(min(max(time_s, 0.0), 1e11), datetime.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
