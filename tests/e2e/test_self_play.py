"""Self-play as a user has it: versions, ratings, and a run that goes on with both."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.e2e.conftest import Workplace

#: Few environments: agents look at the league once a second, and a quick machine has many rounds in that.
SETTINGS = (
    "run.stop_at_return=null", "run.max_env_steps=8_000", "self_play.every_env_steps=3_000", "self_play.versions=3",
    "env.num_envs=4", "learner.batch_size=4", "learner.args.mini_batch=64",
    "eval.episodes=10", "eval.num_envs=10", "model.args.hidden_sizes=[16]", "model.args.value_hidden_sizes=[16]",
    "learner.args.policy_iterations=1",
)  # fmt: skip


def test_versions_and_their_ratings_survive_the_end_of_a_run(workplace: Workplace) -> None:
    code, output = workplace.run(
        "run", "tictactoe-selfplay-ppo", *[word for one in SETTINGS for word in ("--set", one)]
    )
    assert code == 0, output
    folder = workplace.run_dir()
    league = json.loads((folder / "self_play" / "league.json").read_text())
    assert league["games"] > 0 and 2 <= len(league["versions"]) <= 3
    first = league["versions"][0]
    assert first["env_steps"] == 0 and first["games"] > 0
    kept = {int(path.stem) for path in (folder / "self_play").glob("*.safetensors")}
    assert kept == {version["version"] for version in league["versions"]}
    metrics = [json.loads(line)["metrics"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert any(line.get("self_play/past_games_total", 0) > 0 for line in metrics)
    # What past versions do is no experience: their games give rows of one player.
    recorded = max(line.get("replay/env_steps_total", 0) for line in metrics)
    assert recorded <= max(line.get("env/steps_total", 0) for line in metrics)
    newest = folder / "self_play" / f"{max(kept):010d}.safetensors"
    code, output = workplace.run("play", str(newest), "--episodes", "5")
    assert code == 0, output

    code, output = workplace.run("run", "--resume", "--run-dir", str(folder), "--set", "run.max_env_steps=14_000")
    assert code == 0, output
    again = json.loads((folder / "self_play" / "league.json").read_text())
    assert again["games"] > league["games"] and again["versions"][0]["version"] == first["version"]
    assert "rating" in output
