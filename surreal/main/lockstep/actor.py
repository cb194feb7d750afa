"""Actor: one of a run's agents with its environments, as its own process would have it, for a turn at a time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from surreal.agent import AgentLoop, Rounds
from surreal.config import Config
from surreal.errors import ReplayFullError
from surreal.main.build.acting import build_agent, build_listener, build_model, build_sender
from surreal.main.build.environments import Spaces, build_pool
from surreal.main.build.lockstep import turn_rows
from surreal.main.process.role import RoleProcess, role_rng
from surreal.main.process.roles import RandomStream


class Actor:
    """An agent with its model, environments, listener and sender, all without threads.

    Args:
        process: the frame.
        config: of a stretch in lockstep.
        stack: closes what is opened here.
        index: of the agent.
        on_episode: called with return and length of each episode.
    """

    def __init__(
        self,
        process: RoleProcess,
        config: Config,
        stack: ExitStack,
        index: int,
        on_episode: Callable[[float, int], object],
    ) -> None:
        self.pool = build_pool(config, index=index)
        stack.callback(self.pool.close)
        spaces = Spaces(self.pool.obs_spec, self.pool.action_space)
        model = build_model(config, spaces)
        agent = build_agent(config, model, spaces, index=index, rng=role_rng(config.seed, RandomStream.AGENT, index))
        stack.callback(agent.close)
        self.listener = build_listener(config, process.parameter_client, model)
        stack.callback(self.listener.close)
        self.sender = build_sender(config, process.replay, self.pool, process.stop, index=index, is_limited=False)
        stack.callback(self.sender.discard)
        # A wait for parameters would wait for its own thread.
        self._rounds = Rounds(turn_rows(config), config.env.num_envs, timeout_s=1.0, should_stop=lambda: True)
        self.loop = AgentLoop(
            self.pool,
            agent,
            self.sender,
            on_episode=lambda score, length, _: on_episode(score, length),
            rounds=self._rounds,
        )

    def act(self, check_stop: Callable[[], object]) -> None:
        """Act with the newest parameters until a round is sent."""
        self.listener.update_once()
        done = self._rounds.done
        while self._rounds.done == done:
            check_stop()
            self.loop.step()

    def end(self) -> None:
        """Cut the episodes under way, and send what is left.

        Raises:
            ReplayFullError: it was not taken.
        """
        if not self.sender.close():
            raise ReplayFullError("the replay did not take the last experience before a checkpoint", waited_s=0.0)
