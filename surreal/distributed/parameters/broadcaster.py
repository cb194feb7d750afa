"""`TorchBroadcaster`: publishes a policy's parameters. One learner or parameter server at a time, which holds a lease.

    broadcaster = TorchBroadcaster(client, model)
    for i, batch in replay.batch_iterator():
        learner.optimize(i, batch)
        if i % 10 == 0:
            broadcaster.broadcast(model, "after update %d" % i)
        broadcaster.maintain()                  # cheap; calls Redis a few times per lease

A learner that was killed resumes with `broadcaster.restore()`, before it copies the model.

Versions only grow: each is larger than the stored one, than this broadcaster's last, and than any proposed one.
Parameters are stored under a key. Pub/sub carries only the version, so no slow listener is disconnected.
"""

from __future__ import annotations

import logging
import math
import secrets
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Annotated, Any

from annotated_types import Ge, Le
from redis.exceptions import RedisError

from surreal.base.errors import ContractError, LeaseError, RedisUnavailableError
from surreal.base.pytorch import Module
from surreal.base.ranges import Positive, checked
from surreal.base.system.logs import WaitNotice
from surreal.base.values import MAX_VERSION
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.connection.contract import register_model_contract
from surreal.distributed.connection.direct import MAX_PARTS, PART_BYTES, Memory
from surreal.distributed.connection.holders import make_token
from surreal.distributed.connection.retry import number_of, text_of
from surreal.distributed.connection.tensor_bytes import split
from surreal.distributed.connection.wire import ScriptArg, ScriptChannel
from surreal.distributed.parameters.parts import INLINE_BYTES, LeaseWait, PolicyPart, part_keys, upload_parts
from surreal.distributed.parameters.published import PublishedReader, PublishedState, encode_parameters, part_names

logger = logging.getLogger(__name__)

_UPLOAD_ATTEMPTS, _MAX_PART_BYTES = 3, 256 << 20


@checked
@dataclass(eq=False, repr=False)
class TorchBroadcaster:
    """Publishes parameters for `TorchListener`s. Used by one thread."""

    client: RedisClient  #: client of the parameter server
    model: Module  #: model whose parameters are published; its contract is registered for the listeners
    _: KW_ONLY
    policy: str = "default"
    #: how long another broadcaster of this policy is kept out after the last heartbeat of this one. Raising it
    #: tolerates longer pauses between calls; lowering it lets a returning learner start sooner
    lease_s: Positive = 10.0
    #: largest value in Redis. Parameters up to this size are published in one round trip, and need no further room if
    #: Redis is full
    part_bytes: Annotated[int, Ge(1), Le(_MAX_PART_BYTES)] = 64 << 20
    part: PolicyPart | None = None  #: this server's part of the policy, if there are several parameter servers
    stop: threading.Event | None = None  #: ends every wait with `StoppedError`

    def __post_init__(self) -> None:
        client, policy, part = self.client, self.policy, self.part
        self.version = 0  #: last published
        self.message = ""  #: message of the parameters that `restore` loaded
        self.epoch = ""  #: epoch of the Redis that it was published in
        self._contract_key = client.policy_keys(policy).contract
        keys = part_keys(client, policy, part.servers if part else 1)
        self._keys = keys[part.server if part else 0]
        self._reader = PublishedReader(client, keys)
        self._lease_ms = max(1, int(1000 * self.lease_s))
        self._token = make_token(self.lease_s)
        holder = f"the learner that published policy {policy} of run {client.run} last"
        self._wait = LeaseWait(self.lease_s, holder, WaitNotice(logger), self.stop)
        self._proposed = 0
        self._last: bytearray | None = None  # the parameters last published, and their message
        self._last_message = ""
        self._memory = Memory(sys.maxsize, is_reused=True)
        self._channel = ScriptChannel(client)
        self._removable = self._newest = ("", 0)  # id and parts of the last publication but one, and of the last
        self._contract: dict[str, dict[str, Any]] = {}
        self._next_maintenance = self._seconds = 0.0
        self._broadcasts = self._republished = 0

    def propose(self, version: int) -> None:
        """Make the next versions larger than `version` (<= `MAX_VERSION`), such as that of a checkpoint."""
        if version > MAX_VERSION:
            what = "policy %s of run %s: version %d is not used, the largest possible is %d; versions start over"
            logger.warning(what, self.policy, self.client.run, version, MAX_VERSION)
            return
        self._proposed = max(self._proposed, version)

    def restore(self) -> bool:
        """Resume from the last broadcast of any process: load its parameters into the model, and continue its versions.

        Call it before the first `broadcast`, and before anything copies the model (such as a target network). A
        broadcast has no optimizer state, so that starts again.

        Returns:
            Whether there was one; if not, the model stays unchanged.

        Raises:
            ContractError: the broadcast is of another model.
            CodecError: Redis does not hold parameters there.
        """
        published = self.client.retry(self._reader.newest, what="read the last broadcast", stop=self.stop)
        if published is None:
            return False
        tensors, header = published.decode()
        try:
            self.model.load_tensors(tensors, min(published.version, MAX_VERSION), header)
        except ContractError as error:
            message = f"run {self.client.run} holds parameters of another model: {error}; use that, or another run"
            raise ContractError(message, diff=error.diff) from error
        self.propose(published.version)
        self.message = published.message
        logger.info("run %s continues: policy %s, %s", self.client.run, self.policy, self._state())
        return True

    def read_message(self) -> str:
        """Return the message of the last broadcast of this server's part; "" without one."""
        read = partial(self.client.execute, "HGET", self._keys.params, "message")
        return text_of(self.client.retry(read, what="read the last broadcast's message", stop=self.stop))

    def newest_version(self) -> int:
        """Return the largest version that is known here or was published, for this server's part."""
        read = partial(self.client.execute, "HGET", self._keys.params, "version")
        stored = number_of(self.client.retry(read, what="read the version"))
        return max(self._proposed, self.version, stored if stored <= MAX_VERSION else 0)

    def broadcast(self, model: Module | None = None, message: str = "") -> int:
        """Publish the current parameters.

        The first call waits for the lease of a broadcaster that died, at most for the length of that lease; if it ran
        on this machine, there is no wait.

        Args:
            model: another model with the same parameters; None: the constructor's.
            message: text for the listeners.

        Returns:
            The version, which also becomes the model's `version`.

        Raises:
            LeaseError: another broadcaster publishes this policy.
            ContractError: a process of this run has another model.
            RedisUnavailableError: no answer in time, or no room for large parameters.
            StoppedError: `stop` was set while waiting.
            ValueError: the model has no parameters yet.
        """
        model = self.model if model is None else model
        start = time.monotonic()
        if self._last is None:
            self._contract = model.parameter_contract()
            self._register()
            self._warn_of_replacement(model)
        with model.lock:
            tensors = model.tensors() if self.part is None else self.part.of(model.tensors())
            blob = encode_parameters(tensors, model.header(), self._memory.free())
        self._last, self._last_message = blob, message
        try:
            version = self._publish(blob, max(self._proposed, self.version))
        finally:
            if self._wait.notice.began_s is not None:
                self._wait.notice.end()
        with model.lock:
            model.version = version
        self._broadcasts += 1
        self._seconds = time.monotonic() - start
        return version

    def maintain(self) -> None:
        """Renew the lease and the contract, and publish lost parameters again. Call it at least once per `lease_s`.

        Returns at once unless a third of the lease has passed since the last time.

        Raises:
            LeaseError: another broadcaster took over.
        """
        if self._last is None or time.monotonic() < self._next_maintenance:
            return
        status, number, text = self._call("hold", [], [self._token, self._lease_ms, b"%d" % self.version], {})
        if status in ("held", "fenced"):
            raise self._refused(status)
        if status == "empty" or text != self.epoch or number < self.version:
            logger.warning("Redis lost version %d of policy %s; publishing it again", self.version, self.policy)
            # Several servers do so at different moments: each version must keep its number.
            self._publish(self._last, max(self._proposed, self.version) if self.part is None else self.version - 1)
            self._republished += 1
        self._register()
        self._next_maintenance = time.monotonic() + self.lease_s / 3

    def close(self) -> None:
        """Release the lease, so that another learner can start at once. Never raises a Redis error."""
        self._channel.close()
        if self._last is None:
            return
        try:
            self.client.run_script("hold", [self._keys.params, self._keys.lease], [self._token, 0, self.version])
        except RedisError as error:
            logger.debug("could not give back the lease of policy %s: %s", self.policy, error)

    def metrics(self) -> dict[str, float]:
        return {
            "broadcast/version": float(self.version),
            "broadcast/broadcasts_total": float(self._broadcasts),
            "broadcast/republished_total": float(self._republished),
            "broadcast/lease_wait_s_total": self._wait.watch.waited_s,
            "broadcast/size_bytes": float(len(self._last or b"")),
            "broadcast/last_ms": 1000 * self._seconds,
        }

    def _publish(self, blob: bytearray, above: int) -> int:
        publication_id, wait = secrets.token_hex(8), self._wait
        is_one_value, is_alone = len(blob) <= self.part_bytes, self.part is None
        is_small = is_alone and is_one_value and len(blob) <= INLINE_BYTES
        part_bytes = max(min(PART_BYTES, self.part_bytes), -(-len(blob) // MAX_PARTS))
        inline, parts = (bytes(blob), []) if is_small else (b"", split(blob, part_bytes))
        removable, refused, void, uploads, are_there = self._removable, list[str](), b"", 0, is_small
        wait.deadline_s = math.inf
        while True:
            names = part_names(self._keys, publication_id, len(parts))
            ahead: dict[str, list[memoryview]] = {}
            if not are_there:
                uploads, are_there = uploads + 1, True
                if is_one_value and uploads == 1:
                    ahead = {name: [part] for name, part in zip(names, parts, strict=True)}
                else:
                    upload_parts(self.client, names, parts, self.stop)
            args: list[ScriptArg] = [self._token, self._lease_ms, above, secrets.token_hex(8), publication_id]
            args += [self._last_message, len(names), inline, self._keys.notice, self.version, removable[0], void]
            removed, asked_at = part_names(self._keys, *removable), time.monotonic()
            status, number, text = self._call("publish", [*names, *removed, *refused], args, ahead)
            if status == "ok":
                self.version, self.epoch = number, text
                self._removable, self._newest = self._newest, (publication_id, len(names))
                self._next_maintenance = time.monotonic() + self.lease_s / 3
                return number
            if status == "previous":
                removable = (text, number)
            elif status == "missing" and parts and is_one_value and is_alone:
                # Redis is full. In the hash itself, they replace the last parameters and need no more room than those.
                inline, parts, refused = bytes(blob), [], names
            elif status == "missing" and parts:
                if uploads == _UPLOAD_ATTEMPTS:
                    expired = f"{len(parts)} parts of parameters expired in Redis before the last was there"
                    raise RedisUnavailableError(f"{expired}; is it too slow?", address=self.client.address)
                are_there = False
            elif status == "held" and self.version == 0:
                void = wait.until_void(text, number, asked_at, self._refused(status))
            else:
                raise self._refused(status)

    def _call(
        self, script: str, more_keys: Sequence[str], args: Sequence[ScriptArg], ahead: Mapping[str, list[memoryview]]
    ) -> tuple[str, int, str]:
        """Call a script; strings stored `ahead` of it may be missing if Redis is full."""
        keys = [self._keys.params, self._keys.lease, *more_keys]
        call = partial(self._channel.call, script, keys, args, ahead)
        status, number, text = self.client.retry(call, what="publish parameters", stop=self.stop)
        return status.decode(), number_of(number), text_of(text)

    def _register(self) -> None:
        register = partial(register_model_contract, self.client, self._contract_key, self._contract)
        self.client.retry(register, what="compare the model with the run's", stop=self.stop)

    def _state(self) -> PublishedState:
        return self.client.retry(self._reader.state, what="look at the last broadcast", stop=self.stop)

    def _warn_of_replacement(self, model: Module) -> None:
        """Warn that the run is not new, unless the caller has loaded or proposed its version."""
        state = self._state()
        if state.version and state.version != model.version and not self._proposed:
            what = "run %s at %s is not new: policy %s is at %s, and is replaced now; the broadcaster's restore() "
            what += "resumes from it, RedisClient(..., run=NAME) begins another run"
            logger.warning(what, self.client.run, self.client.address, self.policy, state)

    def _refused(self, status: str) -> LeaseError:
        where = f"the parameters of policy {self.policy} in run {self.client.run}"
        if self.version == 0:
            return LeaseError(f"{where} are published by another learner; stop it, or use another run or policy")
        happened = "took over" if status == "held" else "took over and published"
        return LeaseError(f"another learner {happened} {where} while this one was silent for {self.lease_s:.0f} s")
