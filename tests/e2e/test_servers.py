"""Experience on one Redis server, parameters on another, the rest on a third: the run, and what it leaves there."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.e2e.conftest import Workplace


def kinds_of_keys(server: Any) -> set[str]:
    """What comes after the run, and the policy, in each key's name: "stream", "params", ..."""
    with server.client() as client:
        names = [key.decode().rpartition("}")[2].removeprefix(":policy:default") for key in client.keys("surreal:{*")]
        return {name.split(":")[1] for name in names}


def test_experience_and_parameters_on_servers_of_their_own(
    workplace: Workplace, start_redis: Callable[..., Any]
) -> None:
    hub, replay, parameters = start_redis(), start_redis(port=0, password="x"), start_redis()
    command = workplace.start(
        *("run", "cartpole-dqn", "--redis", hub.address, *workplace.fast_eval, *workplace.endless),
        *("--set", f"redis.replay_address=redis://:x@{replay.address}"),
        *("--set", f"redis.parameter_address={parameters.address}"),
        *("--set", "agent.count=1", "--set", "replay.start_size=300"),
        *("--set", "agent.show_ui=true", "--set", "eval.show_ui=true"),
        SDL_VIDEODRIVER="dummy",  # windows without a screen
    )
    run_dir = workplace.run_dir()
    workplace.wait_for((run_dir / "eval" / "best.json").exists, "the first round")
    workplace.wait_for(lambda: workplace.knows() and workplace.status()["updates"] > 5, "learning")
    assert {"stream", "meta", "block"} <= kinds_of_keys(replay) <= {"stream", "meta", "block", "seq", "lease", "credit"}
    assert {"params", "lease"} <= kinds_of_keys(parameters) <= {"params", "part", "lease", "contract"}
    assert {"config", "processes", "log", "claim"} <= kinds_of_keys(hub)
    assert kinds_of_keys(hub) <= {"config", "processes", "log", "claim", "scores"}
    code, output = workplace.run("stop", run_dir.name, "--delete", "--redis", f"redis://:x@{replay.address}")
    assert (code, "is in use" in output) == (3, True), output
    code, output = workplace.run("stop")
    assert (code, command.wait()) == (0, 0), output + command.output
    result = json.loads((run_dir / "result.json").read_text())
    assert (result["reason"], result["status"]) == ("surreal stop", "finished")
    assert result["env_steps"] > 300
    assert result["version"] > 1
    assert (kinds_of_keys(hub), kinds_of_keys(replay), kinds_of_keys(parameters)) == (set(), set(), set())
    workplace.assert_nothing_is_left()
