"""Compare updates as one compiled graph with the same updates in eager mode, and with those of Stable-Baselines3.

    python -m benchmarks.updates [NAME ...] [--rounds N] [--seconds S] [--without-peer]
    python -m benchmarks.updates --widths 32 64 128 256     # kinds of SAC by width, in eager mode

All are on one thread, with batches of 256 random rows: 4 numbers and 2 actions, or 17 numbers and 6 real actions. An
update of PPO has ten epochs of eight minibatches.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces

from benchmarks import peers
from benchmarks.alone import alone
from benchmarks.harness import report
from benchmarks.peers import rotate
from surreal.base.specs import ObsSpec
from surreal.base.types import Batch, SampleInfo, TrajectoryBatch
from surreal.learner import (
    A2CLearner,
    DDPGLearner,
    DQNLearner,
    GradientLearner,
    PPOLearner,
    QuantileDQNLearner,
    SACLearner,
    VTraceLearner,
)
from surreal.model import ActorCritic, DeterministicActorCritic, QFunction, QuantileQFunction, SoftActorCritic

_ROWS = 256
_SMALL, _LARGE = (64, 64), (256, 256)
_FEW, _MANY = ObsSpec.from_obs(np.zeros(4, np.float32)), ObsSpec.from_obs(np.zeros(17, np.float32))
_BOX = spaces.Box(-1.0, 1.0, (6,))


class Case(NamedTuple):
    """A learner, by a function of its options."""

    make: Callable[..., GradientLearner]
    kind: str  #: of its batches: discrete, real or rounds
    peer: str | None = None  #: the algorithm of Stable-Baselines3
    hidden: tuple[int, ...] = _SMALL
    calls: int = 1  #: of the graph in an update


def _off_policy(cls: Any, model: Any, hidden: tuple[int, ...], *, spec: ObsSpec, space: Any, **settings: Any) -> Any:
    return lambda **options: cls(model(hidden, action_space=space, obs_spec=spec, seed=0), **settings, **options)


def _on_policy(cls: Any, **settings: Any) -> Any:
    def make(**options: Any) -> GradientLearner:
        model = ActorCritic(_SMALL, action_space=spaces.Discrete(2), obs_spec=_FEW, value_hiddens=_SMALL, seed=0)
        return cls(model, metrics_interval=1000, **settings, **options)

    return make


_REAL: dict[str, Any] = {"spec": _MANY, "space": _BOX}
_DISCRETE: dict[str, Any] = {"spec": _FEW, "space": 2}
_TD3 = {"policy_delay": 2, "smoothing_sigma": 0.2}


def _td3(hidden: tuple[int, ...], **options: Any) -> DeterministicActorCritic:
    return DeterministicActorCritic(hidden, critics=2, **options)


CASES = {
    "PPO, minibatch of 256, 2 x 64": Case(_on_policy(PPOLearner, mini_batch=_ROWS), "rounds", "ppo", calls=80),
    "SAC, 2 x 64": Case(_off_policy(SACLearner, SoftActorCritic, _SMALL, **_REAL), "real", "sac"),
    "SAC, 2 x 256": Case(_off_policy(SACLearner, SoftActorCritic, _LARGE, **_REAL), "real", "sac", _LARGE),
    "TD3, 2 x 256": Case(_off_policy(DDPGLearner, _td3, _LARGE, **_REAL, **_TD3), "real", "td3", _LARGE),
    "DQN, 2 x 64": Case(_off_policy(DQNLearner, QFunction, _SMALL, **_DISCRETE), "discrete", "dqn"),
    "quantile DQN, 2 x 64": Case(_off_policy(QuantileDQNLearner, QuantileQFunction, _SMALL, **_DISCRETE), "discrete"),
    "A2C, 256 steps, 2 x 64": Case(_on_policy(A2CLearner), "round"),
    "V-trace, 256 steps, 2 x 64": Case(_on_policy(VTraceLearner), "round"),
}


_JOINT = {"joint_batch": True, "policy_delay": 3}
_CROSSQ = {**_JOINT, "target_update_tau": None}
#: Kinds of SAC whose updates are compared by width: options of the model, and of the learner.
FAMILIES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {}),
    "layer norm": ({"norm": "layer"}, {}),
    "25 quantiles (TQC)": ({"critic_output": "quantile"}, {}),
    "gSDE": ({"state_dependent_sigma": 0.05}, {}),
    "batch norm": ({"norm": "batch"}, {}),
    "CrossQ": ({"norm": "batch"}, _CROSSQ),
    "XQC": ({"norm": "batch", "unit_weights": True, "critic_output": "categorical"}, _JOINT),
    "Simba": ({"blocks": "simba", "normalize_obs": True}, {}),
    "FlashSAC": ({"blocks": "flashsac", "critic_output": "categorical"}, {"joint_batch": True, "policy_delay": 2}),
}


def main(argv: Sequence[str] | None = None) -> None:
    """Compare, learner by learner."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="parts of names; default: all")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement")
    parser.add_argument("--without-peer", action="store_true")
    parser.add_argument("--widths", type=int, nargs="+", help="widths of two layers or blocks, in place of NAME")
    asked = parser.parse_args(argv)
    torch.set_num_threads(1)
    if asked.widths:
        compare_widths(asked.widths, asked.rounds, asked.seconds)
        return
    python: Any = "not asked for" if asked.without_peer else peers.find_python(peers.SB3)
    for name, case in CASES.items():
        if not asked.names or any(part.lower() in name.lower() for part in asked.names):
            compare(name, case, python, asked.rounds, asked.seconds)


def compare(name: str, case: Case, python: Any, rounds: int, seconds: float) -> None:
    """Report one learner against itself, and against its peer."""
    batch = make_batch(case.kind)
    eager, compiled = (case.make(compile=compiles) for compiles in (False, True))
    for learner in (eager, compiled):
        learner.updates = 1  # the metrics of the first update would be read
        for i in range(3):
            learner.optimize(i, batch)
    if compiled.graphs is None or not compiled.graphs.running:
        peers.skip(f"compiled over eager, {name}", "it cannot be compiled here")
        return
    began_s = time.perf_counter()
    for i in range(5):
        eager.optimize(i, batch)
    updates = max(5, int(seconds * 5 / (time.perf_counter() - began_s)))
    measures = {
        key: partial(rate, learner, batch, updates) for key, learner in (("eager", eager), ("compiled", compiled))
    }
    peer = None
    if case.peer is not None and not isinstance(python, str):
        peer = peers.Peer("sb3_updates.py", python)
        peer.call("make", kind=case.peer, hidden=case.hidden)
        measures["peer"] = lambda: float(peer.call("run", updates=updates * case.calls)) / case.calls
    found = rotate(measures, rounds)
    cost_s = round(compiled.graphs.cost_s, 1)
    report(
        f"compiled over eager, {name}", "updates/s", found["compiled"], found["eager"], aim=None, compile_cpu_s=cost_s
    )
    if peer is not None:
        report(f"update over Stable-Baselines3, {name}", "updates/s", found["compiled"], found["peer"], aim=None)
        peer.close()


def compare_widths(widths: Sequence[int], rounds: int, seconds: float) -> None:
    """Print a table of updates/s, medians over rounds in which all take turns."""
    batch, measures = make_batch("real"), dict[str, Callable[[], float]]()
    for family, (options, settings) in FAMILIES.items():
        for width in widths:
            model = SoftActorCritic((width, width), action_space=_BOX, obs_spec=_MANY, seed=0, **options)
            learner = SACLearner(model, compile=False, metrics_interval=1000, **settings)
            began_s = time.perf_counter()
            for i in range(5):
                learner.optimize(i, batch)
            updates = max(5, int(seconds * 5 / (time.perf_counter() - began_s)))
            measures[f"{family}, {width}"] = partial(rate, learner, batch, updates)
    found = rotate(measures, rounds)
    print(f"| SAC | {' | '.join(f'2 x {width}' for width in widths)} |")
    print(f"|---|{'---|' * len(widths)}")
    for family in FAMILIES:
        rates = [statistics.median(found[f"{family}, {width}"]) for width in widths]
        print(f"| {family} | {' | '.join(f'{each:.0f}' for each in rates)} |")


def rate(learner: GradientLearner, batch: Any, updates: int) -> float:
    """Return updates/s."""
    began_s = time.perf_counter()
    for i in range(updates):
        learner.optimize(i, batch)
    return updates / (time.perf_counter() - began_s)


def make_batch(kind: str) -> Batch | TrajectoryBatch:
    """Make random rows."""
    rng = np.random.default_rng(0)

    def real(*shape: int) -> torch.Tensor:
        return torch.tensor(rng.normal(size=shape), dtype=torch.float32)

    if kind.startswith("round"):
        rows, columns = (256, 8) if kind == "rounds" else (32, 8)
        shape, none = (rows, columns), torch.zeros(rows, columns, dtype=torch.bool)
        return TrajectoryBatch(
            obs=real(rows + 1, columns, 4),
            action=torch.tensor(rng.integers(0, 2, shape)),
            reward=real(*shape),
            discount=torch.full(shape, 0.99),
            mask=torch.ones(shape),
            is_first=torch.zeros(rows + 1, columns, dtype=torch.bool),
            terminated=none,
            truncated=none,
            version=torch.zeros(shape, dtype=torch.int64),
            extras={"log_probability": torch.full(shape, -0.69), "value": torch.zeros(shape)},
            initial_state={},
            sample_info=SampleInfo(*[np.zeros(columns, np.int64)] * 3),
        )
    size = 4 if kind == "discrete" else 17
    action = torch.tensor(rng.integers(0, 2, _ROWS)) if kind == "discrete" else real(_ROWS, 6).tanh()
    info = SampleInfo(np.arange(_ROWS), np.ones(_ROWS), np.zeros(_ROWS, np.int64))
    discount = torch.full((_ROWS,), 0.99)
    return Batch(real(_ROWS, size), action, real(_ROWS), discount, real(_ROWS, size), {}, info)


if __name__ == "__main__":
    with alone():
        main(sys.argv[1:])
