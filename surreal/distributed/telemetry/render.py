"""The files of a run's folder, rendered from entries of the log stream: path -> bytes to append. Pure.

Names come from the network. They are cleaned before they become file names. Anything that could pass for another line,
or control a terminal, is escaped before it becomes a log line.

TensorBoard events are TFRecords around tensorboardX's event messages. tensorboardX's own writer starts a thread and a
multiprocessing queue for each file, and can neither continue a file nor remove the bytes of a killed writer. It is
imported at the first event, because that takes a while, and without boto3, which takes 9 MB and only writes to S3.
Format: https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details
"""

from __future__ import annotations

import datetime
import json
import re
import struct
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from surreal.base.metrics import Histogram
from surreal.distributed.telemetry.records import LogEntry, encode_number, histogram_fields

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
            record["histograms"] = {line["name"]: histogram_fields(line["histogram"])}
        text.append(json.dumps(record, allow_nan=False) + "\n")
    return "".join(text).encode()


def render_events(entry: LogEntry, *, is_new: bool) -> bytes:
    """Return an entry's metrics as TensorBoard records; `is_new`: the file has no header yet."""
    records = []
    for line in entry.lines:
        time_s = line["time"] + entry.offset_s
        if line["kind"] == "metrics":
            records.append(scalar_event(time_s, line["step"], line["values"]))
        elif line["kind"] == "histogram":
            records.append(histogram_event(time_s, line["step"], line["name"], line["histogram"]))
    if records and is_new:
        records.insert(0, event_header(entry.lines[0]["time"] + entry.offset_s))
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


@cache
def _import_tensorboard() -> None:
    is_absent = "boto3" not in sys.modules
    if is_absent:
        # Its import fails then, and tensorboardX continues without.
        sys.modules["boto3"] = None  # type: ignore[assignment]
    try:
        import tensorboardX  # noqa: F401
    finally:
        if is_absent:
            del sys.modules["boto3"]


def event_header(time_s: float) -> bytes:
    """Return the record that every event file begins with."""
    return _event(time_s, file_version="brain.Event:2")


def scalar_event(time_s: float, step: int, values: Mapping[str, float]) -> bytes:
    """Return one event with many scalars."""
    _import_tensorboard()
    from tensorboardX.proto import summary_pb2

    summary = summary_pb2.Summary()
    for name, value in values.items():
        summary.value.add(tag=name, simple_value=value)
    return _event(time_s, step=step, summary=summary)


def text_event(time_s: float, name: str, content: str) -> bytes:
    """Return one event with a text, which TensorBoard shows as Markdown."""
    _import_tensorboard()
    from tensorboardX import summary

    return _event(time_s, summary=summary.text(name, content))


def hyperparameter_events(
    time_s: float, name: str, values: Mapping[str, float | str], metrics: Sequence[tuple[str, str]]
) -> bytes:
    """Return the events that describe a run to TensorBoard's table of hyperparameters.

    Each metric is the folder of its event file, next to this one, and its name.
    """
    _import_tensorboard()
    from tensorboardX.proto import api_pb2, plugin_hparams_pb2, summary_pb2

    start = plugin_hparams_pb2.SessionStartInfo(group_name=name, start_time_secs=time_s)
    infos = []
    for key, value in values.items():
        is_text = isinstance(value, str)
        setattr(start.hparams[key], "string_value" if is_text else "number_value", value)
        infos.append(api_pb2.HParamInfo(name=key, type="DATA_TYPE_STRING" if is_text else "DATA_TYPE_FLOAT64"))
    wanted = [api_pb2.MetricInfo(name=api_pb2.MetricName(group=group, tag=tag)) for group, tag in metrics]
    experiment = api_pb2.Experiment(hparam_infos=infos, metric_infos=wanted)
    parts = {"experiment": experiment, "session_start_info": start}
    records = []
    for tag, part in parts.items():
        content = plugin_hparams_pb2.HParamsPluginData(version=0, **{tag: part}).SerializeToString()
        message = summary_pb2.Summary()
        plugin = message.value.add(tag=f"_hparams_/{tag}").metadata.plugin_data
        plugin.plugin_name, plugin.content = "hparams", content
        records.append(_event(time_s, summary=message))
    return b"".join(records)


def histogram_event(time_s: float, step: int, name: str, content: Histogram) -> bytes:
    """Return one event with a histogram's bins and sums."""
    _import_tensorboard()
    from tensorboardX.proto import summary_pb2

    message = summary_pb2.HistogramProto(
        min=content.low,
        max=content.high,
        num=content.size,
        sum=content.total,
        sum_squares=content.total_squares,
        bucket_limit=content.edges[1:].tolist(),
        bucket=content.counts.tolist(),
    )
    summary = summary_pb2.Summary()
    summary.value.add(tag=name, histo=message)
    return _event(time_s, step=step, summary=summary)


def _event(time_s: float, **content: Any) -> bytes:
    """Make a TFRecord of one event message."""
    _import_tensorboard()
    from tensorboardX.proto import event_pb2
    from tensorboardX.record_writer import masked_crc32c

    data = event_pb2.Event(wall_time=time_s, **content).SerializeToString()
    length = struct.pack("<Q", len(data))
    return b"".join((length, struct.pack("<I", masked_crc32c(length)), data, struct.pack("<I", masked_crc32c(data))))
