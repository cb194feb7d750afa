"""DemonstrationReplay: a share of each batch from demonstrations, the rest from the run (RLPD, Ball et al. 2023).

arXiv:2302.02948 samples both halves uniformly, and gives the learner nothing else: any off-policy learner does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from surreal.base.errors import ContractError
from surreal.base.ranges import PositiveInt, Share, checked
from surreal.base.schedules import LinearSchedule, ScheduleSettings, read_schedule
from surreal.base.types import Batch
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.experience.codec import Chunk, Contract
from surreal.distributed.experience.data_contract import EXTRA_PREFIX
from surreal.distributed.experience.shards import ReplayShards
from surreal.replay.archive.files import ReplayArchive
from surreal.replay.base import UniformReplay
from surreal.replay.store.rows import Observations, sample_uniform
from surreal.replay.store.storage import Gathered, TransitionStore


class DemonstrationReplay(UniformReplay):
    """Samples the first rows of each batch from an archive, which it keeps in memory, and the others from the run.

    `start_size`, `capacity` and `max_bytes` count the run's transitions only; `samples_per_insert` counts all rows.

    Args:
        demonstrations: folder of an archive, see `surreal replay export` and `convert`.
        share: share of rows from demonstrations; raising it stays closer to them. A number, or a schedule over env
            steps of the run, such as points [[0, 0.5], [100000, 0.1]].
        share_end: last value of the share, which changes along a line over `share_steps`; None: it stays.
        share_steps: env steps of the run until the share is `share_end`; raising it leaves demonstrations later.

    Raises:
        CodecError: there is no whole archive at the path.
        ValueError: an argument is out of range.
    """

    @checked
    def __init__(
        self,
        client: RedisClient | ReplayShards,
        *,
        demonstrations: str,
        share: Share | ScheduleSettings = 0.5,
        share_end: Share | None = None,
        share_steps: PositiveInt = 100_000,
        **options: Any,
    ) -> None:
        self._archive = ReplayArchive(Path(demonstrations))
        self._archive.verify()
        self._share: Callable[[int], float]
        if isinstance(share, Sequence | Mapping):
            if share_end is not None:
                raise ValueError("share is a schedule, so share_end cannot be its end")
            self._share = read_schedule("share", share, Share)
        else:
            self._share = LinearSchedule(share, share if share_end is None else share_end, share_steps)
        self._demonstrations: TransitionStore | None = None
        super().__init__(client, **options)

    def _make_store(self, contract: Contract, observations: Observations) -> TransitionStore:
        self._demonstrations = self._load(contract)
        return super()._make_store(contract, observations)

    def aggregate_batch(self, gathered: Gathered) -> Batch:
        store, number = self._demonstrations, round(self._share(self.global_step) * len(gathered.reward))
        if store is not None and number:
            indices = sample_uniform(self.rng, 0, len(store), number)
            shown = store.gather(indices, np.full(number, 1.0 / len(store)))
            pairs = [*zip(gathered.obs, shown.obs, strict=True), *zip(gathered.next_obs, shown.next_obs, strict=True)]
            pairs += [(getattr(gathered, name), getattr(shown, name)) for name in ("action", "reward", "discount")]
            pairs += [(column, shown.extras[name]) for name, column in gathered.extras.items()]
            for column, theirs in pairs:
                column[:number] = theirs
            info = gathered.sample_info
            for column, nothing in ((info.generation, -1), (info.version, -1), (info.probability, 1.0 / len(store))):
                column[:number] = nothing
        return super().aggregate_batch(gathered)

    def metrics(self) -> dict[str, float]:
        return super().metrics() | {"replay/demonstration_share": self._share(self.global_step)}

    def _load(self, contract: Contract) -> TransitionStore:
        """Keep the archive's transitions, in the form that the run's have; raises `ContractError` if they differ."""
        theirs = self._archive.contract
        if (theirs.obs, theirs.action, theirs.stack) != (contract.obs, contract.action, contract.stack):
            raise ContractError(f"{self._archive.path} holds experience of another environment than the run")
        if missing := set(contract.extras) - set(theirs.extras):
            raise ContractError(f"{self._archive.path} lacks the columns {sorted(each.name for each in missing)}")
        if theirs.lookahead < self.n_step - 1:
            problem = f"n_step is {self.n_step}, but {self._archive.path} has a lookahead of {theirs.lookahead} steps"
            raise ContractError(f"{problem}; it needs {self.n_step - 1}")
        store = TransitionStore(
            replace(contract, lookahead=theirs.lookahead),
            capacity=self._archive.manifest.steps,
            n_step=self.n_step,
            gamma=self.gamma,
        )
        for chunk in self._archive.chunks():
            columns = {name: each for name, each in chunk.columns.items() if not name.startswith(EXTRA_PREFIX)}
            extras = {extra.name: chunk.columns[EXTRA_PREFIX + extra.name] for extra in contract.extras}
            own = int(chunk.segments[:, 1].sum())
            store.insert(Chunk(chunk.segments, columns, extras, chunk.leaves, own))
        return store
