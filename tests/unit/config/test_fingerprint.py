"""What processes must agree on, and how a difference is told."""

from __future__ import annotations

import json

import pytest

from surreal.config import diff_shared, fingerprint, load_config


@pytest.mark.parametrize(
    "override",
    ["env.id=Acrobot-v1", "env.kwargs={sutton_barto_reward: true}", "env.wrappers=[{name: flatten}]",
     "model.args.activation=tanh", "model.class=my.Model", "learner.n_step=7"],
)  # fmt: skip
def test_what_must_agree_changes_the_fingerprint(override: str) -> None:
    ours, theirs = load_config("cartpole-dqn", [override]).shared(), load_config("cartpole-dqn").shared()
    assert fingerprint(ours) != fingerprint(theirs)
    assert len(diff_shared(theirs, ours)) >= 1


@pytest.mark.parametrize(
    "override",
    ["seed=9", "agent.count=5", "env.num_envs=3", "env.pool=vector", "redis.address=h:1", "device=cpu", "name=other",
     "learner.batch_size=64", "sender.max_delay_s=9", "eval.episodes=3", "run.max_env_steps=99_999"],
)  # fmt: skip
def test_what_may_differ_between_processes_does_not(override: str) -> None:
    ours, theirs = load_config("cartpole-dqn", [override]).shared(), load_config("cartpole-dqn").shared()
    assert fingerprint(ours) == fingerprint(theirs)
    assert diff_shared(theirs, ours) == ()


def test_shared_part_survives_json() -> None:
    shared = load_config("cartpole-dqn", ["env.wrappers=[{name: a, args: {x: [1, 2]}}]"]).shared()
    stored = json.loads(json.dumps(shared))
    assert fingerprint(stored) == fingerprint(shared)
    assert diff_shared(stored, shared) == ()


def test_order_of_keys_does_not_count() -> None:
    assert fingerprint({"a": 1, "b": {"c": 2, "d": 3}}) == fingerprint({"b": {"d": 3, "c": 2}, "a": 1})


def test_diff_names_path_and_both_values() -> None:
    theirs = {"env": {"id": "CartPole-v1", "kwargs": {}}, "model": {"args": {"hidden_sizes": [64, 64], "old": 1}}}
    ours = {"env": {"id": "Acrobot-v1", "kwargs": {}}, "model": {"args": {"hidden_sizes": [128], "new": None}}}
    assert diff_shared(theirs, ours) == (
        'env.id: "CartPole-v1" -> "Acrobot-v1"',
        "model.args.hidden_sizes: [64, 64] -> [128]",
        "model.args.new: (absent) -> null",
        "model.args.old: 1 -> (absent)",
    )


def test_diff_goes_into_lists_of_mappings() -> None:
    theirs = {"wrappers": [{"name": "a"}, {"name": "b"}]}
    ours = {"wrappers": [{"name": "a"}]}
    assert diff_shared(theirs, ours) == ('wrappers.1.name: "b" -> (absent)',)


def test_true_is_not_one() -> None:
    assert fingerprint({"a": True}) != fingerprint({"a": 1})
    assert diff_shared({"a": True}, {"a": 1}) == ("a: true -> 1",)
