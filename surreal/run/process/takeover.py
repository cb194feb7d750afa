"""What follows when a run's configuration replaces that of processes which came before its launcher or learner."""

from __future__ import annotations

import logging
import threading

from surreal.distributed.experience.shards import ReplayShards
from surreal.run.process.claims import Claim

logger = logging.getLogger(__name__)


def take_over(claim: Claim, replay: ReplayShards, stop: threading.Event) -> None:
    """Wait until those that differ have ended, and drop what they sent: without a limiter, all of it was taken.

    Args:
        claim: of this process, with the fingerprint of its configuration.
        replay: of the run.
        stop: ends the wait.

    Raises:
        StoppedError: `stop` was set meanwhile.
    """
    claim.wait_until_all_agree(stop)
    steps = replay.clients[0].retry(replay.delete_experience, what="drop experience", stop=stop)
    if steps:
        logger.warning(
            "%d env steps were dropped: they came from processes whose configuration was not that of run %s",
            steps, replay.run,
        )  # fmt: skip
