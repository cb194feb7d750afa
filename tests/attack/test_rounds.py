"""On-policy rounds in whole runs: how old steps are when they are used, while the learner is killed and stopped.

With SURREAL_TEST_ATTACK=1 (`make attack`). SURREAL_TEST_SPACING_S sets the seconds between two disturbances; with less
than 60, the timeout of a round is shortened as well. `tests/unit/agent/test_rounds.py`,
`tests/integration/data_path/test_fifo.py` and `tests/e2e/test_round_kills.py` have the parts of it that always run.
"""

from __future__ import annotations

import os

import pytest

from benchmarks import rounds

SPACING_S = float(os.environ.get("SURREAL_TEST_SPACING_S", "60"))
TIMEOUT_S = 30.0 * min(SPACING_S / 60.0, 1.0)


@pytest.mark.skipif(not os.environ.get("SURREAL_TEST_ATTACK"), reason="make attack runs it: it takes an hour")
@pytest.mark.parametrize("preset", ["cartpole-a2c", "cartpole-ppo", "pendulum-ipg"])
def test_steps_are_as_new_as_without_disturbances(preset: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--every", f"{SPACING_S}", "--round-timeout-s", f"{TIMEOUT_S}"]
    assert rounds.main([preset, *options]) == 0, capsys.readouterr().out
    calm_share = capsys.readouterr().out.splitlines()[-1].split("|")[3].strip()
    assert calm_share == "0.0%", "each trajectory is of the newest version"
