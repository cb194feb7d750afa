"""TorchRL: DQN with an asynchronous collector of two processes, and a replay whose rows are in Redis.

python torchrl_run.py FOLDER TASK
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import redis
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictSequential
from torchrl.collectors import MultiAsyncCollector
from torchrl.data import OneHot, ReplayBuffer, StoreStorage
from torchrl.envs import GymWrapper
from torchrl.modules import MLP, ConvNet, EGreedyModule, QValueActor
from torchrl.objectives import DQNLoss, HardUpdate

from benchmarks.kill_test.link import ports
from benchmarks.kill_test.tally import CountedCartPole, Tally, seed

_CAPACITY, _START, _CHECKPOINT_S, _FRAMES = 50_000, 1000, 10.0, 128
#: Keeps a Redis alive, as a service manager does.
_SERVICE = "while true; do redis-server --port {port} --save '' --appendonly yes --dir {folder}; sleep 0.1; done"


def make_env(frames: bool) -> Any:
    """Make an environment in a collector's process."""
    return GymWrapper(CountedCartPole(frames=frames), categorical_action_encoding=False, device="cpu")


def make_network(frames: bool) -> torch.nn.Module:
    if not frames:
        return MLP(in_features=4, out_features=2, num_cells=[64, 64], activation_class=torch.nn.ReLU)
    convolutions = ConvNet(in_features=1, num_cells=[32, 64, 64], kernel_sizes=[8, 4, 3], strides=[4, 2, 1])
    return torch.nn.Sequential(Scale(), convolutions, MLP(out_features=2, num_cells=[128]))


class Scale(torch.nn.Module):
    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return image.float() / 255.0


def connect(folder: Path) -> int:
    """Return the port at which to reach this folder's Redis, and start it if it does not answer."""
    own = 20_000 + hash_of(str(folder)) % 20_000
    port, store = ports() or (own, own)
    client = redis.Redis(port=port)
    for attempt in range(200):
        try:
            client.ping()
            return port
        except redis.RedisError:
            if not attempt:
                subprocess.Popen(["sh", "-c", _SERVICE.format(port=store, folder=folder)])
            time.sleep(0.1)
    raise RuntimeError("Redis does not start")


def hash_of(text: str) -> int:
    return int.from_bytes(text.encode()[-6:], "big")


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(seed())
    folder, frames = Path(sys.argv[1]), sys.argv[2] == "frames"
    port = connect(folder)
    checkpoint = folder / "checkpoint.pt"
    kept: dict[str, Any] = torch.load(checkpoint, weights_only=False) if checkpoint.exists() else {}
    buffer = ReplayBuffer(storage=StoreStorage(_CAPACITY, host="localhost", port=port), batch_size=32 if frames else 64)
    network = make_network(frames)
    network(make_env(frames).reset()["observation"])
    actor = QValueActor(network, in_keys=["observation"], spec=OneHot(2))
    greedy = EGreedyModule(OneHot(2), eps_init=1.0, eps_end=0.05, annealing_num_steps=6_000)
    policy = TensorDictSequential(actor, greedy)
    loss = DQNLoss(actor, delay_value=True)
    loss.make_value_estimator(gamma=0.99)
    target = HardUpdate(loss, value_network_update_interval=200)
    optimizer = torch.optim.Adam(loss.parameters(), lr=1e-3)
    steps = updates = 0
    if kept:
        steps, updates = kept["steps"], kept["updates"]
        loss.load_state_dict(kept["loss"])
        optimizer.load_state_dict(kept["optimizer"])
        greedy.load_state_dict(kept["greedy"])
        buffer.load_state_dict(kept["buffer"])  # its cursor and the name of its rows, which are still in Redis
    collector = MultiAsyncCollector(
        [make_env, make_env],
        policy,
        create_env_kwargs=[{"frames": frames}] * 2,
        frames_per_batch=_FRAMES,
        total_frames=-1,
    )
    collector.set_seed(seed())
    tallies = {kind: Tally(kind) for kind in ("updates", "counted", "learned", "stored")}
    saved_s = time.monotonic()
    for data in collector:
        buffer.extend(data.reshape(-1).select("observation", "action", ("next", "observation"), ("next", "reward"),
                                              ("next", "done"), ("next", "terminated")))  # fmt: skip
        steps += data.numel()
        greedy.step(data.numel())
        if len(buffer) >= _START:
            for _ in range(_FRAMES // (8 if frames else 4)):
                batch: TensorDict = buffer.sample()
                optimizer.zero_grad()
                loss(batch)["loss"].backward()
                optimizer.step()
                target.step()
                updates += 1
                tallies["updates"].add(1)
        tallies["learned"].set(updates)
        tallies["counted"].set(steps)
        tallies["stored"].set(len(buffer))
        collector.update_policy_weights_()
        if time.monotonic() - saved_s > _CHECKPOINT_S and updates:
            saved_s = time.monotonic()
            new = {"steps": steps, "updates": updates, "loss": loss.state_dict(), "optimizer": optimizer.state_dict(),
                   "greedy": greedy.state_dict(), "buffer": buffer.state_dict()}  # fmt: skip
            torch.save(new, checkpoint.with_suffix(".new"))
            os.replace(checkpoint.with_suffix(".new"), checkpoint)


if __name__ == "__main__":
    main()
