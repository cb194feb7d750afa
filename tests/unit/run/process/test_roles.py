"""The table of roles is whole: what it names exists, and what must differ differs."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from surreal.cli.program import main
from surreal.config import load_config
from surreal.run.process.roles import (
    AGENT,
    ENVIRONMENT,
    EVAL,
    LEARNER,
    PARAMETER_SERVER,
    RLX_CLIENT,
    RLX_SERVER,
    ROLES,
    NormalEnd,
    RandomStream,
    Role,
    refusal_of,
)


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_every_role_has_a_module_with_a_main(role: Role) -> None:
    assert callable(importlib.import_module(role.module).main)


def test_names_modules_and_random_numbers_are_one_role_s_alone() -> None:
    assert len({role.name for role in ROLES}) == len({role.module for role in ROLES}) == len(ROLES)
    streams = [role.stream for role in ROLES if role.stream is not None]
    assert len(set(streams)) == len(streams)


def test_numbers_of_random_streams_stay_what_they_are() -> None:
    assert {stream.name: int(stream) for stream in RandomStream} == {
        "AGENT": 1, "LEARNER": 2, "EVAL": 3, "VERIFY": 4, "PLAY": 5, "RLX_SERVER": 6, "PARAMETER_SERVER": 7,
    }  # fmt: skip


def test_table_says_how_many_processes_a_configuration_asks_for() -> None:
    def counts(*overrides: str) -> list[int]:
        config = load_config("cartpole-rlx", ["agent.count=3", *overrides])
        return [role.count(config) for role in (LEARNER, AGENT, RLX_SERVER, RLX_CLIENT, EVAL)]

    assert counts("rlx.servers=2", "rlx.clients=5") == [1, 3, 2, 5, 1]
    program = ("rlx.clients=0", "rlx.client_envs=1", "environment.run=make play")
    assert ENVIRONMENT.count(load_config("cartpole-rlx", [*program, "environment.n_environments=3"])) == 3
    assert ENVIRONMENT.count(load_config("cartpole-rlx", ["environment.n_environments=3"])) == 0
    alone = ("rlx.servers=0", "rlx.clients=0", "rlx.client_envs=1", "eval.enabled=false", "run.stop_at_return=null")
    assert counts(*alone) == [1, 3, 0, 0, 0]


def test_parameter_servers_take_the_learner_s_place_where_agents_compute_gradients() -> None:
    roles = (LEARNER, PARAMETER_SERVER)
    for overrides, counts in (
        (["learner.gradients=learner"], [1, 0]),
        (["parameter_server.servers=2"], [0, 2]),
    ):
        config = load_config("cartpole-a3c", overrides)
        assert [role.count(config) for role in roles] == counts
        wrong = roles[0] if counts[1] else roles[1]
        assert refusal_of(wrong, config) is not None
        assert all(refusal_of(role, config) is None for role in (AGENT, EVAL, *roles) if role is not wrong)


def test_whoever_feeds_another_drains_before_it() -> None:
    orders = [role.drain_order for role in (RLX_CLIENT, RLX_SERVER, LEARNER, EVAL)]
    assert orders == sorted(set(orders))
    assert AGENT.drain_order == RLX_SERVER.drain_order


def test_only_who_learns_ends_a_run_by_its_own_end() -> None:
    assert [role for role in ROLES if role.normal_end is NormalEnd.ENDS_RUN] == [LEARNER, PARAMETER_SERVER]
    assert [role for role in ROLES if role.normal_end is NormalEnd.ALL_END_RUN] == [AGENT, RLX_SERVER]
    assert [role for role in ROLES if role.normal_end is NormalEnd.LAST_ENDS_RUN] == [ENVIRONMENT]


def test_processes_are_named_after_their_role() -> None:
    assert [AGENT.process_name(0), LEARNER.process_name(0), LEARNER.process_name(2)] == [
        "agent-0", "learner", "learner-2",
    ]  # fmt: skip
    assert [role.console_name(0) for role in ROLES] == [
        "learner", "ps-0", "agent-0", "rlx-server-0", "rlx-client-0", "environment-0", "eval",
    ]  # fmt: skip


def test_every_role_is_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(f" {role.name} " in shown for role in ROLES if role.has_command)
    assert [role for role in ROLES if not role.has_command] == [ENVIRONMENT]


def test_the_table_costs_no_import_of_what_the_roles_need() -> None:
    code = "import sys, surreal.run.process.roles; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "numpy", "pydantic", "redis", "gymnasium"} & set(loaded)
