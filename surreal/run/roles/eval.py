"""The evaluation process: follows the parameters and scores the policy.

    python -m surreal.run.roles.eval cartpole-dqn --run my-run --redis 127.0.0.1:6379

A round is `eval.episodes` whole episodes with one frozen version, in environments without training wrappers. The best
policy is kept as a file. A round that reaches `run.stop_at_return` is extended by `eval.confirm_episodes`. If those by
themselves show with 95 % confidence that the goal is reached, the run ends: the first of many rounds to reach a goal is
often a lucky one.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress

from surreal.base.errors import EnvError, RedisUnavailableError, StoppedError
from surreal.base.system.logs import WaitNotice
from surreal.envs import record_video
from surreal.run.build.acting import build_evaluator, build_greedy_agent, build_listener, build_model
from surreal.run.build.environments import build_env, env_spaces
from surreal.run.evaluation import EvaluationRound
from surreal.run.process import registry
from surreal.run.process.arguments import parse
from surreal.run.process.progress import has_learned, read_progress
from surreal.run.process.role import RoleProcess, run_role
from surreal.run.process.roles import EVAL
from surreal.run.session.score_sharing import ScoreSender, claim_scores
from surreal.run.session.scores import RoundFile

logger = logging.getLogger("surreal.run.roles.eval")  # __name__ is __main__ in a separate process

_POLL_INTERVAL_S = 0.2
_UPDATE_TIMEOUT_S = 1.0
#: How long the last round may take when the run ends, s.
_LAST_ROUND_S = 10.0
#: Episodes that confirm a goal are played in portions; hopeless ones end early.
_PORTION = 100


class EvaluationSession:
    """Rounds, their book-keeping, and their videos."""

    def __init__(self, process: RoleProcess, stack: ExitStack) -> None:
        config = self.config = process.config
        self.process = process
        count = min(config.eval.num_envs, max(config.eval.episodes, config.eval.confirm_episodes))
        modes = ["human" if config.eval.show_ui and index == 0 else None for index in range(count)]
        envs = [build_env(config, training=False, render_mode=mode) for mode in modes]
        self.spaces = env_spaces(envs[0])
        self.model = build_model(config, self.spaces)
        agent = build_greedy_agent(config, self.model, self.spaces, rng=process.rng(0))
        self.agent = stack.enter_context(closing(agent))
        self.listener = stack.enter_context(closing(build_listener(config, process.parameter_client, self.model)))
        (process.run_dir / "eval").mkdir(parents=True, exist_ok=True)
        stack.callback(claim_scores(process.run_dir / "eval").release)
        self.book = RoundFile(process.run_dir / "eval", keep=config.checkpoint.best_checkpoints_to_keep)
        is_elsewhere = process.role is EVAL and not process.arguments.supervised
        self._sender = ScoreSender(process.client, self.book, is_elsewhere=is_elsewhere)
        stack.callback(self._sender.send_waiting)
        self.evaluator = stack.enter_context(closing(build_evaluator(config, self.agent, envs, rng=process.rng(1))))
        self._started_s = -float("inf")
        self._away_s = 0.0
        self._has_reached_goal = False  # and ended the run
        self._latest: dict[str, float] = {}
        process.telemetry.add_source(self._metrics)
        process.telemetry.add_source(self.listener.metrics)
        process.telemetry.watch(version=lambda: self.model.version)
        process.startup.mark_restored()

    def run(self) -> None:
        """Play a round for each new version, as often as the settings say, until the run ends."""
        notice = WaitNotice(logger, level=logging.INFO)
        while not self.process.should_stop():
            if self.step():
                notice.end()
                continue
            if self.model.version == 0:
                notice.tell("waiting for the learner's first parameters")
            self.process.stop.wait(_POLL_INTERVAL_S)

    def step(self) -> bool:
        """Play a round if one is due; returns whether one was played."""
        if time.monotonic() - self._started_s < self.config.eval.interval_s:
            return False
        if not self._update() or not self._is_new():
            return False
        self._started_s = time.monotonic()
        self._play_and_record()
        return True

    def score_newest(self) -> bool:
        """Play a round with the newest parameters, even if they have a score; returns whether they reach the goal."""
        return self._update() and self.model.version > 0 and self._play_and_record()

    def _play_and_record(self) -> bool:
        result, reaches = self._play(self.process.stop)
        if self.config.eval.record_video_every and result.number % self.config.eval.record_video_every == 0:
            self._record(result.number)
        return reaches

    def last_round(self) -> None:
        """Score the newest parameters once more, if that takes no longer than a moment, and none reached the goal."""
        if self._has_reached_goal or not self._update() or not self._is_new():
            return
        late = threading.Event()
        timer = threading.Timer(_LAST_ROUND_S, late.set)
        timer.start()
        try:
            self._play(late)
        except StoppedError:
            logger.info("the last round took too long and does not count")
        finally:
            timer.cancel()

    def _update(self) -> bool:
        """Load the newest parameters; false while Redis is away, which is waited for as long as any client waits."""
        try:
            self.listener.update_once(timeout_s=_UPDATE_TIMEOUT_S)
        except RedisUnavailableError:
            now = time.monotonic()
            self._away_s = self._away_s or now
            if now - self._away_s > self.process.parameter_client.retry_timeout_s:
                raise
            return False
        self._away_s = 0.0
        return True

    def _is_new(self) -> bool:
        version = self.model.version
        # After Redis was emptied, versions of another epoch may be smaller; they are new all the same.
        return version > 0 and version != self.book.last_version

    def _play(self, stop: threading.Event) -> tuple[EvaluationRound, bool]:
        settings, goal = self.config.eval, self.config.run.stop_at_return
        version = self.model.version
        # The seed is of the version, not of this process: a run that is resumed plays the same episodes as one that was
        # not.
        self.evaluator.rng = self.process.rng(1, version)
        scores = self.evaluator.play(settings.episodes, stop=stop, on_step=self._on_step)
        result = EvaluationRound(self.book.rounds, version, tuple(scores))
        # A round that says nothing, or is of a policy that has learned nothing, never ends a run.
        is_candidate = has_learned(self.listener.message) and not result.problem
        reaches = goal is not None and is_candidate and result.mean_return >= goal
        if reaches and goal is not None and settings.confirm_episodes:
            fresh = self._confirm(result, goal, stop)
            result, reaches = result.extended(fresh.scores), not fresh.problem and fresh.lower_bound >= goal
        self._write_down(result, reaches_goal=reaches)
        if reaches:
            self._has_reached_goal = True
            mean = f"mean return {result.mean_return:.1f} over {len(result.scores)} episodes"
            self.process.request_stop(f"stop_at_return: {mean}")
        return result, reaches

    def _confirm(self, result: EvaluationRound, goal: float, stop: threading.Event) -> EvaluationRound:
        """Play `eval.confirm_episodes` fresh episodes, or fewer if they show that the goal is out of reach."""
        fresh, wanted = result.of(()), self.config.eval.confirm_episodes
        while len(fresh.scores) < wanted:
            count = min(_PORTION, wanted - len(fresh.scores))
            fresh = fresh.extended(self.evaluator.play(count, stop=stop, on_step=self._on_step))
            if fresh.problem or fresh.upper_bound < goal:
                break
        return fresh

    def _on_step(self) -> None:
        self.process.turn()
        self.process.startup.mark_first_step()

    def _write_down(self, result: EvaluationRound, *, reaches_goal: bool) -> None:
        progress = read_progress(self.listener.message)
        self.process.telemetry.global_step = progress.get("global_step", 0)
        metadata = {
            "run": self.process.client.run,
            "config": registry.plain_config(self.config),
            "model": self.model.header(),
        }
        is_trained = has_learned(self.listener.message)
        tensors = self.model.tensors()
        is_best = self.book.add(result, tensors, metadata, progress, has_learned=is_trained, reaches_goal=reaches_goal)
        self._sender.send_newest(is_best=is_best)
        self._latest = {
            "eval/episode_return": result.mean_return,
            "eval/episode_return_std": result.std_return,
            "eval/episode_length": result.mean_length,
            **({} if self.book.best_return is None else {"eval/episode_return_best": self.book.best_return}),
            **({} if result.success_ratio is None else {"eval/success_ratio": result.success_ratio}),
            "eval/version": float(result.version),
            "eval/rounds_total": float(self.book.rounds),
            "eval/cut_episodes_count": float(result.cut_episodes),
            "eval/void_episodes_total": float(self.evaluator.void_episodes),
        }
        self.process.callbacks.on_evaluation(result)
        if result.problem:
            logger.error("round %d, version %d: %s", result.number, result.version, result.problem)
        logger.info(
            "round %d: mean return %.1f +- %.1f over %d episodes%s, version %d%s",
            result.number, result.mean_return, result.std_return, len(result.scores),
            "" if result.success_ratio is None else f", {result.success_ratio:.0%} successful", result.version,
            ", the best so far" if is_best else "",
        )  # fmt: skip

    def _record(self, number: int) -> None:
        try:
            env = build_env(self.config, training=False, render_mode="rgb_array")
            folder = self.process.run_dir / "eval" / "videos"
            camera = record_video(env, str(folder), name=f"round-{number:06d}")
            recorder = build_evaluator(self.config, self.agent, [camera], rng=self.process.rng(2, number))
        except EnvError as error:
            logger.warning("no video: %s", error)
            return
        with closing(recorder):
            recorder.play(1, stop=self.process.stop, on_step=self.process.turn)

    def _metrics(self) -> dict[str, float]:
        """Each round's numbers once, which the heartbeat keeps; and how far the running one is."""
        latest, self._latest = self._latest, {}
        done, wanted = self.evaluator.progress
        return {"eval/played_episodes_count": float(done), "eval/round_episodes_count": float(wanted), **latest}


def body(process: RoleProcess) -> None:
    """Evaluate until the run ends."""
    with ExitStack() as stack:
        session = EvaluationSession(process, stack)
        with suppress(StoppedError):
            session.run()
        session.last_round()


def main(argv: Sequence[str] | None = None) -> int:
    """Run an evaluation process; returns its exit code."""
    return run_role(EVAL, body, parse(EVAL, argv))


if __name__ == "__main__":
    sys.exit(main())
