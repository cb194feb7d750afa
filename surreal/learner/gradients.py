"""`GradientLearner`: optimizer, learning-rate schedule and gradient clipping, once for every learner that has a loss.

    def learn(self, i, batch):
        loss = ...
        self.step(loss)
        return {"loss": loss}

An update is two steps, which a learner may take apart: `gradients(loss)` computes, `apply(gradients)` changes the
parameters. What lies between them (other ranks' gradients, a parameter server) is no business of the algorithm. A
learner that `learn_with` made one of several ranks steps down the mean of all of their gradients; one that
`send_gradients` connected hands those of the model to somebody else, who changes the parameters it has.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from surreal.base.errors import CheckpointError
from surreal.base.pytorch import Module
from surreal.base.schedules import LinearSchedule
from surreal.base.values import checked_count
from surreal.learner.base import Learner, ReplayView
from surreal.learner.option_checks import check_schedule
from surreal.learner.stepping.compiling import NetworkCompiler
from surreal.learner.stepping.optimizers import MODEL, Optimizer, OptimizerSettings, check_max_norm
from surreal.learner.stepping.ranks import Ranks
from surreal.learner.stepping.reducing import Reducer
from surreal.learner.stepping.skipping import SkipCounter
from surreal.model.policy.filters import RunningMoments


class Gradients(NamedTuple):
    """Of a loss, for the parameters of one group."""

    group: str
    tensors: dict[str, Tensor]  #: by the parameter's name; those that the loss does not depend on are left out
    norm: Tensor | None = None  #: global norm of the whole gradient, a scalar, if `tensors` may be a part of it


class GradientLearner(Learner):
    """Base of learners that step down gradients. A subclass gives `learn`, and documents its own options only.

    By default there is one group of parameters, all of the model's. A subclass with several, such as an actor's and a
    critic's, says so in `build` by `optimize_group`, in place of calling `super().build()`.

    Attributes:
        only_steps_down_gradients: whether steps down gradients are all it does to the model, so that several ranks may
            do them together, and others in its place.
        skipped: counts the updates that were not done, because their gradients were not finite.
        skipped_limit: such updates in a row that show that the learner has diverged.
        takes_several_steps: whether an update may step one group of the model's parameters several times, each time
            down the gradient at the parameters that the step before left.

    Args:
        model: see `Learner`.
        replay: see `Learner`.
        optimizer: adam, rmsprop, or rmsprop_tf: RMSProp whose mean of squares begins at one, with epsilon inside its
            root.
        initial_learning_rate: > 0; raising it learns faster until it becomes unstable.
        learning_rate_end: where the linear schedule ends, >= 0.
        use_linear_schedule: anneal the learning rate from `initial_learning_rate` to `learning_rate_end`.
        max_global_step: length of all schedules, in what `schedule_step` counts; they stay at their ends afterwards.
            None: run.max_env_steps, or learner.max_updates where updates count.
        schedule_step: what schedules count: environment (env steps of the whole run) or update (updates of this
            learner).
        decay: RMSProp's, in [0, 1).
        epsilon: of the optimizer, > 0; None takes the optimizer's own.
        gradients_norm_clipping: largest global norm of a group's gradient, > 0; None clips nothing. Raising it lets
            rare large errors move the parameters further.
        compile: run the networks through torch.compile: seconds or minutes at the start, and faster updates of large
            networks on a GPU afterwards. Where it fails, one warning says so, and learning goes on without it.
        device: see `Learner`.
        metrics_interval: see `Learner`.
        histogram_interval: see `Learner`.
    """

    only_steps_down_gradients: ClassVar[bool] = True
    takes_several_steps: ClassVar[bool] = False
    skipped_limit: ClassVar[int] = 50

    def __init__(
        self,
        model: Module,
        replay: ReplayView | None = None,
        *,
        optimizer: str = "adam",
        initial_learning_rate: float = 1e-3,
        learning_rate_end: float = 0.0,
        use_linear_schedule: bool = False,
        max_global_step: int | None = None,
        schedule_step: str = "environment",
        decay: float = 0.99,
        epsilon: float | None = None,
        gradients_norm_clipping: float | None = 10.0,
        compile: bool = False,  # noqa: A002 - the name of the function that it calls
        device: str = "cpu",
        metrics_interval: int = 100,
        histogram_interval: int | None = None,
    ) -> None:
        super().__init__(
            model, replay, device=device, metrics_interval=metrics_interval, histogram_interval=histogram_interval
        )
        # What is wrong with a setting is said at once, long before the first batch makes these things.
        if learning_rate_end < 0.0:
            raise ValueError(f"learning_rate_end is {learning_rate_end}; it must be >= 0")
        if schedule_step not in ("environment", "update"):
            raise ValueError(f"schedule_step is {schedule_step!r}; it must be environment or update")
        if use_linear_schedule:
            check_schedule("use_linear_schedule", max_global_step, schedule_step)
        check_max_norm(gradients_norm_clipping)
        self.max_global_step = max_global_step
        self._settings = OptimizerSettings(optimizer, initial_learning_rate, decay, epsilon)
        self._schedule: LinearSchedule | None = None
        if use_linear_schedule and max_global_step is not None:
            self._schedule = LinearSchedule(initial_learning_rate, learning_rate_end, max_global_step)
        self._schedule_by_updates = schedule_step == "update"
        self._max_norm = gradients_norm_clipping
        self._groups: dict[str, Optimizer] = {}
        self._rate_factors: dict[str, float] = {}
        self._owned: Collection[str] | None = None
        self._norms: dict[str, Tensor] = {}
        self._send: Callable[[Sequence[Gradients]], object] | None = None
        self._reducer: Reducer | None = None
        self.skipped = SkipCounter(self.skipped_limit)
        self._compiler = NetworkCompiler() if compile else None

    @property
    def schedule_position(self) -> int:
        """Position of all schedules: env steps or updates, as `schedule_step` says."""
        return self.updates if self._schedule_by_updates else self.global_step

    def build(self) -> None:
        """Make the optimizer of all of the model's parameters."""
        self.optimize_group(MODEL, self.model.named_parameters())

    def rebuild(self) -> None:
        super().rebuild()
        self._compile_networks()

    def become_ready(self) -> None:
        super().become_ready()
        self._track_counts()
        self._compile_networks()

    def _compile_networks(self) -> None:
        """Let the model, further networks, and the networks inside of these run compiled, if they should."""
        if self._compiler is None:
            return
        for network in (self.model, *(part for part, _ in self._kept.values() if isinstance(part, Module))):
            for module in (network, *network.children()):
                self._compiler.compile(module)

    def own(self, names: Collection[str]) -> None:
        """Move only these parameters from now on, `group/name`: of several parameter servers, each has its part."""
        self._owned = names
        self._groups.clear()
        self._rate_factors.clear()
        self.rebuild()

    def optimize_group(
        self, group: str, parameters: Iterable[tuple[str, Tensor]], *, learning_rate: float | None = None
    ) -> None:
        """Give a group of parameters an optimizer of its own, whose state checkpoints keep; for `build`.

        Args:
            group: its name.
            parameters: pairs of name and parameter; none may be replaced afterwards.
            learning_rate: of its first step, > 0, annealed in proportion; None: `initial_learning_rate`.
        """
        if self._owned is not None:
            parameters = [(name, tensor) for name, tensor in parameters if f"{group}/{name}" in self._owned]
            if not parameters:
                return
        initial = self._settings.learning_rate if learning_rate is None else learning_rate
        optimizer = Optimizer(parameters, replace(self._settings, learning_rate=initial))
        self._groups[group] = optimizer
        self._rate_factors[group] = initial / self._settings.learning_rate
        name = "optimizer" if group == MODEL else f"optimizer-{group}"
        self.keep(name, optimizer, expected=optimizer.expected_tensors)

    def gradients(self, loss: Tensor, group: str = MODEL, *, keep_graph: bool = False) -> Gradients:
        """Differentiate a scalar loss by the parameters of a group; changes nothing, but frees the loss's graph."""
        return Gradients(group, self._groups[group].gradients(loss, keep_graph=keep_graph))

    def send_gradients(self, send: Callable[[Sequence[Gradients]], object]) -> None:
        """Have gradients of the model's parameters sent in place of applied; others, as of curiosity, stay here.

        Args:
            send: called in `step` with the gradients of one loss, which it may keep; who receives them changes the
                parameters, of which this process gets the new ones.
        """
        self._send = send

    def is_sent(self, group: str) -> bool:
        """Whether gradients of a group are sent: all of its parameters are the model's, which everybody has."""
        mine = {id(parameter) for parameter in self.model.parameters()}
        return self._send is not None and all(id(each) in mine for each in self._groups[group].named.values())

    def learn_with(self, ranks: Ranks) -> None:
        """From now on, step down the mean of the gradients of all ranks, at the same time as they do.

        Whoever calls it sees to it that all ranks begin with the same state, and do updates together.
        """
        self._reducer = Reducer(ranks, self._groups)
        self._track_counts()

    def share_counts(self) -> None:
        """Count in what the filters of all other ranks have counted since the last call; at an update's beginning."""
        if self._reducer is not None:
            self._reducer.share_counts(self.model)

    def _track_counts(self) -> None:
        for module in self.model.modules() if self._reducer is not None else ():
            if isinstance(module, RunningMoments):
                module.track()

    def apply(self, gradients: Gradients) -> None:
        """Do one step down the gradients of a group: clip them, anneal the learning rate, change the parameters.

        Gradients that are not finite change nothing, and are counted. The model's lock is held only while parameters
        change: agents in this process, which share the model, act on otherwise.

        Raises:
            RankError: another rank is gone.
        """
        if self._reducer is None:
            self._apply(gradients)
            return
        for group, mean in self._reducer.steps(gradients.group, gradients.tensors):
            self._apply(Gradients(group, mean))

    def _update(self, i: int, batch: Any) -> Mapping[str, Tensor | float]:
        metrics = super()._update(i, batch)
        if self._reducer is not None:
            for group, mean in self._reducer.steps(None, {}):
                self._apply(Gradients(group, mean))
            with self.model.lock:
                self._reducer.share_counts(self.model)
                self._reducer.follow_first(self.model, [part for part, _ in self._kept.values()])
        return metrics

    def _apply(self, gradients: Gradients) -> None:
        norm = self._step(gradients)
        self._norms[gradients.group] = norm
        self.skipped.note(gradients.group, norm)

    def _step(self, gradients: Gradients) -> Tensor:
        """Change the parameters, and return the gradients' norm."""
        if self._owned is not None and gradients.group not in self._groups and gradients.norm is not None:
            return gradients.norm  # another parameter server has all of this group
        optimizer = self._groups[gradients.group]
        if self._schedule is not None:
            rate = self._schedule(self.schedule_position)
            optimizer.learning_rate = rate * self._rate_factors[gradients.group]
        self.show_gradients(gradients)
        return optimizer.apply(gradients.tensors, max_norm=self._max_norm, lock=self.model.lock, norm=gradients.norm)

    def show_gradients(self, gradients: Gradients) -> None:
        """Let histograms have gradients, not clipped yet, if they still want those of this group."""
        if self.histograms.wants_gradients(gradients.group):
            self.histograms.add_gradients(gradients.group, gradients.tensors)

    def step(self, loss: Tensor, *groups: str) -> None:
        """Do one step down the gradient of a loss, of these groups or of `MODEL`: `apply(gradients(loss))`."""
        names = groups or (MODEL,)
        found = [self.gradients(loss, name, keep_graph=name != names[-1]) for name in names]
        sent = [] if self._send is None else [each for each in found if self.is_sent(each.group)]
        for gradients in found:
            if gradients in sent:
                self.show_gradients(gradients)
            else:
                self.apply(gradients)
        if self._send is not None and sent:
            self._send(sent)

    def finish_update(self, metrics: Mapping[str, Tensor | float]) -> None:
        is_read = self.is_metrics_due or self.device.type == "cpu"  # reading waits for a GPU
        super().finish_update(metrics)
        self._norms.clear()
        self.skipped.end_update()
        if is_read:
            self.skipped.check()

    @property
    def skipped_updates(self) -> int:
        return self.skipped.total

    def check_learned(self) -> None:
        self.skipped.check_all()

    def state_dict(self) -> dict[str, Any]:
        found = super().state_dict()
        found["state"]["skipped_updates"] = self.skipped.total
        return found

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        try:
            skipped = checked_count(state_dict["state"].get("skipped_updates", 0))
        except ValueError as error:
            raise CheckpointError(f"the checkpoint's skipped_updates: {error}") from error
        super().load_state_dict(state_dict)
        self.skipped.restore(skipped)

    def metrics(self) -> dict[str, float]:
        skipped = {"learner/skipped_updates_total": float(self.skipped.total)}
        return super().metrics() | skipped | (self._reducer.metrics() if self._reducer is not None else {})

    def parameter_groups(self) -> Mapping[str, Mapping[str, Tensor]]:
        return {group: optimizer.named for group, optimizer in self._groups.items()}

    def common_metrics(self) -> Mapping[str, Tensor | float]:
        """Learning rate, norm of the gradients before clipping and of the parameters, by group."""
        found = dict[str, Any]()
        for group, tensors in self.parameter_groups().items():
            suffix = "" if group == MODEL else f"_{group}"
            found[f"weight_norm{suffix}"] = torch.nn.utils.get_total_norm([each.detach() for each in tensors.values()])
            if group in self._groups:
                found[f"learning_rate{suffix}"] = self._groups[group].learning_rate
            if group in self._norms:
                found[f"gradient_norm{suffix}"] = self._norms[group]
        return found
