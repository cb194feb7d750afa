from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator

import pytest

from surreal.base.system.logs import WaitNotice
from surreal.distributed.telemetry.shipper import LineBuffer, ShippingHandler


def test_the_oldest_lines_go_when_the_buffer_is_full() -> None:
    buffer = LineBuffer(max_bytes=12)
    buffer.add([b"aaa", b"bbb", b"ccc"])
    assert buffer.dropped == 0
    buffer.add([b"d"])
    assert buffer.dropped == 1
    assert buffer.take(100) == [b"bbb", b"ccc", b"d"]
    assert len(buffer) == 0


def test_a_line_larger_than_the_buffer_is_dropped_alone() -> None:
    buffer = LineBuffer(max_bytes=10)
    buffer.add([b"x" * 50])
    assert buffer.dropped == 1
    buffer.add([b"y"])
    assert buffer.take(10) == [b"y"]


def test_take_keeps_order_and_bound_and_never_sticks() -> None:
    buffer = LineBuffer(max_bytes=1000)
    buffer.add([b"aa", b"bb", b"x" * 50, b"cc"])
    assert buffer.take(5) == [b"aa"]
    assert buffer.take(5) == [b"bb"]
    assert buffer.take(5) == [b"cc"]
    assert buffer.dropped == 1


def test_a_line_that_finds_too_little_room_waits_for_the_next_entry() -> None:
    buffer = LineBuffer(max_bytes=1000)
    buffer.add([b"aa", b"bbbb"])
    assert buffer.take(5, used=2) == [b"aa"]
    assert buffer.take(5, used=5) == []
    assert buffer.take(5) == [b"bbbb"]
    assert buffer.dropped == 0


def test_many_threads_lose_nothing() -> None:
    buffer = LineBuffer(max_bytes=1 << 20)
    threads = [threading.Thread(target=lambda: [buffer.add([b"x"]) for _ in range(1000)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    taken = 0
    while any(thread.is_alive() for thread in threads) or len(buffer):
        taken += len(buffer.take(100))
    assert taken == 4000


def test_a_bound_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="max_bytes is 0"):
        LineBuffer(0)


@pytest.fixture
def shipped() -> Iterator[tuple[logging.Logger, LineBuffer]]:
    buffer = LineBuffer(1 << 20)
    handler = ShippingHandler(buffer)
    logger = logging.getLogger("test.shipping")
    logger.setLevel(logging.DEBUG)
    logger.addHandler(handler)
    yield logger, buffer
    logger.removeHandler(handler)


def test_a_record_is_formatted_when_it_happens(shipped: tuple[logging.Logger, LineBuffer]) -> None:
    logger, buffer = shipped
    values = [1]
    logger.info("values %s", values)
    values.append(2)
    logger.debug("not shipped")
    (line,) = buffer.take(1000)
    record = json.loads(line)
    assert record["message"] == "values [1]"
    assert (record["kind"], record["level"], record["logger"]) == ("log", "INFO", "test.shipping")
    assert "exception" not in record


def test_an_exception_travels_in_full(shipped: tuple[logging.Logger, LineBuffer]) -> None:
    logger, buffer = shipped
    try:
        raise RuntimeError("deep down")
    except RuntimeError:
        logger.exception("it failed")
    exception = json.loads(buffer.take(10_000)[0])["exception"]
    assert exception.startswith("Traceback")
    assert exception.endswith("RuntimeError: deep down")


def test_a_record_that_cannot_be_formatted_does_not_fail_its_caller(capsys: pytest.CaptureFixture[str]) -> None:
    buffer = LineBuffer(1000)
    # Handed over directly: pytest's own handler would fail the caller.
    ShippingHandler(buffer).handle(logging.LogRecord("x", logging.INFO, "", 0, "%d", ("text",), None))
    assert len(buffer) == 0
    assert "Logging error" in capsys.readouterr().err


def test_the_last_warning_is_kept_and_a_wait_is_none(shipped: tuple[logging.Logger, LineBuffer]) -> None:
    logger, _ = shipped
    handler = next(each for each in logger.handlers if isinstance(each, ShippingHandler))
    assert handler.last_warning == (0.0, "")
    logger.info("all is well")
    assert handler.last_warning[1] == ""
    logger.warning("the replay\nis %s", "full")
    WaitNotice(logger, clock=iter([0.0, 5.0, 5.0]).__next__).tell("waiting for the learner")
    time_s, text = handler.last_warning
    assert (time_s > 1e9, text) == (True, "the replay is full")
    logger.error("x" * 1000)
    assert handler.last_warning[1] == "x" * 300
