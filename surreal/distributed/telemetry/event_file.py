"""TensorBoard event files as bytes to append: TFRecord framing around tensorboardX's event messages.

tensorboardX's own writer opens a new file and starts a thread and a multiprocessing queue for each process of the run,
and can neither go on with a file nor take back what a killed writer wrote. Here an event is bytes for the caller to
append. tensorboardX is imported at the first event: it takes a while.
Format: https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from surreal.metrics import Histogram


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
