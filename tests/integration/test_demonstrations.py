"""DemonstrationReplay on a real Redis: the share of each batch from an archive, and archives that do not fit."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from surreal.base.errors import CodecError, ContractError
from surreal.base.types import Batch
from surreal.distributed import ExpSender, RedisClient, temporary_run
from surreal.replay import DemonstrationReplay
from surreal.replay.archive import export_replay

#: Rewards tell where a step comes from.
SHOWN, FRESH = -1.0, 1.0


def send(client: RedisClient, reward: float, steps: int = 40, width: int = 3) -> None:
    with ExpSender(client, chunk_steps=16) as sender:
        for step in range(steps):
            obs = [np.full(width, reward * number, np.float32) for number in (step, step + 1)]
            sender.send(obs, np.full(2, reward, np.float32), reward, step % 10 == 9, {})


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    with temporary_run() as client:
        send(client, SHOWN)
        export_replay(client, tmp_path / "shown")
    return tmp_path / "shown"


@pytest.fixture
def client() -> Iterator[RedisClient]:
    with temporary_run() as client:
        yield client


def batches(client: RedisClient, archive: Path, count: int = 3, **options: Any) -> list[Batch]:
    options = {"batch_size": 32, "start_size": 20, "gamma": 0.9, "seed": 0, **options}
    with DemonstrationReplay(client, demonstrations=str(archive), **options) as replay:
        iterator = replay.batch_iterator()
        return [next(iterator)[1] for _ in range(count)]


@pytest.mark.parametrize(("share", "rows"), [(0.5, 16), (0.25, 8), (0.0, 0), (1.0, 32)])
def test_the_first_rows_are_demonstrations_as_a_whole(
    client: RedisClient, archive: Path, share: float, rows: int
) -> None:
    send(client, FRESH)
    for batch in batches(client, archive, share=share):
        origin = np.array([SHOWN] * rows + [FRESH] * (32 - rows))
        np.testing.assert_array_equal(batch.reward.numpy(), origin)
        np.testing.assert_array_equal(batch.action.numpy(), np.repeat(origin[:, None], 2, 1))
        np.testing.assert_array_equal((batch.next_obs - batch.obs).numpy(), np.repeat(origin[:, None], 3, 1))
        is_last = batch.obs[:, 0].abs().numpy() % 10 == 9
        np.testing.assert_allclose(batch.discount.numpy(), np.where(is_last, 0.0, 0.9))
        assert (batch.sample_info.version[:rows] == -1).all()


def test_the_share_follows_the_runs_env_steps(client: RedisClient, archive: Path) -> None:
    send(client, FRESH)  # 40 env steps
    for share in ({"share": 1.0, "share_end": 0.0, "share_steps": 80}, {"share": [[0, 1.0], [20, 0.0], [60, 1.0]]}):
        (batch,) = batches(client, archive, 1, **share)
        assert int((batch.reward == SHOWN).sum()) == 16


def test_archives_that_do_not_fit_are_refused(client: RedisClient, archive: Path, tmp_path: Path) -> None:
    with pytest.raises(CodecError, match="is not a whole replay archive"):
        DemonstrationReplay(client, demonstrations=str(tmp_path / "nothing"))
    send(client, FRESH, width=4)
    replay = DemonstrationReplay(client, demonstrations=str(archive))
    with pytest.raises(ContractError, match="of another environment"):
        for _ in range(100):
            replay.step(timeout_s=0.05)
            replay.pointer_queue.queues[0].enqueue_step()
    replay.stop()
    shutil.copytree(archive, tmp_path / "cut")
    file = next((tmp_path / "cut").glob("steps-*"))
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(CodecError, match="cut off or changed"):
        DemonstrationReplay(client, demonstrations=str(tmp_path / "cut"))
