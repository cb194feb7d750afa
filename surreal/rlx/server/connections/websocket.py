"""A WebSocket connection: JSON text frames or binary frames, several sessions told apart by `sid`. Plain HTTP as well.

The protocol itself (RFC 6455) is `websockets`' sans-I/O implementation, without compression: a frame is never larger
than what was sent.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol

from surreal.rlx.protocol.codec import decode, dump_json, encode, parse_json
from surreal.rlx.protocol.errors import RlxDecodeError, RlxError, RlxRequestError, brief
from surreal.rlx.server.connections.connection import MAX_BACKLOG, BaseConnection
from surreal.rlx.server.connections.http import FrameCutter, answer_request
from surreal.rlx.server.hub import FIRST_MESSAGE_BYTES, Hub
from surreal.rlx.server.messages import Reply, Sid, action_reply, error_reply, is_sid
from surreal.rlx.server.session import Session

#: How long a peer may take to agree that the connection is closed, s.
_CLOSE_TIMEOUT_S = 5.0
#: Bytes that it may still send meanwhile.
_MAX_LATE_BYTES = 1 << 16


@dataclass(slots=True, eq=False)
class _Client:
    """One session of a connection, and its requests that wait behind another."""

    session: Session
    sid: Sid
    has_sid: bool
    is_binary: bool  #: the form of the request that is being answered
    requests: deque[tuple[bool, dict[str, Any]]] = field(default_factory=deque)


class WebSocketConnection(BaseConnection):
    """A WebSocket connection, or a plain HTTP request, of any number of sessions."""

    def __init__(self, hub: Hub, transport: asyncio.Transport) -> None:
        super().__init__(hub, transport)
        self._limits = hub.limits
        self._keeps_images = hub.pool.reader is not None
        self._protocol = ServerProtocol(max_size=min(FIRST_MESSAGE_BYTES, self._limits.max_bytes))
        self._clients: dict[Sid, _Client] = {}
        self._by_session: dict[Session, _Client] = {}
        self._ready: deque[_Client] = deque()  # those with requests that can be answered now
        self._num_held = 0  # requests of all clients
        self._answers: deque[tuple[_Client, Any]] = deque()  # actions that are still to be sent
        self._cutter = FrameCutter()
        self._message = bytearray()
        self._opcode = Opcode.TEXT
        self._late_bytes = 0  # that came after we had closed
        self._abort_timer: asyncio.TimerHandle | None = None

    @property
    def is_busy(self) -> bool:
        return any(client.session.is_waiting for client in self._clients.values())

    def connection_lost(self, error: Exception | None) -> None:
        if self._abort_timer is not None:
            self._abort_timer.cancel()
        super().connection_lost(error)
        # The protocol's parser and exceptions refer back to it: a cycle that would keep a partial message.
        self._protocol.parser.close()
        self._protocol.handshake_exc = self._protocol.parser_exc = None
        self._protocol.reader.discard()

    @property
    def _is_open(self) -> bool:
        return self._protocol.state is not State.CONNECTING

    def end_sessions(self) -> None:
        for client in list(self._clients.values()):
            self._end(client)

    def backlog_size(self) -> int:
        return self._num_held

    def accept(self, data: bytes) -> None:
        if self._protocol.state is State.CLOSING:
            self._late_bytes += len(data)
            if self._late_bytes > _MAX_LATE_BYTES:
                self.abort()
                return
        self._cutter.add(data)

    def buffered_bytes(self) -> int:
        held = self._cutter.pending + len(self._protocol.reader.buffer) + len(self._message)
        return held + self.transport.get_write_buffer_size()

    def has_work(self) -> bool:
        return bool(self._answers or self._ready) or (
            self._num_held < MAX_BACKLOG and self._cutter.has_piece(is_open=self._is_open)
        )

    def work(self) -> bool:
        if self._answers:  # first, so that replies go out in order
            client, action = self._answers.popleft()
            if client.session in self._by_session:  # else it has been ended meanwhile
                self._send_action(client, action)
            return True
        if self._ready:
            client = self._ready.popleft()
            if client.requests:  # else it has been ended meanwhile
                self._num_held -= 1
                self._answer(client, *client.requests.popleft())
                self._make_ready(client)
            return True
        self._protocol.receive_data(self._cutter.take(is_open=self._is_open))
        is_free = False
        for event in self._protocol.events_received():
            if isinstance(event, Request):
                answer_request(self._protocol, event, self.hub)
            elif isinstance(event, Frame):
                is_free = self._take_frame(event) and len(self._clients) == 1
        return not is_free

    def finish_turn(self) -> None:
        self._flush()

    def eof_received(self) -> bool:
        self._has_eof = True
        self._protocol.receive_eof()
        self._flush()
        return False

    def close(self) -> None:
        if self._protocol.state is State.OPEN:
            self._protocol.send_close(CloseCode.GOING_AWAY)
            self._flush()
        super().close()

    # -- the connection ------------------------------------------------------------------------------------------------

    def _take_frame(self, frame: Frame) -> bool:
        """Take a frame; returns whether it brought a step, which now waits for its action."""
        if frame.opcode in (Opcode.TEXT, Opcode.BINARY):
            self._opcode = frame.opcode
            if frame.fin:
                return self._take_message(bytes(frame.data))
            self._message += frame.data
        elif frame.opcode is Opcode.CONT:
            self._message += frame.data
            if frame.fin:
                message, self._message = bytes(self._message), bytearray()
                return self._take_message(message)
        return False

    def _flush(self) -> None:
        """Send the protocol's pending output; an empty piece means the end."""
        pieces = self._protocol.data_to_send()
        if any(pieces):
            self.transport.write(b"".join(pieces))
        if b"" in pieces:
            super().close()
        if self._protocol.state is State.CLOSING and self._abort_timer is None:
            self._abort_timer = asyncio.get_running_loop().call_later(_CLOSE_TIMEOUT_S, self.abort)

    # -- sessions ------------------------------------------------------------------------------------------------------

    def _take_message(self, data: bytes) -> bool:
        if self._is_closing or self._protocol.state is not State.OPEN:
            return False
        self.hear()
        is_binary = self._opcode is Opcode.BINARY
        try:
            if is_binary:
                request = decode(data, self._limits, keeps_images=self._keeps_images)
            else:
                request = parse_json(data, self._limits)
        except RlxDecodeError as error:
            self.hub.errors += 1
            self._send(error_reply(error), None, has_sid=False, is_binary=is_binary)
            self._protocol.send_close(CloseCode.INVALID_DATA)
            return False
        try:
            client = self._client_of(request, is_binary=is_binary)
        except RlxRequestError as error:
            self.hub.errors += 1
            sid = request.get("sid")
            self._send(error_reply(error), sid if is_sid(sid) else None, has_sid="sid" in request, is_binary=is_binary)
            if self.owes_token:
                self._protocol.send_close(CloseCode.POLICY_VIOLATION)
            return False
        if client is None:
            return False
        if client.session.is_waiting:
            client.requests.append((is_binary, request))
            self._num_held += 1
            return False
        self._answer(client, is_binary, request)
        return client.session.is_waiting

    def _client_of(self, request: Mapping[str, Any], *, is_binary: bool) -> _Client | None:
        """Find or open the session that a request is for; None: it was about the session itself."""
        sid = request.get("sid")
        if not is_sid(sid):
            raise RlxRequestError(f"sid must be a str or an int, got {brief(sid)}")
        client, command = self._clients.get(sid), request.get("command")
        if isinstance(command, str) and command == "disconnect" and not self.owes_token:
            if client is not None:
                self._end(client)
            return None
        if client is None:
            if not isinstance(command, str) or command != "init":
                raise RlxRequestError("init comes first")
            if len(self._clients) >= self.hub.settings.max_connection_sessions:
                raise RlxRequestError(f"one connection may have {len(self._clients)} sessions; open another")
            if self._clients:  # the first one was admitted with the connection
                if not self.hub.admits():
                    raise RlxRequestError("this server has no room for another session")
                self.hub.num_sessions += 1
            client = _Client(Session(self.hub, self._on_action), sid, has_sid="sid" in request, is_binary=is_binary)
            self._clients[sid] = client
            self._by_session[client.session] = client
        return client

    def _answer(self, client: _Client, is_binary: bool, request: dict[str, Any]) -> None:
        session = client.session
        client.is_binary = is_binary
        reply = session.handle(request)
        if reply is None:
            return
        self._reply(client, reply)
        if session.is_refused:
            self._protocol.send_close(CloseCode.POLICY_VIOLATION)
        elif session.is_ready and not self.is_known:
            self.become_known()
            self._protocol.max_message_size = self._limits.max_bytes
        if session.has_ended:
            session.has_ended = False
            self._close_if_due()

    def _make_ready(self, client: _Client) -> None:
        if client.requests and not client.session.is_waiting:
            self._ready.append(client)

    def _close_if_due(self) -> None:
        if self.hub.is_due(self) and all(client.session.is_between_episodes for client in self._clients.values()):
            self._protocol.send_close(CloseCode.GOING_AWAY)

    def _on_action(self, session: Session, action: Any) -> None:
        client = self._by_session.get(session)
        if client is None or self._is_closing or self.transport.is_closing():
            return
        self.heard_s = self.hub.turns.clock()  # it was our turn until now
        if len(self._clients) > 1:  # they share what one connection may have
            self._answers.append((client, action))
            self.queue()
            return
        self._send_action(client, action)
        self._flush()
        if self.has_work():
            self.attend()

    def _send_action(self, client: _Client, action: Any) -> None:
        self._reply(client, action_reply(action, client.session.outputs, client.session.step_id))
        if client.session.is_refused:
            self._end(client)
            if not self._clients:
                self._protocol.send_close(CloseCode.POLICY_VIOLATION)
        self._make_ready(client)

    def _end(self, client: _Client) -> None:
        del self._clients[client.sid]
        if self._clients:
            self.hub.num_sessions -= 1
        self._by_session.pop(client.session, None)
        self._num_held -= len(client.requests)
        client.requests.clear()
        client.session.close()

    def _reply(self, client: _Client, reply: Reply) -> None:
        try:
            self._send(reply, client.sid, has_sid=client.has_sid, is_binary=client.is_binary)
        except RlxError as error:
            self._send(error_reply(error), client.sid, has_sid=client.has_sid, is_binary=client.is_binary)

    def _send(self, reply: Reply, sid: Sid, *, has_sid: bool, is_binary: bool) -> None:
        if self._protocol.state is not State.OPEN:
            return
        message = {**reply, "sid": sid} if has_sid else reply
        if is_binary:
            self._protocol.send_binary(encode(message))
        else:
            self._protocol.send_text(dump_json(message).encode())
