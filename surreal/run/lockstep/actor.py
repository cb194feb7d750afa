"""`Actor`: an agent that acts in turn with a learner, without threads."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing

from surreal.agent import AgentLoop, Rounds
from surreal.agent.loop import EpisodeCallback
from surreal.base.errors import ReplayFullError
from surreal.config import Config
from surreal.distributed.experience.shards import ReplayShards
from surreal.envs import EnvPool
from surreal.run.build.acting import build_acting_model, build_agent, build_listener, build_remote_server, build_sender
from surreal.run.build.environments import Spaces, build_pool
from surreal.run.build.lockstep import turn_steps, turn_trajectories
from surreal.run.process.role import RoleProcess, role_rng
from surreal.run.process.roles import RandomStream


class Actor:
    """An agent with its model, environments, listener and sender, all without threads.

    Args:
        on_episode: called with return, length and environment of each episode.
        shards: where experience goes; None: to the run's replay.
        pool: pool of sessions, which come and go; None: the configuration's environments.
    """

    def __init__(
        self,
        process: RoleProcess,
        config: Config,
        stack: ExitStack,
        index: int,
        on_episode: EpisodeCallback,
        *,
        shards: ReplayShards | None = None,
        pool: EnvPool | None = None,
    ) -> None:
        self._has_sessions = pool is not None
        attributes = process.attributes.follow(stack)
        pool = build_pool(config, index=index, attributes=attributes) if pool is None else pool
        self.pool = stack.enter_context(closing(pool))
        spaces = Spaces(self.pool.obs_spec, self.pool.action_space)
        self.model = model = build_acting_model(config, spaces)
        # In lockstep with its learner, a call would wait for its own thread.
        is_alone = config.run.deterministic
        server = None if is_alone else build_remote_server(config, process.parameter_client, process.stop)
        rng = role_rng(config.seed, RandomStream.AGENT, index)
        agent = stack.enter_context(closing(build_agent(config, model, spaces, index=index, rng=rng, server=server)))
        self.listener = stack.enter_context(closing(build_listener(config, process.parameter_client, model)))
        shards = process.replay if shards is None else shards
        self.sender = build_sender(config, shards, self.pool, process.stop, index=index, is_limited=False)
        stack.callback(self.sender.discard)
        # A wait for parameters would wait for its own thread.
        number = turn_trajectories(config) if self._has_sessions else config.env.num_envs
        self._rounds = Rounds(turn_steps(config), number, is_shared=self._has_sessions or config.env.shares_rounds)
        self.loop = AgentLoop(
            self.pool,
            agent,
            self.sender,
            on_episode=lambda score, length, env_id: on_episode(score, length, index << 20 | env_id),
            rounds=self._rounds,
            interventions=config.env.has_interventions,
            gamma=config.learner.gamma,
        )

    def act(self, check_stop: Callable[[], object]) -> None:
        """Act with the newest parameters until a round is sent, or no session asks for an action."""
        self.listener.update_once()
        while True:
            check_stop()
            acted = self.loop.step()
            if self._rounds.is_over or (not acted and self._has_sessions):
                return

    def end(self) -> None:
        """Cut the current episodes, and send the remaining steps."""
        if not self.sender.close():
            raise ReplayFullError("the replay did not take the last experience before a checkpoint", waited_s=0.0)
