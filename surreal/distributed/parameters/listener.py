"""`TorchListener`: keeps a model's parameters at the newest version that a `TorchBroadcaster` published.

    listener = TorchListener(client, model)
    listener.run_listener_thread()
    listener.wait_for_first(timeout_s=60)
    while acting:
        ...                                      # model(obs) under model.lock sees one version
        listener.check()                         # raises if the listener failed: another model, no Redis

An agent that acts with the model needs no `check`: a listener that fails marks the model (`Module.fail`), and the next
action raises the error.

A notice has a version and its place in Redis. Several notices cause one fetch, of the newest. The listener subscribes,
waits for the confirmation, then reads. It also reads every few seconds, so that a lost notice only causes a delay.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass

from surreal.base.errors import (
    CodecError,
    ContractError,
    RedisUnavailableError,
    StoppedError,
    SurrealError,
    ThreadFailedError,
)
from surreal.base.pytorch import Module, describe_tensors
from surreal.base.ranges import Positive, checked
from surreal.base.system.logs import WaitNotice
from surreal.base.system.threads import Supervisor
from surreal.base.values import MAX_VERSION
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.connection.contract import CONTRACT_TTL_S, compare_model_contract, describe_model_difference
from surreal.distributed.connection.direct import Subscription
from surreal.distributed.parameters.parts import part_keys
from surreal.distributed.parameters.published import DEFAULT_MAX_BYTES, Published, PublishedReader

logger = logging.getLogger(__name__)

_MAX_WAIT_S = 0.1  #: longest wait for a notice, so that the thread checks its stop event
_FIRST_POLL_S = 0.02
_JOIN_TIMEOUT_S = 10.0
_RELEASE_TIMEOUT_S = 1.0


@checked
@dataclass(eq=False, repr=False)
class TorchListener:
    """Follows the parameters of one policy."""

    client: RedisClient  #: client of the parameter server
    model: Module  #: gets the parameters, under its `lock`; one without parameters is created from the first ones
    _: KW_ONLY
    policy: str = "default"  #: name of the parameters
    #: interval of reads without a notice. Lowering it costs more small commands, and shortens the delay when a notice
    #: was lost
    poll_interval_s: Positive = 3.0
    max_bytes: int = DEFAULT_MAX_BYTES  #: most bytes of parameters that are accepted
    shards: int = 1  #: number of parameter servers that publish a part each; parts of one version are loaded together
    #: see `Module.load_tensors`; False, for agents that keep time, takes new memory for each version
    in_place: bool = True

    def __post_init__(self) -> None:
        self.version = 0  #: of the parameters last loaded, 0 before the first
        self.epoch = ""
        self.message = ""  #: the broadcaster's message with the parameters last loaded
        self._contract_key = self.client.policy_keys(self.policy).contract
        keys = part_keys(self.client, self.policy, self.shards)
        self._reader = PublishedReader(self.client, keys, self.max_bytes, reuses_memory=self.in_place)
        self._supervisor = Supervisor("listener")
        self._notices = Subscription(self.client, self._reader.notices)
        self._update_lock = threading.Lock()
        self._next_poll = self._next_registration = 0.0
        self._skipped: tuple[str, int] | None = None
        self._notice = b""  # the newest that was not followed yet
        self._is_held = self._has_missed = False
        self._loaded_at: float | None = None
        self._updates = self._refused = 0

    def run_listener_thread(self) -> None:
        """Start following in the background; does nothing if the thread runs already."""
        if not self._supervisor.is_running:
            self._supervisor = Supervisor("listener")
            self._next_poll = 0.0
            self.model.fail(None)
            self._supervisor.spawn("parameters", self._supervised_step)

    def step(self) -> None:
        """Wait for a notice, at most a tenth of a second, and load newer parameters; the thread's body."""
        if not self._notices.is_open:
            stop = self._supervisor.stop_event
            self.client.retry(self._notices.open, what="listen for parameters", stop=stop)
            self._next_poll = 0.0
        notice = self._notices.newest(min(_MAX_WAIT_S, max(0.0, self._next_poll - time.monotonic())))
        self._notice = self._notice if notice is None else notice
        if notice is not None or time.monotonic() >= self._next_poll:
            self.update_once()

    def update_once(self, *, timeout_s: float | None = None) -> bool:
        """Load the newest parameters if they are newer; return whether they were. Thread-safe.

        Args:
            timeout_s: how long to wait for Redis to answer; None: as long as the client waits.

        Raises:
            ContractError: the model differs from the run's.
            RedisUnavailableError, StoppedError: Redis does not answer in time, or `close` was called.
        """
        with self._update_lock:
            with self.model.lock:
                if self._is_held:
                    self._has_missed = True
                    self._next_poll = time.monotonic() + self.poll_interval_s
                    return False
            stop = self._supervisor.stop_event
            if time.monotonic() >= self._next_registration and self.model.is_materialized:
                contract = self.model.parameter_contract()
                self.client.retry(
                    lambda: compare_model_contract(self.client, self._contract_key, contract),
                    what="compare the model with the run's",
                    stop=stop,
                    timeout_s=timeout_s,
                )
                self._next_registration = time.monotonic() + CONTRACT_TTL_S / 4
            try:
                fetched = self.client.retry(self._fetch_newer, what="read parameters", stop=stop, timeout_s=timeout_s)
                is_loaded = fetched is not None and self._load(fetched)
            except CodecError as error:
                self._refused += 1
                logger.error("parameters of policy %s in run %s are refused: %s", self.policy, self.client.run, error)
                is_loaded = False
            self._next_poll = time.monotonic() + self.poll_interval_s
            return is_loaded

    def wait_for_first(self, timeout_s: float, stop: threading.Event | None = None) -> bool:
        """Wait for the first parameters until `timeout_s` or `stop`; return whether they came. Raises as `check`."""
        deadline = time.monotonic() + timeout_s
        notice = WaitNotice(logger)
        while self._loaded_at is None:
            is_running = self._supervisor.is_running  # read first: `check` then finds a thread that has failed
            self.check()
            if not is_running:
                self.update_once(timeout_s=max(0.0, deadline - time.monotonic()))
            if self._loaded_at is not None or time.monotonic() > deadline:
                break
            what = "waiting for a learner to publish policy %s of run %s, at most %.0f s"
            notice.tell(what, self.policy, self.client.run, timeout_s)
            if (stop or self._supervisor.stop_event).wait(_FIRST_POLL_S):
                self.check()
                break
        notice.end()
        return self._loaded_at is not None

    def is_published(self) -> bool:
        """Whether a learner that is alive has published parameters; raises as `update_once`."""
        return self.client.retry(self._reader.is_held, what="read parameters", stop=self._supervisor.stop_event)

    def hold(self) -> None:
        """Keep the model's parameters unchanged until `release`, so that a whole trajectory has one version."""
        with self.model.lock:
            self._is_held = True

    def release(self) -> None:
        """Accept newer parameters again, and load those that came since, if Redis answers; raises as `update_once`."""
        with self.model.lock:
            self._is_held, has_missed, self._has_missed = False, self._has_missed, False
        if has_missed:
            self._next_poll = 0.0
            with suppress(RedisUnavailableError):
                self.update_once(timeout_s=_RELEASE_TIMEOUT_S)

    def check(self) -> None:
        """Raise the error that ended the listener thread: a `SurrealError`, or a `ThreadFailedError` with its cause."""
        self._supervisor.check_errors()

    def close(self) -> None:
        """End the thread and the subscription. The model keeps its parameters."""
        self._supervisor.stop()
        self._supervisor.join(_JOIN_TIMEOUT_S)
        self._notices.close()

    def metrics(self) -> dict[str, float]:
        age_s = 0.0 if self._loaded_at is None else time.monotonic() - self._loaded_at
        return {
            "listener/version": float(self.version),
            "listener/age_s": age_s,
            "listener/updates_total": float(self._updates),
            "listener/refused_total": float(self._refused),
        }

    def _supervised_step(self) -> None:
        try:
            self.step()
        except Exception as error:
            if not isinstance(error, StoppedError):
                logger.error("the listener of policy %s ends: %s", self.policy, error)
                # An agent whose owner never calls check() must not continue with outdated parameters.
                failure = error
                if not isinstance(error, SurrealError):
                    failure = ThreadFailedError(f"the listener of policy {self.policy} failed: {error}")
                    failure.__cause__ = error
                self.model.fail(failure)
            raise

    def _fetch_newer(self) -> Published | None:
        """Read the newest parameters; None if they are not newer. Order is (epoch, version)."""
        notice, self._notice = self._notice, b""
        return self._reader.newest(
            lambda version, epoch: (
                (epoch == self.epoch and version <= self.version) or (epoch, version) == self._skipped
            ),
            notice=notice,
        )

    def _load(self, fetched: Published) -> bool:
        mark = (fetched.epoch, fetched.version)
        if fetched.version > MAX_VERSION:  # the next learner starts over, under another epoch
            self._skipped = mark
            raise CodecError(f"their version is {fetched.version}; the largest possible is {MAX_VERSION}")
        try:
            tensors, header = fetched.decode(self.max_bytes)
            # Before the lock: agents may act until the values are on their device.
            tensors = {name: tensor.to(self.model.device) for name, tensor in tensors.items()}
            with self.model.lock:
                if self._is_held:
                    self._has_missed = True
                    return False
                self.model.load_tensors(tensors, fetched.version, header, in_place=self.in_place)
                self.version, self.epoch, self.message = fetched.version, fetched.epoch, fetched.message
        except CodecError:
            self._skipped = mark  # reading the same bytes again would not help
            raise
        except ContractError as error:
            # A live broadcaster would hold its lease. Otherwise, the parameters are left over from another model.
            if self.client.retry(self._reader.is_held, what="read parameters"):
                sentence = str(error)
                if self.model.is_materialized:
                    theirs, ours = describe_tensors(tensors), self.model.parameter_contract()
                    sentence = describe_model_difference(theirs, ours, self.client.run)
                raise ContractError(f"{sentence}; processes of a run need the same model", diff=error.diff) from error
            self._skipped = mark
            self._refused += 1
            text = "run %s holds parameters of another model that no learner publishes anymore; waiting for new ones"
            logger.warning(text, self.client.run)
            return False
        if self._loaded_at is None:
            self._warn_if_unpublished()
        self._loaded_at = time.monotonic()
        self._updates += 1
        logger.debug("loaded version %d of policy %s: %s", fetched.version, self.policy, fetched.message)
        return True

    def _warn_if_unpublished(self) -> None:
        """Warn if the first parameters are left over from a learner that has ended."""
        state = self.client.retry(self._reader.state, what="look at the last broadcast")
        if state.version and not state.is_held:
            what = "run %s at %s is not new: policy %s is at %s; it is used, though no learner publishes it now"
            logger.warning(what, self.client.run, self.client.address, self.policy, state)
