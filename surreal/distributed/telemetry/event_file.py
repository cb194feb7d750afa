"""TensorBoard event files as bytes to append: TFRecord framing around tensorboardX's event messages.

tensorboardX's own writer starts a thread and a multiprocessing queue for each file. It can neither continue a file nor
remove the bytes of a killed writer. Here, an event is bytes for the caller to append.
tensorboardX is imported at the first event, because that takes a while.
Format: https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from surreal.base.metrics import Histogram


def header(time_s: float) -> bytes:
    """Return the record that every event file begins with."""
    from tensorboardX.proto import event_pb2

    return _record(event_pb2.Event(wall_time=time_s, file_version="brain.Event:2").SerializeToString())


def scalars(time_s: float, step: int, values: Mapping[str, float]) -> bytes:
    """Return one event with many scalars."""
    from tensorboardX.proto import event_pb2, summary_pb2

    summary = summary_pb2.Summary()
    for name, value in values.items():
        summary.value.add(tag=name, simple_value=value)
    return _record(event_pb2.Event(wall_time=time_s, step=step, summary=summary).SerializeToString())


def text(time_s: float, name: str, content: str) -> bytes:
    """Return one event with a text, which TensorBoard shows as Markdown."""
    from tensorboardX import summary
    from tensorboardX.proto import event_pb2

    message = summary.text(name, content)
    return _record(event_pb2.Event(wall_time=time_s, summary=message).SerializeToString())


def hyperparameters(
    time_s: float, name: str, values: Mapping[str, float | str], metrics: Sequence[tuple[str, str]]
) -> bytes:
    """Return the events that describe a run to TensorBoard's table of hyperparameters.

    Args:
        time_s: start of the run.
        name: name of the run.
        values: setting -> number or word.
        metrics: its results, each as the folder of its event file, next to this one, and its name.
    """
    from tensorboardX.proto import api_pb2, event_pb2, plugin_hparams_pb2, summary_pb2

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
        records.append(_record(event_pb2.Event(wall_time=time_s, summary=message).SerializeToString()))
    return b"".join(records)


def histogram(time_s: float, step: int, name: str, content: Histogram) -> bytes:
    """Return one event with a histogram."""
    from tensorboardX.proto import event_pb2, summary_pb2

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
    return _record(event_pb2.Event(wall_time=time_s, step=step, summary=summary).SerializeToString())


def _record(data: bytes) -> bytes:
    from tensorboardX.record_writer import masked_crc32c

    length = struct.pack("<Q", len(data))
    return b"".join((length, struct.pack("<I", masked_crc32c(length)), data, struct.pack("<I", masked_crc32c(data))))
