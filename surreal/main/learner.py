"""The learner process: draws batches from the replay, improves the model, broadcasts it, and writes checkpoints.

    python -m surreal.main.learner cartpole-dqn --run my-run --redis 127.0.0.1:6379

It also runs the collector, which brings logs and metrics of all processes into the run's folder.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from surreal.checkpoint import Checkpoint, CheckpointStore
from surreal.distributed.telemetry.collector import Collector
from surreal.distributed.telemetry.heartbeats import live_processes, newest_version
from surreal.errors import ConfigError, StoppedError, SurrealError
from surreal.learner import Learner
from surreal.main.build.acting import build_listener, build_model
from surreal.main.build.environments import build_spaces
from surreal.main.build.learning import build_broadcaster, build_checkpoints, build_learner, build_replay
from surreal.main.build.saved_policy import policy_tensors
from surreal.main.offline import fill_replay, run_offline_learner
from surreal.main.process import registry
from surreal.main.process.arguments import parse
from surreal.main.process.registry import read_progress, write_progress
from surreal.main.process.role import RoleProcess, run_role
from surreal.main.session.priorities import PrioritiesSaver
from surreal.metrics import RateMeter
from surreal.replay import Replay
from surreal.utils.threads import Supervisor

logger = logging.getLogger("surreal.main.learner")  # __name__ is __main__ in a process of its own

_DEQUEUE_TIMEOUT_S = 0.2
_CHECK_INTERVAL_S = 0.5


class LearnerSession:
    """Everything that goes on around `Learner.optimize`: broadcasts, checkpoints, limits.

    Args:
        process: the frame.
        stack: closes what is opened here.
    """

    def __init__(self, process: RoleProcess, stack: ExitStack) -> None:
        config = self.config = process.config
        self.process = process
        spaces = build_spaces(config)
        self.model = build_model(config, spaces)
        seed = int(process.rng().integers(2**31))
        self.replay: Replay[Any] = build_replay(config, process.replay, seed=seed)
        self.learner: Learner = build_learner(config, self.model, self.replay)
        self.broadcaster = build_broadcaster(config, process.parameter_client, self.model, process.stop)
        stack.callback(self.broadcaster.close)
        self.store: CheckpointStore = build_checkpoints(config, process.run_dir)
        self._started_s = self._checkpoint_s = time.monotonic()
        self._broadcast_s = 0.0
        self._checked_s = 0.0
        self._priorities = PrioritiesSaver(self.replay, process.run_dir)
        self._broadcast_updates = self._checkpoint_updates = 0
        self._is_done = False
        self._rate = RateMeter("learner/updates_per_s")

    def begin(self) -> None:
        """Restore, take over the policy, and let everyone have the parameters."""
        self._restore()
        self._priorities.load()
        beats = live_processes(self.process.client)
        self.broadcaster.propose(newest_version(beats))
        self._rate = RateMeter("learner/updates_per_s")
        self._rate.total = self.learner.updates
        self._rate.metrics()
        telemetry = self.process.telemetry
        for source in (self.learner.metrics, self.replay.metrics, self.broadcaster.metrics, self._metrics):
            telemetry.add_source(source)
        telemetry.watch(version=lambda: self.broadcaster.version, global_step=lambda: self.replay.global_step)
        self._checkpoint_updates = self.learner.updates
        if self.model.is_materialized:
            self.broadcast()

    def run(self) -> None:
        """Learn until the run ends, or this learner's updates are done."""
        limit = self.config.learner.max_updates
        i = 0
        while not self.process.should_stop() and not self._is_done:
            batch = self.replay.dequeue(_DEQUEUE_TIMEOUT_S)
            if batch is not None:
                self.learner.optimize(i, batch)
                i += 1
                self._after_update()
            elif self.replay.stream_mode == "consume":
                # Agents may wait for room, which there is after the commit that follows a broadcast.
                self._broadcast_if_due(1)
            self.broadcaster.maintain()
            self._check_limits()
            if limit is not None and self.learner.updates >= limit:
                self._request_stop(f"max_updates: {self.learner.updates} updates were done")
                return

    def broadcast(self) -> None:
        """Publish the parameters with how far the run is."""
        self.broadcaster.broadcast(self.model, write_progress(self.learner.updates, self.replay.global_step))
        self._broadcast_s = time.monotonic()
        self._broadcast_updates = self.learner.updates
        self.replay.commit(self.broadcaster.version)

    def checkpoint(self) -> None:
        """Write the whole state."""
        state = self.learner.state_dict()
        metadata = {
            "kind": "learner",
            "state": state["state"],
            "replay": self.replay.state_dict(),
            "version": self.broadcaster.version,
            "config": registry.plain_config(self.config),
        }
        path = self.store.save(self.learner.updates, state["tensors"], metadata)
        self._checkpoint_s = time.monotonic()
        self._checkpoint_updates = self.learner.updates
        logger.info("checkpoint %s at update %d", path, self.learner.updates)

    def end(self) -> None:
        """Hand out and keep what was learned last."""
        self.replay.stop()
        if self.learner.updates > self._checkpoint_updates:
            self.checkpoint()
        self._priorities.save()
        if self.learner.updates > self._broadcast_updates and self.process.telemetry.is_connected:
            try:
                self.broadcast()
            except (SurrealError, OSError) as error:
                logger.warning("the last parameters were not broadcast: %s", error)

    def _after_update(self) -> None:
        self._broadcast_if_due(self.config.broadcast.interval_updates)
        by_updates = self.config.checkpoint.interval_updates
        if by_updates is not None and self.learner.updates - self._checkpoint_updates >= by_updates:
            self.checkpoint()

    def _broadcast_if_due(self, interval_updates: int) -> None:
        has_learned = self.learner.updates - self._broadcast_updates >= interval_updates
        if has_learned and time.monotonic() - self._broadcast_s >= self.config.broadcast.interval_s:
            self.broadcast()

    def _check_limits(self) -> None:
        now = time.monotonic()
        if now - self._checked_s < _CHECK_INTERVAL_S:
            return
        self._checked_s = now
        if now - self._checkpoint_s >= self.config.checkpoint.checkpoint_time_interval:
            if self.learner.updates > self._checkpoint_updates:
                self.checkpoint()
            self._checkpoint_s = now
        self._priorities.save_if_due()
        limits = self.config.run
        if limits.max_env_steps is not None and self.replay.global_step >= limits.max_env_steps:
            self._request_stop(f"max_env_steps: {self.replay.global_step} env steps were done")
        # Under a launcher the clock is the launcher's: it began earlier, and survives this process.
        seconds = now - self._started_s
        if limits.max_time_s is not None and not self.process.arguments.supervised and seconds >= limits.max_time_s:
            self._request_stop(f"max_time_s: {seconds:.0f} s have passed")

    def _request_stop(self, reason: str) -> None:
        if self.config.replay.follow:  # the run is another learner's
            self._is_done = True
            logger.info("done: %s", reason)
            return
        client = self.process.client
        if self.process.telemetry.stop_reason is None:
            client.retry(lambda: registry.request_stop(client, reason), what="end the run", stop=self.process.stop)

    def _restore(self) -> None:
        found = self._find_checkpoint()
        if found is None:
            self._take_over_parameters()
            return
        metadata = found.metadata
        if metadata.get("kind") != "learner":
            # A policy alone: a start for the network, while all that is counted begins anew.
            self.model.load_tensors(policy_tensors(found))
            logger.info("beginning with the policy in %s", found.path)
            return
        self.learner.load_state_dict({"tensors": found.tensors, "state": metadata["state"]})
        self.broadcaster.propose(int(metadata["version"]))
        if found.path.startswith(self.store.folder):
            self.replay.load_state_dict(metadata["replay"])
        logger.info("restored %s: %d updates", found.path, self.learner.updates)

    def _find_checkpoint(self) -> Checkpoint | None:
        restore = self.config.checkpoint.restore
        names = self.store.names()
        if names and not self.process.arguments.resume and not self._has_parameters():
            raise ConfigError(
                f"{self.store.folder} holds checkpoints of an earlier run; --resume goes on with it, "
                "--run NAME or --run-dir DIR begins another",
                key="--run-dir",
            )
        if names:
            return self.store.newest_whole()
        if restore is None or restore == "latest":
            return None
        return self.store.load(restore)

    def _has_parameters(self) -> bool:
        client = self.process.parameter_client
        return bool(client.redis.hexists(client.policy_keys(self.config.broadcast.policy).params, "version"))

    def _take_over_parameters(self) -> None:
        """Without a checkpoint, go on from what was broadcast last: better than from scratch."""
        if not self._has_parameters():
            return
        listener = build_listener(self.config, self.process.parameter_client, self.model)
        try:
            if listener.update_once():
                # Counts go on too: schedules and limits depend on them.
                self.learner.updates = read_progress(listener.message).get("updates", 0)
                logger.info("no checkpoint; going on from the parameters of version %d", listener.version)
        finally:
            listener.close()

    def _metrics(self) -> dict[str, float]:
        self._rate.total = self.learner.updates
        newest = self.replay.metrics().get("replay/newest_version", -1.0)
        lag = {"learner/policy_lag_versions": self.broadcaster.version - newest} if newest >= 0 else {}
        return {**self._rate.metrics(), **lag}


def body(process: RoleProcess) -> None:
    """Learn until the run ends."""
    with ExitStack() as stack:
        _keep_torch_out_of_tmp(process.run_dir, stack)
        collector = Collector(process.client, process.run_dir)
        collecting = Supervisor("learner")
        process.at_end(lambda: _finish_collecting(process, collecting, collector))
        session = LearnerSession(process, stack)
        if process.arguments.offline is not None:
            fill_replay(process, process.arguments.offline)
        session.begin()
        collecting.spawn("collector", collector.step)
        session.replay.start_threads()
        stack.callback(session.replay.join, 5.0)
        stack.callback(session.replay.stop)
        with suppress(StoppedError):
            session.run()
        session.end()


def _keep_torch_out_of_tmp(run_dir: Path, stack: ExitStack) -> None:
    """Torch's optimizers make a compiler cache, in /tmp for ever unless told otherwise; empty if nobody compiles."""
    if "TORCHINDUCTOR_CACHE_DIR" not in os.environ:
        folder = (run_dir / "torch-cache").absolute()
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder)
        stack.callback(_remove_if_empty, folder)


def _remove_if_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()


def _finish_collecting(process: RoleProcess, supervisor: Supervisor, collector: Collector) -> None:
    supervisor.stop()
    supervisor.join(5.0)
    if not process.arguments.supervised:  # else the launcher does it, when all have ended
        collector.drain(2.0)
    collector.close()


def main(argv: Sequence[str] | None = None) -> int:
    """Run a learner process; returns its exit code."""
    given = list(sys.argv[1:] if argv is None else argv)
    arguments = parse("learner", given, (__doc__ or "").strip())

    def run(final: list[str]) -> int:
        return run_role("learner", body, final, __doc__)

    if arguments.offline is None or arguments.supervised:  # a launcher has prepared everything
        return run(given)
    return run_offline_learner(arguments, given, run)


if __name__ == "__main__":
    sys.exit(main())
