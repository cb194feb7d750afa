"""`GradientLearner`: the base of learners that step down the gradient of a loss.

A subclass gives losses, and its stepper (see `stepping.stepper`) does the steps:
    def learn(self, i, batch):
        loss = ...
        self.step(loss)
        return {"loss": loss}
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Literal, TypeVar, cast

from torch import Tensor

from surreal.base.contracts import ReplayView, Stepper
from surreal.base.ranges import NonNegative, Positive, PositiveInt, ShareBelowOne, checked
from surreal.base.schedules import CosineSchedule, LinearSchedule, ScheduleSettings, read_schedule
from surreal.base.types import Gradients
from surreal.learner.base import BatchT, Learner, ModelT
from surreal.learner.option_checks import check_schedule
from surreal.learner.stepping.graphs import Graphs
from surreal.learner.stepping.optimizers import MODEL
from surreal.learner.stepping.ranks import Ranks
from surreal.learner.stepping.stepper import LocalStepper, ParameterGroups, PartStepper, RankStepper, SendingStepper
from surreal.learner.stepping.update_rules import OptimizerName, OptimizerSettings
from surreal.model.norms import BatchRenorm

logger = logging.getLogger(__name__)

UpdateT = TypeVar("UpdateT", bound=Callable[..., Mapping[str, Tensor]])
_RARE = 10  # updates between two readings of metrics, from which on these are rare


def one_graph(method: UpdateT) -> UpdateT:
    """Mark a method of a learner that does an update, or a part of one, as one that may be compiled as a whole.

    It computes with tensors of its arguments and of the learner's state (the model, optimizers, and what was given to
    `keep`: networks and optimizers), calls `step`, and returns scalars and tensors by name. It reads no number of a
    tensor, and nothing of the learner that changes: that must be an argument. Random numbers come from generators among
    the arguments.
    """

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        # Rare updates whose metrics are read are not worth another graph.
        if self.graphs is None or kwargs or (self.is_metrics_due and self.metrics_interval >= _RARE):
            return method(self, *args, **kwargs)
        return self.graphs.call(method, args)

    return cast(UpdateT, call)


class GradientLearner(Learner[ModelT, BatchT]):
    """Base of learners that step down gradients. A subclass gives `learn`, and documents only its additional options.

    By default, all parameters of the model are one group. A subclass with several groups, such as an actor's and a
    critic's, calls `optimize_group` for each in `build`, in place of `super().build()`.

    Args:
        optimizer: one of torch's, in any case, or rmsprop_tf: RMSProp whose mean of squares begins at one, with epsilon
            inside its root. adamw is adam with a weight decay of 0.01.
        initial_learning_rate: first learning rate; raising it learns faster until it becomes unstable.
        learning_rate_end: last value of the schedule of the learning rate.
        use_linear_schedule: whether to anneal the learning rate from `initial_learning_rate` to `learning_rate_end`.
        use_cosine_schedule: the same along half a period of a cosine, which changes slowly at both ends.
        learning_rate_factor: a schedule by which every learning rate is multiplied, in place of these two: points
            `[[step, factor], ...]`, such as a warm-up [[0, 0], [10000, 1]], or as `agent.exploration`, such as
            `{type: cosine, start: 1, end: 0.1, steps: 100000}` or `{class: my_module.MySchedule}`.
        max_global_step: length of all schedules, in units of `schedule_step`; they stay at their ends afterward. None:
            run.max_env_steps, or learner.max_updates if updates count.
        schedule_step: unit of schedules: environment (env steps of the whole run) or update (updates of this learner).
        decay: decay of RMSProp's mean of squares; raising it averages over more updates.
        epsilon: epsilon of the optimizer; None takes the optimizer's default.
        beta1: decay of Adam's mean of gradients, and momentum of sgd; raising it averages over more updates. None is
            0.9, for sgd 0.
        weight_decay: share of each parameter, times the learning rate, that a step also takes away (AdamW,
            arXiv:1711.05101); raising it keeps parameters smaller. A learned temperature does not decay. None is 0, for
            adamw 0.01.
        gradients_norm_clipping: largest global norm of a group's gradient; None: no clipping. Raising it lets rare
            large errors change the parameters more.
        compile: whether updates run as compiled graphs (`stepping/graphs.py`). auto compiles alongside the run, where
            that saves more time than it takes; true compiles before the first update; false never does. Where it
            fails, learning continues without it.
    """

    #: whether it changes the model only by gradient steps, so that several ranks, or parameter servers, may take them
    only_steps_down_gradients: ClassVar[bool] = True
    #: whether an update may step one group of the model's parameters several times, each time down the gradient at the
    #: parameters after the previous step
    takes_several_steps: bool = False
    skipped_limit: ClassVar[int] = 50  #: skipped updates in a row after which the learner counts as diverged

    @checked
    def __init__(
        self,
        model: ModelT,
        replay: ReplayView | None = None,
        *,
        optimizer: OptimizerName = "adam",
        initial_learning_rate: Positive = 1e-3,
        learning_rate_end: NonNegative = 0.0,
        use_linear_schedule: bool = False,
        use_cosine_schedule: bool = False,
        learning_rate_factor: float | ScheduleSettings | None = None,
        max_global_step: int | None = None,
        schedule_step: Literal["environment", "update"] = "environment",
        decay: ShareBelowOne = 0.99,
        epsilon: Positive | None = None,
        beta1: ShareBelowOne | None = None,
        weight_decay: NonNegative | None = None,
        gradients_norm_clipping: Positive | None = 10.0,
        compile: bool | Literal["auto"] = "auto",  # noqa: A002 - the name of what torch calls it
        device: str = "cpu",
        metrics_interval: PositiveInt = 100,
        histogram_interval: PositiveInt | None = None,
    ) -> None:
        super().__init__(
            model, replay, device=device, metrics_interval=metrics_interval, histogram_interval=histogram_interval
        )
        if compile not in (True, False, "auto"):
            raise ValueError(f"compile is {compile!r}; it must be auto, true or false")
        self.max_global_step = max_global_step
        self._schedule_step = schedule_step
        rate: Callable[[], float] | None = None
        if use_linear_schedule + use_cosine_schedule + (learning_rate_factor is not None) > 1:
            raise ValueError("use_linear_schedule, use_cosine_schedule and learning_rate_factor: use one of them")
        if learning_rate_factor is not None:
            factor = read_schedule("learning_rate_factor", learning_rate_factor)
            rate = lambda: initial_learning_rate * factor(self.schedule_position)  # noqa: E731
        if use_linear_schedule or use_cosine_schedule:
            option = "use_cosine_schedule" if use_cosine_schedule else "use_linear_schedule"
            shape = CosineSchedule if use_cosine_schedule else LinearSchedule
            rate = self.make_schedule(option, initial_learning_rate, learning_rate_end, shape)
        options: Any = (epsilon, beta1, weight_decay)  # each may be None, the optimizer's default
        self._groups = ParameterGroups(
            OptimizerSettings(optimizer.lower(), initial_learning_rate, decay, *options),
            max_norm=gradients_norm_clipping,
            lock=model.lock,
            schedule=rate,
            histograms=self.histograms,
            skipped_limit=self.skipped_limit,
        )
        self.skipped = self._groups.skipped  #: counts updates whose gradients were not finite
        self.stepper: Stepper = LocalStepper(self._groups)  #: takes the steps: here, with other ranks, or elsewhere
        self.graphs = Graphs(self, self._groups) if compile is True else None  #: of updates; None: they run as they are
        self._may_compile = compile == "auto"

    def make_schedule(
        self, option: str, start: float, end: float, shape: type[LinearSchedule] = LinearSchedule
    ) -> Callable[[], float]:
        """Make a value that goes from `start` to `end` along `max_global_step`, which `option` needs."""
        length = check_schedule(option, self.max_global_step, self._schedule_step)
        schedule = shape(start, end, length)
        return lambda: schedule(self.schedule_position)

    @property
    def schedule_position(self) -> int:
        """Position of all schedules: env steps or updates, as `schedule_step` says."""
        return self.updates if self._schedule_step == "update" else self.global_step

    def build(self) -> None:
        self.optimize_group(MODEL, self.model.named_parameters())

    def rebuild(self) -> None:
        super().rebuild()
        if self.graphs is not None:
            self.graphs.forget()

    def become_ready(self) -> None:
        super().become_ready()
        self.stepper.start()
        if self.graphs is not None:
            self.graphs.note_settings()

    def follow_run(self, *, keeps_waiting: Callable[[], bool], seconds_left: Callable[[], float] | None) -> None:
        """Connect compiling to a run.

        Args:
            keeps_waiting: called while the learner waits for a compiler; False ends the wait.
            seconds_left: predicts how long the run continues, s; None compiles nothing alongside. Neither is anything
                compiled for classes of users, which may depend on more than a graph sees.
        """
        own = all(type(each).__module__.startswith(("surreal.", "torch.")) for each in (self, *self.model.modules()))
        if self._may_compile and own and seconds_left is not None and type(self.stepper) is LocalStepper:
            self.graphs = Graphs(self, self._groups, seconds_left)
            if self.is_ready:
                self.graphs.note_settings()
        if self.graphs is not None:
            self.graphs.keeps_waiting = keeps_waiting

    def optimize_group(
        self, group: str, parameters: Iterable[tuple[str, Tensor]], *, learning_rate: float | None = None
    ) -> None:
        """Add the optimizer of a group of named parameters, whose state checkpoints keep; for `build`.

        No parameter may be replaced afterwards. The rate of its first step, > 0, is annealed in proportion; None:
        `initial_learning_rate`.
        """
        optimizer = self.stepper.add_group(group, parameters, learning_rate)
        if optimizer is not None:
            name = "optimizer" if group == MODEL else f"optimizer-{group}"
            self.keep(name, optimizer, expected=self._groups.optimizers[group].expected_tensors)

    def step(self, loss: Tensor, *groups: str) -> None:
        """Step down the gradient of a scalar loss: of these groups, or of the one with all of the model's parameters.

        A gradient that is not finite changes nothing and is counted. The model's lock is held only while parameters
        change, so agents in this process that share the model continue to act. Raises `RankError` if a rank is gone.
        """
        names = groups or (MODEL,)
        self.stepper.step([self.gradients(loss, name, keep_graph=name != names[-1]) for name in names])

    def gradients(self, loss: Tensor, group: str = MODEL, *, keep_graph: bool = False) -> Gradients:
        """Differentiate a scalar loss by the parameters of a group; frees the graph of the loss."""
        return Gradients(group, self._groups.optimizers[group].gradients(loss, keep_graph=keep_graph))

    def learn_with(self, ranks: Ranks) -> None:
        """Step down the mean of the gradients of all ranks from now on; all of them have the same state."""
        self._use(RankStepper(self._groups, ranks, self.model))

    def send_gradients(self, send: Callable[[Sequence[Gradients]], object]) -> None:
        """Send the gradients of the model's parameters from now on, see `SendingStepper`; refuses batch norms."""
        if any(isinstance(module, BatchRenorm) for module in self.model.modules()):
            raise ValueError("norm is batch, which parameter servers cannot count; use layer or rms")
        self._use(SendingStepper(self._groups, send, self.model))

    def own(self, names: Collection[str]) -> None:
        """Move only these parameters from now on, `group/name`: the part of one of several parameter servers."""
        self._use(PartStepper(self._groups, names))
        self.rebuild()

    def show_gradients(self, gradients: Gradients) -> None:
        """Add gradients of a step that the learner does itself to the histograms."""
        self._groups.show(gradients)

    def share_counts(self) -> None:
        """Add the counts of other ranks' filters; copies of earlier learners call it."""
        self.stepper.share_counts()

    @contextmanager
    def around_learn(self, batch: Any) -> Iterator[BatchT]:
        if self.graphs is not None and (changed := self.graphs.changed_setting()) is not None:
            logger.warning("%s was changed: updates continue without graphs", changed)
            self.graphs.close()
            self.graphs = None
        yield batch
        self.stepper.end_learning(self.kept.values())

    def finish_update(self, metrics: Mapping[str, Tensor | float]) -> None:
        is_checked = self.is_metrics_due or self.device.type == "cpu"  # checking waits for a GPU
        super().finish_update(metrics)
        self._groups.end_update(is_checked=is_checked)

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
        skipped = self.skipped.total_of(state_dict["state"])
        super().load_state_dict(state_dict)
        self.skipped.restore(skipped)

    def metrics(self) -> dict[str, float]:
        skipped = {"learner/skipped_updates_total": float(self.skipped.total)}
        compiled = {} if self.graphs is None else self.graphs.metrics()
        return super().metrics() | skipped | compiled | self.stepper.metrics()

    def parameter_groups(self) -> Mapping[str, Mapping[str, Tensor]]:
        return self._groups.named()

    def common_metrics(self) -> Mapping[str, Tensor | float]:
        return self._groups.metrics(self.parameter_groups())

    @property
    def compile_seconds(self) -> tuple[float, float]:
        return (0.0, 0.0) if self.graphs is None else (self.graphs.cost_s, self.graphs.saving_s)

    def close(self) -> None:
        if self.graphs is not None:
            self.graphs.close()

    def _use(self, stepper: Stepper) -> None:
        """Replace the stepper by one that needs other processes, which a graph cannot."""
        self.stepper = stepper
        if self.graphs is not None:
            self.graphs.close()
            self.graphs = None
