"""The three skeletons of the first Surreal's documentation, as printed: they end when they are ended.

They get imports, the address of a Redis server, and what the print leaves open: a schedule, a frequency and a message.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from surreal.distributed import RedisClient

if TYPE_CHECKING:
    from tests.e2e.conftest import Command, Workplace

BEFORE = """
from surreal.agent import QAgent
from surreal.distributed import ExpSender, RedisClient, TorchBroadcaster, TorchListener
from surreal.envs import Atari, EpisodeMonitor, Visualization
from surreal.learner import DQNLearner
from surreal.model import QFunction
from surreal.replay import UniformReplay
from surreal.base.schedules import LinearSchedule

BROADCAST_FREQUENCY = 10
tag_message = 'skeleton'
"""

AGENT = """
env = Visualization(EpisodeMonitor(Atari('SpaceInvaders')))
q_model = QFunction(hiddens=[64, 32], action_space=6)
exploration = LinearSchedule(...)
q_agent = QAgent(q_model, exploration)
q_agent.set_mode('training')

replay_client = RedisClient('127.0.0.1:6060') # replay server IP
exp_sender = ExpSender(replay_client)

ps_client = RedisClient('192.168.6.6:8080') # parameter server IP
listener = TorchListener(ps_client, q_model)
listener.run_listener_thread()

obs, info = env.reset()
while True:
    action = q_agent.act(obs)
    new_obs, reward, done, info = env.step(action)
    exp_sender.send([obs, new_obs], action, reward, done, info)
    obs = new_obs
"""

LEARNER = """
# model spec must be the same as in agents
q_model = QFunction(hiddens=[64, 32], action_space=6)

replay_client = RedisClient('127.0.0.1:6060') # replay server IP
replay = UniformReplay(replay_client, batch_size=64)

ps_client = RedisClient('192.168.6.6:8080') # parameter server IP
broadcaster = TorchBroadcaster(ps_client, q_model)

dqn = DQNLearner(q_model, replay)

replay.start_threads()
for i, batch in replay.batch_iterator():
    dqn.optimize(i, batch)
    if i % BROADCAST_FREQUENCY == 0:
        broadcaster.broadcast(q_model, tag_message)
"""

EVALUATION = """
env = Visualization(EpisodeMonitor(Atari('SpaceInvaders')))
q_model = QFunction(hiddens=[64, 32], action_space=6)
q_agent = QAgent(q_model, exploration=None)
q_agent.set_mode('eval')

ps_client = RedisClient('192.168.6.6:8080') # parameter server IP
listener = TorchListener(ps_client, q_model)
listener.run_listener_thread()

obs, info = env.reset()
while True:
    action = q_agent.act(obs)
    new_obs, reward, done, info = env.step(action)
    obs = new_obs
    # book-keeping code goes here
"""


def test_skeletons_run_as_printed(workplace: Workplace, start_redis: Callable[..., Any]) -> None:
    address = start_redis().address

    def start(text: str) -> Command:
        for printed, ours in (
            ("LinearSchedule(...)", "LinearSchedule(1.0, 0.1, steps=2000)"),
            ("'127.0.0.1:6060'", repr(address)),
            ("'192.168.6.6:8080'", repr(address)),
        ):
            text = text.replace(printed, ours)
        return workplace.start_python("-c", BEFORE + text)

    evaluation, agent, learner = commands = [start(text) for text in (EVALUATION, AGENT, LEARNER)]
    with RedisClient(address) as client:  # the run that nobody has named
        keys = client.policy_keys()

        def is_learning() -> bool:
            for command in commands:
                assert command.process.poll() is None, command.output
            version, message = client.redis.hmget(keys.params, ["version", "message"])
            is_told = all("mean return" in command.output for command in (agent, evaluation))
            return is_told and (int(version or 0), message) >= (5, b"skeleton")

        workplace.wait_for(is_learning, "five versions, and a game of each")
        learner.process.kill()
        learner.wait()
        assert "is not new" not in learner.output + agent.output + evaluation.output
        commands[2] = again = start(LEARNER)
        workplace.wait_for(lambda: is_learning() and "is not new" in again.output, "what the second learner says")
    assert f"run default at {address} is not new: policy default is at version" in again.output
