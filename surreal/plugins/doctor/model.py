"""The model: a rehearsal of acting and learning on real observations, in one process and without Redis."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from surreal.base.errors import DivergedError, SurrealError
from surreal.base.pytorch import tensors_of
from surreal.config import Config
from surreal.plugins.doctor.finding import Check, Finding, fault, listed, milliseconds, ok
from surreal.run.lockstep.check import check_parts
from surreal.run.lockstep.rehearsal import Rehearsal, small_config
from surreal.run.process.ending import error_line

#: Updates of the rehearsal: every learner moves all its parameters within these. Fewer are enough if they take longer
#: than this time, s, because each then has many steps.
_MOST_UPDATES, _LEAST_UPDATES, _LEARN_S = 8, 3, 4.0
_SHOWN = 4
#: Way of the parameters in the rehearsal, as a share of their length, below which they have hardly moved.
_HARDLY = 1e-5
#: Rows whose outputs are compared, and the least number of different observations for a finding.
_MOST_ROWS, _LEAST_ROWS = 64, 8


class Times(NamedTuple):
    """Time limits of the rehearsal's first batch and of calls that cannot be cut, s."""

    act_s: float
    patience_s: float = 90.0


LONG = Times(20.0)
QUICK = Times(5.0)


def examine_model(config: Config, times: Times, maxmemory_bytes: int | None) -> Iterator[Check]:
    """Yield the checks; `maxmemory_bytes` is the maximum memory of the parameters' Redis, None if unknown."""
    with ExitStack() as stack:
        made: list[Rehearsal] = []

        def begin() -> Iterator[Finding]:
            try:
                check_parts(config)
                if config.env.action_space is None:
                    made.append(Rehearsal(small_config(config), stack))
                else:
                    yield ok("they can be made; acting and learning need the environments, which are elsewhere")
            except SurrealError as error:
                yield fault("cannot-run", str(error))

        yield Check("making model, agent and learner", begin, times.patience_s)
        if made:
            trial = Trial(made[0], times.act_s)
            yield Check("acting", trial.act, times.act_s + times.patience_s)
            if trial.batch is not None:
                yield Check("learning", trial.learn, times.act_s + 2 * times.patience_s)
            if made[0].model.is_materialized:
                yield Check("parameters", lambda: parameters_fit(made[0].model.tensors(), config, maxmemory_bytes))


class Trial:
    """Acts until there is a batch, then learns a few times.

    Args:
        act_s: maximum time to act for a batch, s.
    """

    def __init__(self, rehearsal: Rehearsal, act_s: float, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self._rehearsal = rehearsal
        self._act_s = act_s
        self._clock = clock
        self._probe: FiniteProbe | None = None
        self.batch: Any = None  #: the next batch; None if acting has not filled one

    def act(self) -> Iterator[Finding]:
        """Act until there is a batch, and check the model's outputs."""
        rehearsal, problem = self._rehearsal, None
        try:
            self._collect()
        except Exception as error:
            problem = fault("acting-fails", error_line(error))
        if self._probe is not None and self._probe.found:
            yield fault("model-not-finite", f"{self._probe.found}, from observations of the environment")
        elif problem is not None:
            yield problem
        elif self.batch is None:
            yield fault("no-batch", f"no batch in {self._act_s:.0f} s, which {rehearsal.env_steps:,} env steps took")
        else:
            yield ok(f"one agent on one core makes {rehearsal.env_steps_per_s:,.0f} env steps/s with its model")

    def learn(self) -> Iterator[Finding]:
        """Learn a few times, and check what the updates change."""
        learner, durations = self._rehearsal.learner, list[float]()
        learner.prepare(self.batch)
        before = {name: tensor.detach().clone() for name, tensor in _named(learner.parameter_groups()).items()}
        try:
            while self.batch is not None and not _is_enough(durations):
                durations.append(self._rehearsal.learn(self.batch))
                self.batch = self._rehearsal.next_batch()
                if self.batch is None:
                    self._collect()
        except DivergedError:
            pass  # reported below
        except Exception as error:
            yield fault("learning-fails", error_line(error))
            return
        broken = [name for name, value in learner.reading.items() if not math.isfinite(value)]
        skipped = learner.metrics().get("learner/skipped_updates_total", 0.0)
        if self._probe is not None and self._probe.found:
            yield fault("model-not-finite", f"{self._probe.found}, in an update")
        elif broken or skipped:
            what = f"{broken[0]} is not finite" if broken else f"{skipped:.0f} of {len(durations)} updates are skipped"
            yield fault("loss-not-finite", what)
        else:
            yield from self._judge(before, durations)

    def _judge(self, before: dict[str, Tensor], durations: list[float]) -> Iterator[Finding]:
        after = _named(self._rehearsal.learner.parameter_groups())
        still = [name for name, tensor in before.items() if tensor.equal(after[name].detach())]
        moved, share = len(before) - len(still), _moved_share(before, after)
        if still and not moved:
            yield fault("nothing-learns", f"none of {len(before)} tensors changes in {len(durations)} updates")
        elif share < _HARDLY:
            yield fault("hardly-learns", f"{len(durations)} updates move parameters by {share:.1g} of their length")
        elif still:
            said = f"{listed(still, _SHOWN)}: unchanged by {len(durations)} updates, which move {moved} others"
            yield fault("dead-parameters", said)
        probe = OutputProbe(self._rehearsal.model)
        self._rehearsal.act()
        probe.close()
        if probe.ignores_obs:
            yield fault("model-ignores-obs", "the model gives one and the same output for all observations")
        elif not still and share >= _HARDLY:
            steady = sorted(durations)[len(durations) // 2]
            yield ok(f"{len(durations)} updates move all of {moved} tensors; one takes {milliseconds(steady)}")

    def _collect(self) -> None:
        deadline_s = self._clock() + self._act_s
        while self.batch is None and self._clock() < deadline_s:
            self._rehearsal.act()
            if self._probe is None:  # the model has made its layers for the first observation
                self._probe = FiniteProbe(self._rehearsal.model)
                self._rehearsal.act()
            if self._probe.found:
                return
            self.batch = self._rehearsal.next_batch()


def parameters_fit(tensors: dict[str, Tensor], config: Config, maxmemory_bytes: int | None) -> Iterator[Finding]:
    """Compare the size of the parameters with the maximum memory of their Redis; None if unknown or unlimited."""
    size = sum(tensor.nbytes for tensor in tensors.values())
    number = sum(tensor.numel() for tensor in tensors.values())
    said = f"{number:,} parameters, {size / 2**20:,.3g} MiB"
    experience = 0 if config.redis.parameter_address or config.redis.replay_address else config.replay.max_bytes
    if maxmemory_bytes and experience + 3 * size > maxmemory_bytes:
        memory = f"of {maxmemory_bytes / 2**20:,.0f} MiB of Redis, experience takes {experience / 2**20:,.0f}"
        yield fault("parameters-too-large", f"{said}; {memory}")
    else:
        yield ok(said)


def _is_enough(durations: list[float]) -> bool:
    spent_s, count = sum(durations), len(durations)
    return count >= _MOST_UPDATES or (count >= _LEAST_UPDATES and spent_s > _LEARN_S) or spent_s > 2 * _LEARN_S


def _moved_share(before: dict[str, Tensor], after: dict[str, Tensor]) -> float:
    """Return how far parameters moved, as a share of the length of all of them."""
    moved = sum(float((after[name].detach() - tensor).square().sum()) for name, tensor in before.items())
    return math.sqrt(moved / max(sum(float(tensor.square().sum()) for tensor in before.values()), 1e-30))


def _named(groups: Any) -> dict[str, Tensor]:
    return {f"{group}/{name}": tensor for group, tensors in groups.items() for name, tensor in tensors.items()}


class FiniteProbe:
    """Names the first part of a model, which has made its layers, that computes NaN or infinity.

    Minus infinity is ignored: it stands for illegal actions.
    """

    def __init__(self, model: nn.Module) -> None:
        self.found = ""  #: description of the part, "" if all outputs are finite
        for name, part in model.named_modules():
            part.register_forward_hook(partial(self._look, f"{name} ({type(part).__name__})" if name else "the model"))

    def _look(self, name: str, part: nn.Module, inputs: Any, output: Any) -> None:
        if self.found:
            return
        for tensor in tensors_of(output):
            if tensor.is_floating_point() and bool((tensor.isnan() | (tensor == torch.inf)).any()):
                is_first = all(
                    not each.is_floating_point() or bool(each.isfinite().all()) for each in tensors_of(inputs)
                )
                self.found = f"{name} computes {'NaN or infinity' if is_first else 'with NaN or infinity'}"
                return


class OutputProbe:
    """Compares the outputs of a model for different observations, [N, ...]."""

    def __init__(self, model: nn.Module) -> None:
        self._handle = model.register_forward_hook(self._look)
        self._inputs: set[bytes] = set()
        self._outputs: set[bytes] = set()

    @property
    def ignores_obs(self) -> bool:
        """Whether enough observations differed, and no output did."""
        return len(self._inputs) >= _LEAST_ROWS and len(self._outputs) == 1

    def close(self) -> None:
        self._handle.remove()

    def _look(self, model: nn.Module, inputs: Any, output: Any) -> None:
        given, made = tensors_of(inputs[:1]), tensors_of(output)[:1]
        if not given or not made or not made[0].ndim or len(self._inputs) >= _MOST_ROWS:
            return
        if any(not tensor.ndim or len(tensor) != len(made[0]) for tensor in given):
            return
        for row in range(len(made[0])):
            self._inputs.add(b"".join(_bytes_of(tensor[row]) for tensor in given))
            self._outputs.add(_bytes_of(made[0][row]))


def _bytes_of(tensor: Tensor) -> bytes:
    return tensor.detach().cpu().contiguous().numpy().tobytes()
