"""The `checkpoint` section: what a learner keeps of itself, and where."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from surreal.config.schema.fields import Section

#: In `checkpoint.stores`: the run's folder.
RUN_STORE = "run"
_URL_PASSWORD = re.compile(r"://[^/@]*:[^/@]*@")


def refuse_password(value: str) -> str:
    """Refuse a URL with a password, which every copy of the configuration would show.

    Raises:
        ValueError: it has one.
    """
    if _URL_PASSWORD.search(value):
        raise ValueError("a URL here holds no password; give it to the file system, in its environment or its files")
    return value


#: A folder, a file, or a URL.
Location = Annotated[str, Field(min_length=1), AfterValidator(refuse_password)]


class CheckpointConfig(Section):
    """What is kept of the learner, where, and what a run starts from."""

    checkpoint_time_interval: float = Field(900.0, gt=0)
    """Seconds between checkpoints of the learner; a final one is written when the run ends."""

    interval_updates: int | None = Field(None, ge=1)
    """Updates between checkpoints, in addition to those by time. Unset: by time only."""

    stores: list[Location] = Field([RUN_STORE], min_length=1)
    """Where checkpoints go: `run` is the run's folder; any other is a folder or an fsspec URL such as
    `s3://bucket/surreal` (with the extra `s3`), in which each run has a folder under its run folder's name. Each of
    them has them all, and a run can go on from any of them. Credentials are those of the file system: for S3, AWS's
    environment variables and files."""

    upload_timeout_s: float = Field(20.0, ge=0, le=40)
    """How long the end of a run waits until the last checkpoint has arrived in all `stores`, in s."""

    checkpoints_to_keep: int = Field(3, ge=1)
    """How many of the newest checkpoints to keep."""

    best_checkpoints_to_keep: int = Field(1, ge=1)
    """How many of the best to keep: of the policies by the evaluation's rounds, and, beside the newest ones, of the
    learner's checkpoints by the mean return of the rounds that are nearest to them."""

    restore: Location | None = None
    """Checkpoint to start from: path or URL of a learner's checkpoint or of a saved policy, or a run's folder, name or
    id, which gives its best policy, or else its newest checkpoint. `FOLDER/latest` or `FOLDER/best` is the newest or
    the best of a folder of checkpoints. With `--resume`, the name of an earlier checkpoint of the run goes back to it,
    and `best` to the best one. Unset, or `latest`: the run's newest, if it has any."""
