"""`Session`: one client's side of the conversation with an agent. Runs on the server's thread; does no I/O.

    connection --handle(request)--> session --event--> pool ... pool --answer(action)--> session --> connection

A request is answered at once, or, if it is an `update` in the middle of an episode, when the agent has acted. Until
then the connection keeps further requests back, so replies go out in order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from surreal.base.types import EXECUTED_ACTION
from surreal.rlx.pool.batches import CutEvent, FrameStacker, LastEvent, LiveEvent
from surreal.rlx.pool.wrapping import SessionWrappers
from surreal.rlx.protocol.errors import RlxError, RlxRequestError, RlxValueError, brief
from surreal.rlx.server.hub import Hub
from surreal.rlx.server.messages import DONE, NO_ACTION, READY, Reply, error_reply, read_flag, read_policy, read_wants
from surreal.rlx.server.metrics import SESSION_BURST, SESSION_RATE, Budget


class Session:
    """One environment elsewhere; `on_action` gets the action that an `update` waited for, or an error."""

    __slots__ = (
        "_event", "_hub", "_in_episode", "_is_active", "_is_exploiting", "_largest_reward", "_length", "_metrics",
        "_on_action", "_return", "_slot", "_stacker", "_wrappers",
        "has_ended", "is_authorized", "is_closed", "is_ready", "is_refused", "is_waiting", "outputs", "step_id",
    )  # fmt: skip

    def __init__(self, hub: Hub, on_action: Callable[[Session, Any], None]) -> None:
        self._hub = hub
        self._on_action = on_action
        self._slot = -1
        pool = hub.pool
        self._largest_reward = hub.settings.rewards.largest
        self._stacker: FrameStacker | None = None
        if pool.reader is not None and pool.frame_stack > 1:
            self._stacker = FrameStacker(pool.frame_spec.leaves[0], pool.frame_stack)
        self._wrappers: SessionWrappers | None = None
        self._event = LiveEvent(-1, self, None, 0.0, is_first=True, is_exploiting=False)
        #: is_ready: whether `init` was answered with `ready`
        self.is_ready = self._is_exploiting = self._in_episode = self._is_active = False
        self._return, self._length = 0.0, 0
        self._metrics = Budget(SESSION_RATE, SESSION_BURST)
        #: is_waiting: whether the session waits for an action
        #: has_ended: set when an episode ended; the reader clears it
        #: is_refused: whether it has to end: its first request was not an `init` with a token, or the token was revoked
        self.is_waiting = self.is_closed = self.has_ended = self.is_refused = False
        self.outputs: Reply = {}  #: outputs of the policy that the client wants with the action; the pool sets them
        self.step_id = 0  #: number of the step before the action, if its reward may still change; 0: it is final
        self.is_authorized = not hub.settings.needs_token  #: whether `init` brought a token, if one is asked for

    @property
    def is_between_episodes(self) -> bool:
        return not self._in_episode

    def handle(self, request: Mapping[str, Any]) -> Reply | None:
        """Answer a request; None: the answer comes with the action."""
        hub = self._hub
        hub.requests += 1
        command = request.get("command")
        try:
            # What a client sends may be anything; arrays, for one, compare element by element.
            handler = _HANDLERS.get(command) if isinstance(command, str) else None
            if handler is None:
                raise RlxRequestError(f"command {brief(command)} is not one of {', '.join(_HANDLERS)}")
            return handler(self, request)
        except RlxRequestError as error:
            hub.errors += 1
            hub.refused_values += isinstance(error, RlxValueError)
            self.is_refused = not self.is_authorized  # a stranger has one attempt
            return error_reply(error)

    def step(self, state: bytes, reward: float | None) -> bool:
        """Take an update in the middle of an episode, if it is the plainest kind; false leaves it to `handle`."""
        if reward is None or not abs(reward) <= self._largest_reward:
            return False
        if not self._in_episode or self._stacker is not None or self._wrappers is not None:
            return False
        self._hub.requests += 1
        self._return += reward
        self._length += 1
        self._event.is_first, self._event.executed = False, None
        self._event.step_id = self.step_id = 0
        self._wait([state], reward)
        return True

    def answer(self, action: Any) -> None:
        """Take the action; the connection sends it."""
        if not self.is_closed:
            self.is_waiting = False
            self._hub.num_waiting -= 1
            if isinstance(action, RlxValueError):
                self._hub.errors += 1
                self._hub.refused_values += 1
                self._in_episode = False  # the pool has cut it
                self.has_ended = True
            elif self._wrappers is not None:
                try:
                    action = self._wrappers.action(action)
                except RlxRequestError as error:
                    self._hub.errors += 1
                    self._cut()  # the client does not get the action that was recorded
                    action = error
            self._on_action(self, action)

    def refuse(self, error: RlxError) -> None:
        """Send the error, whether or not the client waits for an action, and end."""
        self.is_refused = True
        self._on_action(self, error)

    def close(self) -> None:
        """Cut the episode where it is, without completing its last step."""
        if self.is_closed:
            return
        self.is_closed = True
        self._hub.num_waiting -= self.is_waiting
        self._hub.num_active -= self._is_active
        self.is_waiting = False
        if self._hub.settings.tokens is not None:
            self._hub.settings.tokens.close(self)
        if self._slot >= 0:
            self._hub.put(CutEvent(self._slot, self._in_episode, is_gone=True))
        del self._on_action, self._event  # both lead back here: a cycle would wait for the garbage collector

    # -- requests ----------------------------------------------------------------------------------------------------

    def _init(self, request: Mapping[str, Any]) -> Reply:
        if not self.is_authorized:
            token = request.get("token")
            if not self._hub.settings.admits(self, token if isinstance(token, str) else ""):
                raise RlxRequestError("the token is missing or wrong")
            self.is_authorized = True
        exploits, wants = read_flag(request, "exploit"), read_wants(request)
        self._event.policy, self._event.wants = read_policy(request, self._hub.pool.policies), wants
        self.outputs = {}
        self._cut()
        if self._slot < 0:
            self._slot = self._hub.take_slot()
        self._is_exploiting = exploits or self._event.policy is not None or self._hub.settings.is_exploiting
        if self._hub.pool.wrappers is not None:
            self._wrappers = self._hub.pool.wrappers.open(training=not self._is_exploiting)
        self.is_ready = True
        return READY

    def _reset(self, _: Mapping[str, Any]) -> Reply:
        self._require_ready()
        self._cut()
        return DONE

    def _update(self, request: Mapping[str, Any]) -> Reply | None:
        if not self.is_ready:
            self._require_ready()
        try:
            if request.get("terminal") is not False or request.get("truncated") is not None:
                terminal, truncated = read_flag(request, "terminal"), read_flag(request, "truncated")
                if terminal or truncated:
                    return self._end(request, is_terminated=not truncated)
            self._go_on(request)
        except RlxValueError:
            self._cut()
            raise
        return None

    def _go_on(self, request: Mapping[str, Any]) -> None:
        state = self._observe(request.get("state"))
        if request.get("reward") is None:
            self._cut()  # no reward begins an episode, whether or not the last one was ended
        is_first, reward = not self._in_episode, 0.0
        executed, amend_within_s = self._read_executed(request), self._hub.pending.read(request)
        if is_first:
            self._in_episode = True
            self._return, self._length = 0.0, 0
        else:
            counted, reward = self._read_reward(request)
            self._return += counted
            self._length += 1
        if self._stacker is not None:
            state = self._stacker.push(state, is_first=is_first)
        if not self._is_active:
            self._is_active = True
            self._hub.num_active += 1
        event = self._event
        event.env_slot, event.is_first, event.is_exploiting = self._slot, is_first, self._is_exploiting
        event.executed = executed
        event.step_id = self.step_id = 0 if is_first else self._expect(amend_within_s)
        self._wait(state, reward)

    def _wait(self, state: Any, reward: float) -> None:
        event, hub = self._event, self._hub
        if self._slot in hub.pending.slots:
            hub.pending.count_row(self._slot)
        event.state, event.reward = state, reward
        self.is_waiting = True
        hub.num_waiting += 1
        hub.put(event)

    def _end(self, request: Mapping[str, Any], *, is_terminated: bool) -> Reply:
        step_id = 0
        if request.get("reward") is None:
            self._cut()  # without its reward the last step is none
        if self._in_episode:
            counted, reward = self._read_reward(request)
            executed, amend_within_s = self._read_executed(request), self._hub.pending.read(request)
            final = self._read_final(request.get("state"), is_terminated=is_terminated)
            self._in_episode = False
            if self._stacker is not None:
                final = self._stacker.push(final, is_first=False)
            step_id = self._expect(amend_within_s)
            self._hub.put(
                LastEvent(
                    self._slot, final, reward, is_terminated, self._is_exploiting,
                    self._return + counted, self._length + 1, executed, step_id,
                )
            )  # fmt: skip
        self.has_ended = True
        return {**NO_ACTION, "step_id": step_id} if step_id else NO_ACTION

    def _amend(self, request: Mapping[str, Any]) -> Reply:
        self._require_ready()
        _, reward = self._read_reward(request)
        return {**DONE, "is_amended": self._hub.pending.amend(request.get("step_id"), reward)}

    def _update_metrics(self, request: Mapping[str, Any]) -> Reply:
        self._require_authorized()
        self._hub.metric_budget.write(request, self._metrics, self._hub.settings.on_metric, self._hub.turns.clock())
        return DONE

    # -- parts of requests -------------------------------------------------------------------------------------------

    def _require_authorized(self) -> None:
        if not self.is_authorized:
            raise RlxRequestError("init with the token comes first")

    def _require_ready(self) -> None:
        if not self.is_ready:
            self._require_authorized()
            raise RlxRequestError("init comes first")

    def _cut(self) -> None:
        if self._in_episode:
            self._in_episode = False
            self.has_ended = True
            self._hub.put(CutEvent(self._slot, has_episode=True, is_gone=False))

    def _observe(self, state: Any) -> Any:
        reader = self._hub.pool.reader
        if reader is not None:
            state = reader.read(state)
        return state if self._wrappers is None else self._wrappers.observation(state)

    def _read_final(self, state: Any, *, is_terminated: bool) -> Any:
        reader = self._wrappers or self._hub.pool.reader
        if is_terminated and state is None and reader is not None:
            return reader.nothing()  # no learner bootstraps from a terminal state, so it may be left out
        return self._observe(state)

    def _read_executed(self, request: Mapping[str, Any]) -> Any:
        """Return the action that was executed in the step before in place of the agent's; None: there is none."""
        action = request.get(EXECUTED_ACTION)
        if action is None:
            return None
        if not self._in_episode:
            raise RlxRequestError(f"{EXECUTED_ACTION} comes in the first update of an episode, before any action")
        if self._wrappers is not None and self._wrappers.changes_actions:
            raise RlxRequestError(f"{EXECUTED_ACTION} cannot be translated back through the server's action wrappers")
        return self._hub.pool.executed(action)

    def _expect(self, amend_within_s: float | None) -> int:
        is_recorded = self._hub.pool.records and not self._is_exploiting
        return self._hub.pending.expect(self._slot, amend_within_s, is_recorded=is_recorded)

    def _read_reward(self, request: Mapping[str, Any]) -> tuple[float, float]:
        """Return the reward for the episode's return, and the reward for learning."""
        rewards = self._hub.settings.rewards
        reward = rewards.read(request.get("reward"))
        if self._wrappers is None:
            return reward, reward
        counted, learned = self._wrappers.rewards(reward)
        return rewards.check(counted), rewards.check(learned)


_HANDLERS: dict[str, Callable[[Session, Mapping[str, Any]], Reply | None]] = {
    "init": Session._init,
    "update": Session._update,
    "reset": Session._reset,
    "amend": Session._amend,
    "update_metrics": Session._update_metrics,
}
