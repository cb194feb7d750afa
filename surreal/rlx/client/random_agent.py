"""`RandomAgent`: takes the place of a server in the tests of an environment.

    agent = RandomAgent(4)                         # actions 0 to 3
    assert Training([], agent=agent).run()
    assert agent.steps > 0

It refuses what a server would refuse: states that the protocol cannot encode, rewards that are not numbers.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from surreal.rlx.client.agent_proxy import AgentProxy, AgentProxyReplyError
from surreal.rlx.protocol.codec import decode, encode


class RandomAgent(AgentProxy):
    """An agent without a server: it acts at random, learns nothing, and counts.

    Args:
        actions: how many actions there are to choose among, or what gives one.
        seed: seed of the random actions.

    Attributes:
        steps: actions that led to something.
        episodes: episodes that ended with `terminal` or `truncated`.
        rewards: what `update_metrics` was told as rewards of episodes.
    """

    def __init__(self, actions: int | Callable[[], Any], *, seed: int | None = None) -> None:
        super().__init__()
        draw = random.Random(seed)
        self._action = actions if callable(actions) else lambda: draw.randrange(actions)
        self._is_open = False
        self.steps = 0
        self.episodes = 0
        self.rewards: list[float] = []

    def _open(self) -> None:
        self._is_open = False

    def _exchange(self, request: Mapping[str, Any]) -> dict[str, Any]:
        sent = decode(encode(request))
        command = sent["command"]
        if command == "update":
            return {"response": "action", "data": self._update(sent["reward"], bool(sent["terminal"]))}
        if command == "update_metrics":
            self.rewards += [record["y"] for record in sent["data"] if record["name"] == "episode_reward"]
        if command == "reset":
            self._is_open = False
        return {"response": "ready" if command == "init" else "done"}

    def _update(self, reward: Any, is_over: bool) -> Any:
        if reward is not None:
            if not np.isfinite(np.asarray(reward, np.float64)).all():
                raise AgentProxyReplyError(f"the reward is {reward}; it must be finite")
            if not self._is_open:
                raise AgentProxyReplyError("the first update of an episode has no reward: no action came before it")
            self.steps += 1
        self._is_open = not is_over
        self.episodes += is_over
        return None if is_over else self._action()
