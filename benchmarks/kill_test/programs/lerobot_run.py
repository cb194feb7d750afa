"""LeRobot: its learner and its actor of HIL-SERL (SAC), each in a loop that starts it again, linked by gRPC.

python lerobot_run.py FOLDER TASK [learner | actor]

CartPole takes the place of gym-hil's robot, which needs a display; an action is a number, whose sign is the push.
"""

from __future__ import annotations

import json
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch

from benchmarks.kill_test.link import ports
from benchmarks.kill_test.tally import CountedCartPole, Tally, seed

_SERVICE = "while true; do {command}; sleep 0.5; done"
#: Updates between checkpoints, which are about 10 s apart.
_SAVE_FREQ = 400
#: LeRobot imports torchvision, whose wheel has its compiled operators for CUDA only; SAC uses none of them.
_OPERATORS = ("nms", "qnms", "roi_align", "_roi_align_backward", "roi_pool", "_roi_pool_backward", "ps_roi_align",
              "_ps_roi_align_backward", "ps_roi_pool", "_ps_roi_pool_backward", "deform_conv2d",
              "_deform_conv2d_backward")  # fmt: skip


class Pushed(gymnasium.Wrapper[Any, Any, Any, Any]):
    """CartPole as an environment of gym-hil: its state is `agent_pos`."""

    def __init__(self, **keywords: Any) -> None:
        super().__init__(CountedCartPole())
        state = gymnasium.spaces.Box(-np.inf, np.inf, (4,), np.float32)
        self.observation_space = gymnasium.spaces.Dict({"agent_pos": state})
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, **keywords: Any) -> tuple[Any, dict[str, Any]]:
        state, info = self.env.reset(**keywords)
        return {"agent_pos": state}, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        state, reward, terminated, truncated, info = self.env.step(int(np.ravel(action)[0] > 0.0))
        return {"agent_pos": state}, float(reward), terminated, truncated, info


def record(folder: Path) -> None:
    """Write demonstrations, without which the learner does not start: random episodes."""
    from lerobot.rl.buffer import ReplayBuffer

    env, rng = gymnasium.make("CartPole-v1"), np.random.default_rng(seed())
    buffer = ReplayBuffer(1000, "cpu", ["observation.state"], storage_device="cpu")

    def tensors(state: Any) -> dict[str, torch.Tensor]:
        return {"observation.state": torch.as_tensor(state).unsqueeze(0)}

    for _ in range(8):
        (state, _), is_over = env.reset(seed=int(rng.integers(1 << 30))), False
        while not is_over:
            push = rng.uniform(-1.0, 1.0)
            following, reward, terminated, truncated, _ = env.step(int(push > 0.0))
            is_over = terminated or truncated
            action, penalty = torch.tensor([[push]], dtype=torch.float32), {"discrete_penalty": torch.zeros(1)}
            buffer.add(tensors(state), action, float(reward), tensors(following), terminated, truncated, penalty)
            state = following
    buffer.to_lerobot_dataset("demonstrations", fps=100, root=folder / "demonstrations")


def supervise(folder: Path) -> None:
    """Keep a learner and an actor alive, as a service manager does."""
    if not (folder / "demonstrations").exists():
        record(folder)
    base = f"{sys.executable} {__file__} {folder} cartpole"
    for process in [
        subprocess.Popen(["sh", "-c", _SERVICE.format(command=f"{base} {role}")]) for role in ("learner", "actor")
    ]:
        process.wait()


def write_config(folder: Path, role: str, port: int) -> list[str]:
    """Write the configuration, and return the arguments; a checkpoint is resumed from as the docs describe.

    An actor needs a folder that does not exist; a learner without a checkpoint also does.
    """
    output = folder / "run" if role == "learner" else folder / f"actor-{os.getpid()}"
    numbers = {"observation.state": {"type": "STATE", "shape": [4]}, "action": {"type": "ACTION", "shape": [1]}}
    inputs, outputs = ({name: numbers[name]} for name in numbers)
    config = {
        "output_dir": str(output), "job_name": "kill-test", "seed": seed(), "batch_size": 64,
        "save_freq": _SAVE_FREQ, "log_freq": 1000, "wandb": {"enable": False},
        "dataset": {"repo_id": "demonstrations", "root": str(folder / "demonstrations")},
        "env": {
            "type": "gym_manipulator", "name": "gym_hil", "task": "KillTest-v0", "fps": 100, "features": numbers,
            "features_map": {name: name for name in numbers},
        },
        "policy": {
            "type": "sac", "device": "cpu", "storage_device": "cpu", "push_to_hub": False, "use_torch_compile": False,
            "input_features": inputs, "output_features": outputs, "online_buffer_capacity": 50_000,
            "online_step_before_learning": 200, "online_steps": 100_000_000,
            "dataset_stats": {
                "observation.state": {"min": [-2.4, -3.0, -0.21, -3.0], "max": [2.4, 3.0, 0.21, 3.0]},
                "action": {"min": [-1.0], "max": [1.0]},
            },
            "actor_learner_config": {"learner_port": port},
        },
    }  # fmt: skip
    path = folder / f"{role}.json"
    path.write_text(json.dumps(config))
    last = folder / "run" / "checkpoints" / "last" / "pretrained_model" / "train_config.json"
    if role == "learner" and last.exists():
        return [f"--config_path={last}", "--resume=true"]
    if role == "learner":
        shutil.rmtree(output, ignore_errors=True)
    return [f"--config_path={path}"]


def count_in_the_learner() -> None:
    """Count updates and stored transitions."""
    from lerobot.rl import learner
    from lerobot.rl.buffer import ReplayBuffer

    tallies = {kind: Tally(kind) for kind in ("updates", "counted", "learned", "stored")}
    add, load, restore, make = (
        ReplayBuffer.add, learner.load_training_state, learner.initialize_replay_buffer,
        learner.make_optimizers_and_scheduler,
    )  # fmt: skip

    def counting_add(self: Any, *args: Any, **keywords: Any) -> None:
        add(self, *args, **keywords)
        tallies["counted"].add(1)
        tallies["stored"].set(len(self))

    def counting_load(*args: Any, **keywords: Any) -> Any:
        found = load(*args, **keywords)
        tallies["learned"].set(found[0] or 0)
        return found

    def counting_restore(*args: Any, **keywords: Any) -> Any:
        buffer = restore(*args, **keywords)
        for kind in ("counted", "stored"):
            tallies[kind].set(len(buffer))
        return buffer

    def counting_make(*args: Any, **keywords: Any) -> Any:
        optimizers, scheduler = make(*args, **keywords)

        def count(*_: Any) -> None:
            tallies["updates"].add(1)
            tallies["learned"].add(1)

        optimizers["critic"].register_step_post_hook(count)
        return optimizers, scheduler

    ReplayBuffer.add = counting_add
    learner.load_training_state, learner.initialize_replay_buffer = counting_load, counting_restore
    learner.make_optimizers_and_scheduler = counting_make


def main() -> None:
    folder = Path(sys.argv[1])
    os.environ |= {"HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "hub")}
    torch.set_num_threads(1)
    library = torch.library.Library("torchvision", "DEF")
    for name in _OPERATORS:
        library.define(f"{name}(Tensor of) -> Tensor")
    if len(sys.argv) == 3:
        supervise(folder)
        return
    role = sys.argv[3]
    gymnasium.register("gym_hil/KillTest-v0", entry_point=Pushed)
    actor_port, learner_port = ports() or (50051, 50051)
    sys.argv[1:] = write_config(folder, role, learner_port if role == "learner" else actor_port)
    if role == "learner":
        count_in_the_learner()
        from lerobot.rl.learner import train_cli

        train_cli()
    else:
        runpy.run_module("lerobot.rl.actor", run_name="__main__")


if __name__ == "__main__":
    main()
