"""A client of RELAAX, with its habits: it was written from the description of the protocol, and knows nothing of us."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.e2e.conftest import Workplace

CLIENT = '''
"""Names the sign of a number. Usage: client.py app.yaml"""

import random
import socket
import struct
import sys
import time

import yaml


def text(value):
    data = value.encode()
    return struct.pack("<I", len(data)) + data


def typed(value):
    if value is None:
        return b"\\x01"
    if isinstance(value, bool):
        return struct.pack("<BB", 5, value)
    if isinstance(value, str):
        return b"\\x03" + text(value)
    if isinstance(value, float):
        return struct.pack("<Bd", 4, value)
    return struct.pack("<BI", 8, len(value)) + b"".join(map(typed, value))


class Agent:
    def __init__(self, bind):
        host, port = bind.split(":")
        while True:
            try:
                self.socket = socket.create_connection((host, int(port)), timeout=60)
                break
            except OSError:
                time.sleep(0.2)

    def ask(self, **message):
        payload = struct.pack("<I", 1) + b"".join(text(key) + typed(value) for key, value in message.items())
        self.socket.sendall(b"%d:%s," % (len(payload), payload))
        size = b""
        while not size.endswith(b":"):
            size += self.read(1)
        reply = self.read(int(size[:-1]) + 1)[4:-1]
        at, found = 0, {}
        while at < len(reply):
            (length,) = struct.unpack_from("<I", reply, at)
            key, at = reply[at + 4 : at + 4 + length].decode(), at + 4 + length
            kind, at = reply[at], at + 1
            if kind == 3:
                (length,) = struct.unpack_from("<I", reply, at)
                found[key], at = reply[at + 4 : at + 4 + length].decode(), at + 4 + length
            else:
                (found[key],), at = struct.unpack_from("<i", reply, at), at + 4
        if found["response"] == "error":
            sys.exit(found["message"])
        return found

    def read(self, count):
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                sys.exit("the connection is lost")
            data += more
        return data

    def update(self, reward, state):
        return self.ask(command="update", reward=reward, state=state)["data"]


options = yaml.safe_load(open(sys.argv[1]))
agent = Agent(options["relaax-rlx-server"]["bind"])
agent.ask(command="init", exploit=False)
scores = []
for episode in range(options["environment"]["max-episodes"]):
    reward = None
    for step in range(5):
        number = random.uniform(-1.0, 1.0)
        action = agent.update(reward, [number])
        reward = float(action == (number > 0.0))
        scores.append(reward)
    agent.ask(command="update_metrics", name="game_score", y=sum(scores[-5:]), x=None)
    if len(scores) > 300 and sum(scores[-300:]) > 280:
        break
print(f"{sum(scores[:100]) / 100} {sum(scores[-300:]) / 300}")
'''

YAML = """
relaax-rlx-server: {bind: "127.0.0.1:PORT"}
environment: {max-episodes: 20000}
env:
  id: Elsewhere
  observation_space: {type: box, shape: [1]}
  action_space: {type: discrete, n: 2}
rlx: {servers: 1, port: PORT, on_full: wait}
model: {args: {hidden_sizes: [16]}}
agent: {count: 0, exploration: {type: linear, end: 0.02, steps: 1000}}
learner: {args: {initial_learning_rate: 5.0e-3}, batch_size: 32, gamma: 0.0}
replay: {start_size: 100, samples_per_insert: 8}
sender: {chunk_steps: 16, max_delay_s: 0.1}
broadcast: {interval_updates: 20}
eval: {enabled: false}
"""


def test_a_client_that_never_ends_an_episode_is_learned_from(workplace: Workplace, free_port: int) -> None:
    (workplace.folder / "client.py").write_text(CLIENT)
    (workplace.folder / "app.yaml").write_text(YAML.replace("PORT", str(free_port)))
    run = workplace.start("run", "app.yaml")
    client = workplace.start_python("client.py", "app.yaml")
    workplace.wait_for(lambda: "connect to rlx://" in run.output or run.process.poll() is not None, "the server")
    assert run.process.poll() is None, run.output
    assert client.wait() == 0, client.output + run.output
    first, last = map(float, client.output.split())
    assert first < 0.8
    assert last > 0.93
    workplace.wait_for(lambda: "client/game_score" in (workplace.run_dir() / "metrics.jsonl").read_text(), "its score")
    run.interrupt()
    run.wait()
    assert workplace.processes() == []
