"""Settings of a run that a replay cannot work with, found before anything is started.

Only settings for which the constructor of a replay has an argument are checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from surreal.replay.stream.limiter import Senders, least_tolerance

_TOLERANCE = "replay.samples_per_insert_tolerance"


@dataclass(frozen=True)
class ReplayPlan:
    """The settings of a replay that a run would make, and of the senders that would insert."""

    #: arguments of the constructor by name: those of the run, or the constructor's own defaults
    arguments: Mapping[str, Any]
    senders: Senders  #: the processes that will insert
    compression: str | None = None  #: compression of the observations that they send; None: none
    max_env_steps: int | None = None  #: env steps after which the run ends; None: no bound


def conflicts(plan: ReplayPlan, *, steps_per_sample: int) -> Iterator[tuple[str, str]]:
    """Yield the conflicts of any replay: the key to blame, and a sentence that begins with its value.

    For each row of a batch, the limiter counts `steps_per_sample` transitions.
    """
    yield from _size_conflicts(plan)
    yield from _limiter_conflicts(plan, steps_per_sample)
    if plan.compression is not None and plan.arguments.get("observations") == "remote":
        problem = f"is {plan.compression}, but replay.observations is remote, which fetches single rows"
        advice = "leave compression out, or set observations to mirrored, compressed or auto"
        yield "sender.compression", f"{problem}; {advice}"


def single_step_conflicts(plan: ReplayPlan, reason: str) -> Iterator[tuple[str, str]]:
    """Yield a conflict if a replay of single steps, for this reason, is to sum the rewards of several."""
    n_step = plan.arguments.get("n_step", 1)
    if n_step != 1:
        yield "learner.n_step", f"is {n_step}, but {reason}"


def _size_conflicts(plan: ReplayPlan) -> Iterator[tuple[str, str]]:
    start_size, capacity, batch_size = (plan.arguments.get(name) for name in ("start_size", "capacity", "batch_size"))
    senders, limit = plan.senders, plan.max_env_steps
    if start_size is not None and capacity is not None and start_size > capacity:
        problem = f"is {start_size}, but replay.capacity is {capacity}: learning would never start"
        yield "replay.start_size", f"{problem}; lower start_size or raise capacity"
    if batch_size is not None and capacity is not None and batch_size > capacity:
        problem = f"is {batch_size}, more than replay.capacity, {capacity}"
        yield "learner.batch_size", f"{problem}; lower it or raise capacity"
    if capacity is not None and senders.steps_in_flight > capacity:
        chunks = f"one chunk of each of {senders.number} agents is {senders.steps_in_flight} steps"
        problem = f"is {senders.chunk_steps}: {chunks}, more than replay.capacity, {capacity}"
        yield "sender.chunk_steps", f"{problem}; lower chunk_steps or raise capacity"
    if limit is not None and start_size is not None and limit <= start_size:
        problem = f"is {limit}, not more than replay.start_size, {start_size}: the run would end before it learns"
        yield "run.max_env_steps", f"{problem}; raise max_env_steps or lower start_size"


def _limiter_conflicts(plan: ReplayPlan, steps_per_sample: int) -> Iterator[tuple[str, str]]:
    """The samples-per-insert band must fit the agents' chunks and a batch, or both sides wait for each other."""
    names = ("samples_per_insert", "samples_per_insert_tolerance", "batch_size")
    ratio, tolerance, batch_size = (plan.arguments.get(name) for name in names)
    if ratio is None or tolerance is None or batch_size is None:
        return
    senders = plan.senders
    least = least_tolerance(ratio, batch_size * steps_per_sample, senders)
    steps = f" x {steps_per_sample} steps" if steps_per_sample > 1 else ""
    wait = "or agents and learner wait for each other forever; raise it, leave it out, or lower"
    reasons = {
        least.in_flight: f"samples_per_insert {ratio:g} x {senders.number} agents x sender.chunk_steps "
        f"{senders.chunk_steps}, {wait} sender.chunk_steps",
        least.batch: f"learner.batch_size {batch_size}{steps} + samples_per_insert {ratio:g}, or no batch fits; "
        "raise it or leave it out",
        least.chunk: f"samples_per_insert {ratio:g} x {senders.largest_chunk_steps}, the steps of an agent's largest "
        f"chunk (sender.chunk_steps - 1 + env.num_envs x (1 + lookahead {senders.lookahead})), {wait} env.num_envs",
    }
    for needed, reason in reasons.items():
        if tolerance < needed:
            yield _TOLERANCE, f"is {tolerance:g}; it must be >= {needed:g} = {reason}"
