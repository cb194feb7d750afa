"""The three skeletons of the first Surreal's documentation: three processes on a Redis server started by hand.

Their text is as it was printed, but for imports, addresses, the environment's name, and an end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.e2e.conftest import Workplace

AGENT = """
import sys
from surreal.agent import QAgent
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.parameters.listener import TorchListener
from surreal.distributed.experience.sending.sender import ExpSender
from surreal.envs import EpisodeMonitor, GymEnv, Visualization
from surreal.model import QFunction
from surreal.schedules import LinearSchedule

env = Visualization(EpisodeMonitor(GymEnv('CartPole-v1')))
q_model = QFunction(hiddens=[64, 32], action_space=2)
exploration = LinearSchedule(1.0, 0.1, steps=2000)
q_agent = QAgent(q_model, exploration)
q_agent.set_mode('training')

replay_client = RedisClient(sys.argv[1], run=sys.argv[2]) # replay server IP
exp_sender = ExpSender(replay_client)

ps_client = RedisClient(sys.argv[1], run=sys.argv[2]) # parameter server IP
listener = TorchListener(ps_client, q_model)
listener.run_listener_thread()

obs, info = env.reset()
while True:
    action = q_agent.act(obs)
    new_obs, reward, done, info = env.step(action)
    exp_sender.send([obs, new_obs], action, reward, done, info)
    obs = new_obs
    if exp_sender.global_step > 1000 and listener.version >= 20:
        break
exp_sender.close()
listener.close()
"""

LEARNER = """
import sys
from surreal.distributed.parameters.broadcaster import TorchBroadcaster
from surreal.distributed.connection.client import RedisClient
from surreal.learner import DQNLearner
from surreal.model import QFunction
from surreal.replay import UniformReplay

BROADCAST_FREQUENCY = 10
tag_message = 'skeleton'

# model spec must be the same as in agents
q_model = QFunction(hiddens=[64, 32], action_space=2)

replay_client = RedisClient(sys.argv[1], run=sys.argv[2]) # replay server IP
replay = UniformReplay(replay_client, batch_size=64)

ps_client = RedisClient(sys.argv[1], run=sys.argv[2]) # parameter server IP
broadcaster = TorchBroadcaster(ps_client, q_model)

dqn = DQNLearner(q_model, replay)

replay.start_threads()
for i, batch in replay.batch_iterator():
    dqn.optimize(i, batch)
    if i % BROADCAST_FREQUENCY == 0:
        broadcaster.broadcast(q_model, tag_message)
    if i == 500:
        break
replay.stop()
replay.join()
broadcaster.close()
"""

EVALUATION = """
import sys
from surreal.agent import QAgent
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.parameters.listener import TorchListener
from surreal.envs import EpisodeMonitor, GymEnv, Visualization
from surreal.model import QFunction

env = Visualization(EpisodeMonitor(GymEnv('CartPole-v1')))
q_model = QFunction(hiddens=[64, 32], action_space=2)
q_agent = QAgent(q_model, exploration=None)
q_agent.set_mode('eval')

ps_client = RedisClient(sys.argv[1], run=sys.argv[2]) # parameter server IP
listener = TorchListener(ps_client, q_model)
listener.run_listener_thread()

obs, info = env.reset()
while True:
    action = q_agent.act(obs)
    new_obs, reward, done, info = env.step(action)
    obs = new_obs
    # book-keeping code goes here
    if done and listener.version >= 20:
        print('message', listener.message)
        break
listener.close()
"""


def test_skeletons_run_as_printed(workplace: Workplace, redis_server: Any, run_id: str) -> None:
    texts = (EVALUATION, AGENT, LEARNER)
    commands = [workplace.start_python("-c", text, redis_server.address, run_id) for text in texts]
    for command in commands:
        assert command.wait() == 0, command.output
    assert "message skeleton" in commands[0].output
