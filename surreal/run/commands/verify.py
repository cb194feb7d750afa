"""The check after a run, `surreal run --verify`: does the saved policy keep what the evaluation promised?"""

from __future__ import annotations

from surreal.base.errors import SurrealError
from surreal.run.build.saved_policy import load_policy
from surreal.run.commands.play import play_policy
from surreal.run.evaluation import EvaluationRound
from surreal.run.process.ending.reasons import ExitCode
from surreal.run.process.role import role_rng
from surreal.run.process.roles import RandomStream
from surreal.run.view.outcome import RunOutcome

_NUM_ENVS = 20


def verify(outcome: RunOutcome, episodes: int) -> tuple[bool, str]:
    """Load the best policy from its file and play it on fresh seeds.

    Args:
        outcome: of the run.
        episodes: to play, >= 1.

    Returns:
        Whether its mean return reaches `run.stop_at_return`, if that is set; and the sentence that says so.
    """
    config, goal = outcome.config, outcome.config.run.stop_at_return
    env_id = config.eval.env_id or config.env.id
    if outcome.ending.exit_code is not ExitCode.OK:
        return False, f"not solved {env_id}: {outcome.ending.reason}"
    try:
        policy = load_policy(outcome.folder / "eval" / "best.safetensors", trust=True)
        scores = play_policy(policy, episodes, rng=role_rng(config.seed, RandomStream.VERIFY), num_envs=_NUM_ENVS)
    except SurrealError as error:
        return False, f"not solved {env_id}: {error}"
    played = EvaluationRound(0, policy.version, tuple(scores))
    mean = played.mean_return
    is_missed = goal is not None and mean < goal
    verdict = "not solved" if is_missed else "played" if goal is None else "solved"
    return not is_missed, (
        f"{verdict} {env_id}: mean return {mean:.4g} (standard error {played.standard_error:.2g}) over "
        f"{len(scores)} episodes, "
        f"{outcome.counts.env_steps} env steps, {outcome.time_s:.0f} s"
    )
