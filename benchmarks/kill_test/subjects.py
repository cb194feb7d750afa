"""The systems of the kill test: how each is started, and how its own docs say that it survives faults."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers import LEROBOT, SAMPLE_FACTORY, SB3, TORCHRL, Requirement

_PROGRAMS = Path(__file__).with_name("programs")
RLLIB = Requirement("ray", ["ray[rllib]==2.60.0"], shares_ours=True)


@dataclass(frozen=True)
class Subject:
    """A system under test."""

    title: str
    program: str  #: file in `programs`: trains until it is killed, and continues what is in its folder
    supervision: str  #: what its docs recommend against faults, and what is therefore in effect
    package: str  #: distribution whose version is printed
    needs: Requirement | None = None  #: None: this environment
    has_store: bool = False  #: whether experience is kept by a process apart from the trainer
    #: Start the program again when it ends by itself, as a person's shell loop or a service manager does, because the
    #: system has no supervisor.
    is_restarted: bool = False
    no_link: str | None = None  #: why there is no network between its processes; None: there is, and it can be cut

    def command(self, python: Path | None, folder: Path, task: str) -> Sequence[str]:
        return [str(python or sys.executable), str(_PROGRAMS / self.program), str(folder), task]


SUBJECTS = {
    "surreal": Subject(
        title="Surreal",
        program="surreal_run.py",
        supervision="`redis.appendonly`, checkpoints every 10 s; its launcher starts processes again; "
        "`surreal run --resume`",
        package="surreal-rl",
        has_store=True,
    ),
    "sb3": Subject(
        title="Stable-Baselines3",
        program="sb3_run.py",
        supervision="`CheckpointCallback(save_replay_buffer=True)` every 10 s, whose newest is loaded; "
        "started again in a loop",
        package="stable-baselines3",
        needs=SB3,
        is_restarted=True,
        no_link="no link: its workers are on pipes",
    ),
    "rllib": Subject(
        title="RLlib",
        program="rllib_run.py",
        supervision="`restart_failed_env_runners`, Tune with `max_failures=-1` and checkpoints every 10 s; "
        "`Tuner.restore` in a loop",
        package="ray",
        needs=RLLIB,
        has_store=True,
        is_restarted=True,
        no_link="no link: all of its processes are on one machine",
    ),
    "torchrl": Subject(
        title="TorchRL, replay in Redis",
        program="torchrl_run.py",
        supervision="replay in `TensorDictStore` on a Redis with an append-only file; checkpoints every "
        "10 s; started again in a loop",
        package="torchrl",
        needs=TORCHRL,
        has_store=True,
        is_restarted=True,
    ),
    "sample_factory": Subject(
        title="Sample Factory",
        program="sample_factory_run.py",
        supervision="`--restart_behavior=resume --save_every_sec=10`; started again in a loop",
        package="sample-factory",
        needs=SAMPLE_FACTORY,
        is_restarted=True,
        no_link="no link: its processes share memory",
    ),
    "lerobot": Subject(
        title="LeRobot",
        program="lerobot_run.py",
        supervision="checkpoints with its replay about every 10 s, and `--resume=true`; learner and actor are started "
        "again in two loops",
        package="lerobot",
        needs=LEROBOT,
        is_restarted=True,
    ),
}
