"""The Atari preset: a short run, with a small network, from the emulator to the evaluation's score."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.e2e.conftest import Workplace

#: A few hundred steps, with an evaluation that plays a minute of the game.
SHORT = {
    "agent.count": "1",
    "env.num_envs": "4",
    "model.args": "{convolutions: [{n_filters: 8, filter_size: 8, stride: 8}], hidden_sizes: [16]}",
    "learner.batch_size": "8",
    "learner.args.target_update_period": "10",
    "replay.start_size": "200",
    "replay.samples_per_insert": "1",
    "sender.chunk_steps": "64",
    "broadcast.interval_updates": "5",
    "eval.interval_s": "1",
    "eval.episodes": "2",
    "eval.num_envs": "2",
    "eval.env_kwargs": "{max_num_frames_per_episode: 1000}",
    "run.max_env_steps": "800",
}


@pytest.mark.parametrize(("game", "pool"), [("Pong", "vector"), ("Breakout", "local")])
def test_short_run_trains_and_scores_whole_games(workplace: Workplace, game: str, pool: str) -> None:
    settings = {**SHORT, "env.id": f"ALE/{game}-v5", "env.pool": pool}
    sets = [text for key, value in settings.items() for text in ("--set", f"{key}={value}")]
    code, output = workplace.run("run", "atari-dqn", *sets)
    assert code == 0, output
    run_dir = workplace.run_dir()
    result = json.loads((run_dir / "result.json").read_text())
    assert result["reason"].startswith("max_env_steps")
    assert result["updates"] > 10
    lines = [json.loads(line) for line in (run_dir / "eval" / "scores.jsonl").read_text().splitlines()]
    scores = [line for line in lines if line["kind"] == "episode"]
    assert scores
    if game == "Pong":
        # 1000 frames are 250 steps, less the no-ops, in which a policy that hardly learned loses some points.
        assert all(220 <= score["length"] <= 250 for score in scores)
        assert all(score["return"] < 0 for score in scores)
    metrics = (run_dir / "metrics.jsonl").read_text()
    assert "learner/loss" in metrics
    assert "replay/bytes_per_transition" in metrics
    workplace.assert_nothing_is_left()
