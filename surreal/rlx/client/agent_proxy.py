"""`AgentProxy`: an environment's connection to an agent elsewhere. Needs neither torch nor Redis.

    agent = AgentProxy("host:7001")
    agent.connect()
    agent.init()
    action = agent.update(state=first_state)                 # the first update of an episode has no reward
    while playing:
        reward, state, is_over = game.step(action)
        action = agent.update(reward, state, terminal=is_over)
    agent.disconnect()

What goes wrong is an `AgentProxyException`, see `surreal.rlx.client.connection`.
`surreal.rlx.client.training.TrainingBase` reconnects by itself.
"""

from __future__ import annotations

import random
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from surreal.base.ranges import Positive, checked
from surreal.base.types import EXECUTED_ACTION
from surreal.rlx.client.connection import AgentProxyException, ProxyConnection, make_context, retrying
from surreal.rlx.client.timed_updates import TimedUpdates
from surreal.rlx.client.transport import parse_address
from surreal.rlx.protocol.codec import encode
from surreal.rlx.protocol.errors import RlxEncodeError


class AgentProxy(ProxyConnection):
    """One session with an RLX server: one environment, one agent.

    The constructor does not connect. Calls block, each at most `timeout_s`; one thread uses a proxy at a time.

    Args:
        address: `host:port`, a pair of them, or a URL: `rlx://`, `rlxs://` (TLS), `ws://` or `wss://` (WebSocket).
        timeout_s: longest wait for one answer in s, > 0. Raising it tolerates a slow server and detects a dead one
            later.
        connect_timeout_s: longest wait for one attempt to connect, > 0.
        token: the token that the server requires; None: none.
        tls: encrypt, and check the server's certificate, also without a URL that says so.
        tls_ca: file of certificates to check the server's against; None: those that this machine trusts. Turns TLS on.
        tls_cert, tls_key: files with a certificate for the server, and its key. With TLS, `SURREAL_RLX_TLS_CA`, `_CERT`
            and `_KEY` name those that are not given.
        ssl_context: all of that in your own words. Turns TLS on.
        rng: jitter of the waits between attempts to connect.
        rate_hz: updates per second of an environment that does not wait, such as a robot, > 0: `update` returns at the
            next deadline, and the proxy connects again in the background. None: `update` waits for the answer.
        safe_action: what `update` then returns where no action came in time; "last": the action before. None: it raises
            `AgentProxyConnectionError`.

    Attributes:
        timing: with `rate_hz`: `timing.failure` is why the last action was the safe one, None if it was the agent's;
            `timing.deadlines` counts.

    Raises:
        ValueError: the address is none, or a time is not positive.
        AgentProxyException: the certificates cannot be read.
    """

    @checked
    def __init__(
        self,
        address: str | tuple[str, int] = "localhost",
        *,
        timeout_s: Positive = 60.0,
        connect_timeout_s: Positive = 10.0,
        token: str | None = None,
        tls: bool = False,
        tls_ca: str | None = None,
        tls_cert: str | None = None,
        tls_key: str | None = None,
        ssl_context: ssl.SSLContext | None = None,
        rng: random.Random | None = None,
        rate_hz: Positive | None = None,
        safe_action: Any = None,
    ) -> None:
        server, files = parse_address(address), (tls_ca, tls_cert, tls_key)
        if ssl_context is None and (tls or server.is_tls or files != (None, None, None)):
            ssl_context = make_context(*files)
        super().__init__(server, timeout_s, connect_timeout_s, ssl_context)
        self.metrics = ProxyMetrics(self.update_metrics)
        self._token = token
        self.outputs: dict[str, Any] = {}  #: what `init` wanted, of the last action
        self.step_id: int | None = None  #: number of the last step, if its reward may be amended
        self._rng = rng or random.Random()
        self._session: dict[str, Any] = {}  # arguments of `init`
        self.timing: TimedUpdates | None = None
        if rate_hz is not None:
            self.timing = TimedUpdates(self, rate_hz, safe_action)

    def connect(self, retry: int = 6, *, stop: threading.Event | None = None) -> None:
        """Connect to the server; an existing connection is closed first.

        Args:
            retry: number of attempts, >= 1, with jittered waits between them that double from 0.5 s to 8 s.
            stop: ends the waiting when set.

        Raises:
            AgentProxyConnectionError: all attempts failed.
            AgentProxyException: an attempt failed for a reason that will not pass: not the peer meant, a certificate
                that is not accepted.
        """
        self.disconnect()
        retrying(retry, self._open, rng=self._rng, stop=stop)

    def init(self, exploit: bool = False, *, want: Sequence[str] = (), policy: str | None = None) -> str:
        """Begin a session; gives the agent time to build its model and take the newest parameters.

        Args:
            exploit: act as well as the agent can: no exploration, nothing is learned from this session.
            want: what `outputs` is to have after each action: "q_values", "probabilities"; servers before this key
                ignore it.
            policy: name of a policy in the server's `rlx.policies`, which acts as with `exploit`; None: the run's.

        Returns:
            "ready".
        """
        self._session = {"exploit": exploit, "want": want, "policy": policy}
        request: dict[str, Any] = {"command": "init", "exploit": bool(exploit)}
        if self._token is not None:
            request["token"] = self._token
        if want:
            request["want"] = list(want)
        if policy is not None:
            request["policy"] = policy
        return str(self._exchange(request).get("response"))

    def update(
        self,
        reward: Any = None,
        state: Any = None,
        terminal: bool = False,
        truncated: bool = False,
        *,
        executed_action: Any = None,
        amend_within_s: float | None = None,
    ) -> Any:
        """Tell the agent what its last action led to, and ask for the next one.

        Args:
            reward: None in the first update of an episode; else a number, or a list of numbers.
            state: the environment's state: an array, a PIL image, nested lists, a dictionary; None or [] if it has
                none.
            terminal: the episode is over.
            truncated: a limit ended the episode, which could have continued: the learner still bootstraps from its last
                state. Implies `terminal`.
            executed_action: the action of the environment's space that led to this reward, if it was not the agent's:
                a person or a safety layer replaced it. For runs with `env.interventions`.
            amend_within_s: how long the reward may be amended, s: the server holds the step back until `amend` is
                called for `step_id`, or so long. For runs with `rlx.max_amend_s`. None: the reward is final.

        Returns:
            The action: an int, a float, a list or an array; None when the episode is over.
        """
        request = {"command": "update", "reward": reward, "state": state, "terminal": bool(terminal or truncated)}
        if truncated:
            request["truncated"] = True
        if executed_action is not None:
            request[EXECUTED_ACTION] = executed_action
        if amend_within_s is not None:
            request["amend_within_s"] = float(amend_within_s)
        reply = self._exchange(request) if self.timing is None else self.timing.update(request)
        self.step_id = reply.get("step_id")
        self.outputs = {name: value for name, value in reply.items() if name not in ("response", "data", "step_id")}
        return reply.get("data")

    def amend(self, step_id: int | None, *, reward: Any) -> bool:
        """Replace the reward of a step that the server holds back; also in a later session with the same server.

        Args:
            step_id: what `self.step_id` was after the update with `amend_within_s`; None, after one whose answer was
                late: nothing is sent.
            reward: the reward that counts.

        Returns:
            Whether it was in time, and the step is experience. Otherwise, it is refused and counted.
        """
        if step_id is None:
            return False
        reply = self._exchange({"command": "amend", "step_id": int(step_id), "reward": reward})
        return reply.get("is_amended") is True

    def reset(self) -> str:
        """Abandon the running episode: it counts as truncated, and its unfinished step is dropped.

        Returns:
            "done".
        """
        return str(self._exchange({"command": "reset"}).get("response"))

    def update_metrics(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Send values for the run's metrics, each `{method: "scalar" or "histogram", name, y, x}`."""
        self._exchange({"command": "update_metrics", "data": [dict(record) for record in records]})

    def pause(self) -> None:
        """Pause a proxy with `rate_hz`, from any thread: the next update returns the safe action, and the one after it
        waits for `resume`, and returns the safe action again, because its state is old.
        """
        self._timed().pause()

    def resume(self) -> None:
        """End a pause, from any thread; the next update begins an episode for the agent."""
        self._timed().resume()

    def disconnect(self) -> None:
        if self.timing is not None:
            self.timing.stop()
        self.close()

    def __enter__(self) -> AgentProxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.disconnect()

    def _timed(self) -> TimedUpdates:
        if self.timing is None:
            raise AgentProxyException("only a proxy with rate_hz can be paused; without it, pause your own loop")
        return self.timing

    def begin_again(self) -> None:
        """Connect, in one attempt, and begin a session as `init` did; raises as these do."""
        self.close()
        self._open()
        self.init(**self._session)

    def _exchange(self, request: Mapping[str, Any]) -> dict[str, Any]:
        return self.exchange(self.encode(request))

    def encode(self, request: Mapping[str, Any]) -> bytes:
        try:
            return encode(request)
        except RlxEncodeError as error:
            raise AgentProxyException(f"{request['command']} cannot be sent: {error}") from error


class ProxyMetrics:
    """`agent.metrics`: values for the run's metrics."""

    def __init__(self, send: Callable[[Sequence[Mapping[str, Any]]], None]) -> None:
        self._send = send

    def scalar(self, name: str, y: float, x: int | None = None) -> None:
        """Record a number at x; None: at the global step of the run."""
        self._send([{"method": "scalar", "name": name, "y": y, "x": x}])

    def histogram(self, name: str, y: Any, x: int | None = None) -> None:
        """Record how the numbers y, a list or an array, are distributed."""
        self._send([{"method": "histogram", "name": name, "y": y, "x": x}])
