"""A TCP connection: netstrings, one session."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Any

from surreal.rlx.protocol.codec import decode, encode
from surreal.rlx.protocol.errors import RlxDecodeError, RlxError, RlxFrameError
from surreal.rlx.protocol.framing import FrameReader, frame
from surreal.rlx.protocol.layouts import Layouts
from surreal.rlx.server.connections.connection import BaseConnection
from surreal.rlx.server.hub import FIRST_MESSAGE_BYTES, Hub
from surreal.rlx.server.messages import Reply, action_reply, error_reply
from surreal.rlx.server.session import Session

#: Replies with small ints, by far the most common ones, made once.
_INT_FRAMES = {action: frame(encode({"response": "action", "data": action})) for action in range(256)}


class TcpConnection(BaseConnection):
    """See above."""

    def __init__(self, hub: Hub, transport: asyncio.Transport) -> None:
        super().__init__(hub, transport)
        self._limits = hub.limits
        self._keeps_images = hub.pool.reader is not None
        self._layouts = Layouts(None if hub.pool.reader is None else hub.pool.reader.plain)
        self._reader = FrameReader(self._limits)
        self._session = Session(hub, self._on_action)
        self._reader.max_bytes = min(FIRST_MESSAGE_BYTES, self._limits.max_bytes)
        self._backlog: deque[bytes | dict[str, Any] | RlxFrameError] = deque()

    @property
    def is_busy(self) -> bool:
        return self._session.is_waiting

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self._reader = FrameReader()  # half a frame may be large

    def end_sessions(self) -> None:
        self._backlog.clear()
        self._session.close()

    def backlog_size(self) -> int:
        return len(self._backlog)

    def buffer_updated(self, count: int) -> None:
        layout = self._layouts.get(count)
        if layout is not None and not (self._session.is_waiting or self._reader.pending or self._is_closing):
            values = None if self._is_queued else layout.read(self.hub.buffer)
            if values is not None:
                self.heard_s = time.monotonic()
                if not (layout.is_plain and self._session.step(*values)):
                    self._backlog.append(layout.message(*values))
                    self.take_turn()
                return
        super().buffer_updated(count)

    def accept(self, data: bytes) -> None:
        failure: RlxFrameError | None = None
        try:
            payloads = self._reader.feed(data)
        except RlxFrameError as error:
            payloads, failure = list(error.frames), error.with_traceback(None)  # which leads back to this frame
        if payloads:
            self.hear()
        self._backlog.extend(payloads)
        if failure is not None:
            self._backlog.append(failure)

    def buffered_bytes(self) -> int:
        held = sum(len(request) for request in self._backlog if isinstance(request, bytes))
        return held + self._reader.pending + self.transport.get_write_buffer_size()

    def has_work(self) -> bool:
        return bool(self._backlog) and not self._session.is_waiting

    def work(self) -> bool:
        self._process(self._backlog.popleft())
        return not self._session.is_waiting

    def finish_turn(self) -> None:
        if self._has_eof and not self._backlog and not self._session.is_waiting:
            self.close()

    def eof_received(self) -> bool:
        # A peer that only stopped writing still gets the answers to what it has asked.
        self._has_eof = True
        has_more = self._session.is_waiting or bool(self._backlog)
        return has_more and self.transport.get_extra_info("sslcontext") is None

    def _process(self, request: bytes | dict[str, Any] | RlxFrameError) -> None:
        if isinstance(request, dict):
            self._handle(request)
            return
        if isinstance(request, RlxFrameError):
            self._fail(request)
            return
        try:
            message = decode(request, self._limits, keeps_images=self._keeps_images)
        except RlxDecodeError as error:
            self._fail(error)
            return
        if self._keeps_images:  # without an observation space, the agent gets the state itself, which must be aligned
            self._layouts.learn(request, message)
        self._handle(message)

    def _fail(self, error: RlxDecodeError) -> None:
        """End the connection: the bounds of its requests are lost."""
        self.hub.errors += 1
        self._send(error_reply(error))
        self.close()

    def _handle(self, message: dict[str, Any]) -> None:
        session = self._session
        reply = session.handle(message)
        if reply is None:
            return
        self._send(reply)
        if session.is_refused:
            self.close()
        elif session.is_ready and not self.is_known:
            self.become_known()
            self._reader.max_bytes = self._limits.max_bytes
        if session.has_ended:
            self._close_if_due()

    def _close_if_due(self) -> None:
        self._session.has_ended = False
        if self.hub.is_due(self):
            self.close()

    def _on_action(self, _: Session, action: Any) -> None:
        if self._is_closing:
            return
        self.heard_s = time.monotonic()  # it was our turn until now
        session = self._session
        is_plain = type(action) is int and not session.outputs and not session.step_id
        known = _INT_FRAMES.get(action) if is_plain else None
        if known is not None:
            self.transport.write(known)
        else:
            try:
                self._send(action_reply(action, session.outputs, session.step_id))
            except RlxError as error:
                self._send(error_reply(error))
        if session.is_refused:
            self.close()
        elif session.has_ended:  # an episode may end with the beginning of the next one
            self._close_if_due()
        if self._backlog or self._has_eof:
            self.attend()

    def _send(self, reply: Reply) -> None:
        self.transport.write(frame(encode(reply)))
