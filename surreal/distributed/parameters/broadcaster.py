"""`TorchBroadcaster`: publishes a policy's parameters. One learner (or parameter server) at a time, held by a lease.

    broadcaster = TorchBroadcaster(client, model)
    for i, batch in replay.batch_iterator():
        learner.optimize(i, batch)
        if i % 10 == 0:
            broadcaster.broadcast(model, "after update %d" % i)
        broadcaster.maintain()                  # cheap; talks to Redis a few times per lease

A learner that was killed goes on where it was with `broadcaster.restore()`, before it makes copies of the model.

Versions only grow: each is larger than the stored one, than what this broadcaster published, and than was proposed.
Parameters are stored under a key; only the version goes over pub/sub, so no slow listener is disconnected for lagging.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from redis.exceptions import RedisError

from surreal.base.errors import ContractError, LeaseError
from surreal.base.liveness.wait_notice import WaitNotice
from surreal.base.values import MAX_VERSION
from surreal.distributed.connection.access.holders import HolderWatch, holder_of, make_token
from surreal.distributed.connection.access.spoiled import number_of, text_of
from surreal.distributed.connection.channel import ScriptChannel
from surreal.distributed.connection.client import RedisClient, ScriptArg
from surreal.distributed.connection.contract import register_model_contract
from surreal.distributed.parameters.encoding import encode_parameters
from surreal.distributed.parameters.parts import Upload, part_names, pause
from surreal.distributed.parameters.published import PolicyPart, PublishedReader, Standing, part_keys

if TYPE_CHECKING:
    from surreal.base.pytorch import Module

logger = logging.getLogger(__name__)

_LEASE_POLL_S = 0.1
_MAX_PART_BYTES = 256 << 20


class _Publication(NamedTuple):
    blob: bytes
    message: str


class TorchBroadcaster:
    """Publishes parameters for `TorchListener`s. Used by one thread.

    Args:
        client: of the run, at the parameter server.
        model: whose parameters are published; its contract is registered for the listeners.
        policy: name they are published under.
        lease_s: how long another broadcaster of this policy is kept out after our last sign of life, > 0. Raising it
            tolerates longer pauses between calls; lowering it lets a learner that comes back start sooner.
        part_bytes: parameters larger than this go in parts, 1 to 256 MiB. Redis takes at most 512 MB a value.
        part: of the policy, if this is one of several parameter servers.
        stop: ends every wait with `StoppedError`.
    """

    def __init__(
        self,
        client: RedisClient,
        model: Module,
        *,
        policy: str = "default",
        lease_s: float = 10.0,
        part_bytes: int = 64 << 20,
        part: PolicyPart | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        if lease_s <= 0:
            raise ValueError(f"lease_s is {lease_s}; it must be > 0")
        if not 1 <= part_bytes <= _MAX_PART_BYTES:
            raise ValueError(f"part_bytes is {part_bytes}; it must be 1 to {_MAX_PART_BYTES}")
        self.client = client
        self.model = model
        self.policy = policy
        self.version = 0  #: last published
        self.message = ""  #: what came with the parameters that `restore` took over
        self.epoch = ""  #: of the Redis it was published in
        self._part = part
        self._contract_key = client.policy_keys(policy).contract
        keys = part_keys(client, policy, part.servers if part else 1)
        self._keys = keys[part.server if part else 0]
        self._reader = PublishedReader(client, keys)
        self._lease_s = lease_s
        self._part_bytes = part_bytes
        self._stop = stop
        self._token = make_token(lease_s)
        self._watch = HolderWatch(lease_s)
        self._proposed = 0
        self._last: _Publication | None = None
        self._channel = ScriptChannel(client)
        self._removable = self._newest = ("", 0)  # id and parts of the last publication but one, and of the last
        self._contract: dict[str, dict[str, Any]] = {}
        self._next_maintenance = 0.0
        self._broadcasts = self._republished = 0
        self._bytes = 0
        self._seconds = 0.0

    def propose(self, version: int) -> None:
        """Let the next versions be larger than `version`, say that of a checkpoint or of a live agent.

        One above `MAX_VERSION`, which no learner reaches, is reported and ignored.
        """
        if version > MAX_VERSION:
            what = "policy %s of run %s: version %d is not used, the largest possible is %d; versions start over"
            logger.warning(what, self.policy, self.client.run, version, MAX_VERSION)
            return
        self._proposed = max(self._proposed, version)

    def restore(self) -> bool:
        """Go on from the last broadcast, whoever made it: its parameters go into the model, and versions continue.

        Call it before the first `broadcast`, and before anything copies the model (a target network does). What an
        optimizer had gathered is not in a broadcast: that begins anew.

        Returns:
            Whether there was one; if not, the model stays as it is.

        Raises:
            ContractError: what was broadcast is of another model.
            CodecError: what is stored in Redis are no parameters.
            RedisUnavailableError, StoppedError: as `broadcast`.
        """
        published = self.client.retry(self._reader.newest, what="read the last broadcast", stop=self._stop)
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
        standing = self._standing()
        logger.info("run %s goes on: policy %s, %s", self.client.run, self.policy, standing)
        return True

    def read_message(self) -> str:
        """Text that came with the last broadcast, of this server's part; "" without one."""
        read = partial(self.client.redis.hget, self._keys.params, "message")
        found: Any = self.client.retry(read, what="read the last broadcast's message", stop=self._stop)
        return text_of(found)

    def newest_version(self) -> int:
        """The largest version that is known here or was published, of this server's part."""
        read = partial(self.client.redis.hget, self._keys.params, "version")
        found: Any = self.client.retry(read, what="read the version")
        stored = number_of(found)
        return max(self._proposed, self.version, stored if stored <= MAX_VERSION else 0)

    def broadcast(self, model: Module | None = None, message: str = "") -> int:
        """Publish the parameters as they are now.

        The first call waits for the lease of a broadcaster that died, at most that one's `lease_s`; on this machine
        it does not wait.

        Args:
            model: default is the model given at the start; another one must have the same parameters.
            message: text for the listeners.

        Returns:
            The version; also set as the model's `version`.

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
            self._tell_what_is_replaced(model)
        with model.lock:
            tensors = model.tensors() if self._part is None else self._part.of(model.tensors())
            blob = encode_parameters(tensors, model.header())
        self._last = _Publication(blob, message)
        version = self._publish(self._last, max(self._proposed, self.version))
        with model.lock:
            model.version = version
        self._broadcasts += 1
        self._bytes = len(blob)
        self._seconds = time.monotonic() - start
        return version

    def maintain(self) -> None:
        """Keep the lease and the contract, and publish again what is lost. Call it at least once per `lease_s`.

        Returns at once unless a third of the lease has passed since the last time.

        Raises:
            LeaseError: another broadcaster took over.
            ContractError, RedisUnavailableError, StoppedError: as `broadcast`.
        """
        if self._last is None or time.monotonic() < self._next_maintenance:
            return
        status, number, text = self._call("hold", [], [self._token, self._lease_ms, b"%d" % self.version])
        if status in ("held", "fenced"):
            raise self._refused(status)
        is_lost = status == "empty" or text != self.epoch or number < self.version
        if is_lost:
            logger.warning("Redis lost version %d of policy %s; publishing it again", self.version, self.policy)
            # Several servers do so at different moments: each version must stay what it is.
            self._publish(self._last, max(self._proposed, self.version) if self._part is None else self.version - 1)
            self._republished += 1
        self._register()
        self._next_maintenance = time.monotonic() + self._lease_s / 3

    def close(self) -> None:
        """Give the lease back, so that another learner can start at once. Never raises a Redis error."""
        self._channel.close()
        if self._last is None:
            return
        try:
            self.client.run_script("hold", [self._keys.params, self._keys.lease], [self._token, 0, self.version])
        except RedisError as error:
            logger.debug("could not give back the lease of policy %s: %s", self.policy, error)

    def metrics(self) -> dict[str, float]:
        """Counts since the start, and size and duration of the last broadcast."""
        return {
            "broadcast/version": float(self.version),
            "broadcast/broadcasts_total": float(self._broadcasts),
            "broadcast/republished_total": float(self._republished),
            "broadcast/lease_wait_s_total": self._watch.waited_s,
            "broadcast/size_bytes": float(self._bytes),
            "broadcast/last_ms": 1000 * self._seconds,
        }

    @property
    def _lease_ms(self) -> int:
        return max(1, int(1000 * self._lease_s))

    def _publish(self, publication: _Publication, above: int) -> int:
        publication_id = secrets.token_hex(8)
        upload = Upload(
            self.client,
            self._keys,
            publication_id,
            publication.blob,
            part_bytes=self._part_bytes,
            is_alone=self._part is None,
            stop=self._stop,
        )
        removable = self._removable
        lease_deadline: float | None = None
        void = b""
        notice = WaitNotice(logger)
        while True:
            ahead = upload.bring()
            args: list[ScriptArg] = [self._token, self._lease_ms, above]
            args += [secrets.token_hex(8), publication_id, publication.message, len(upload.names)]
            args += [upload.inline, self._keys.notice, self.version, removable[0].encode(), void]
            asked_at = time.monotonic()
            removed = part_names(self._keys, *removable)
            status, number, text = self._call("publish", [*upload.names, *removed], args, ahead)
            if status == "ok":
                self.version, self.epoch = number, text
                self._removable, self._newest = self._newest, (publication_id, len(upload.names))
                self._next_maintenance = time.monotonic() + self._lease_s / 3
                notice.end()
                return number
            if status == "previous":
                removable = (text, number)
            elif status == "missing":
                upload.bring_again()
            elif status == "held" and self.version == 0:
                # Perhaps it died without giving the lease back; its lease may be longer than ours.
                if self._watch.is_void(text, number):
                    void = text.encode()
                    continue
                if lease_deadline is None:
                    wait_s = max(self._lease_s, holder_of(text, self._lease_s).lease_s) + _LEASE_POLL_S
                    lease_deadline = time.monotonic() + wait_s
                if asked_at > lease_deadline:
                    notice.end()
                    raise self._refused(status)
                what = "waiting until the learner that published policy %s of run %s last is gone, at most %.0f s"
                notice.tell(what, self.policy, self.client.run, wait_s)
                pause(self._stop, _LEASE_POLL_S)
            else:
                raise self._refused(status)

    def _call(
        self,
        script: str,
        more_keys: Sequence[str],
        args: Sequence[ScriptArg],
        ahead: Mapping[str, Sequence[memoryview]] = MappingProxyType({}),
    ) -> tuple[str, int, str]:
        """Call a script; may store strings in front of it, which are not there if Redis is full."""
        keys = [self._keys.params, self._keys.lease, *more_keys]

        def call() -> Any:
            self._channel.begin(script, keys, args, ahead)
            return self._channel.finish()

        status, number, text = self.client.retry(call, what="publish parameters", stop=self._stop)
        return status.decode(), number_of(number), text_of(text)

    def _register(self) -> None:
        self.client.retry(
            lambda: register_model_contract(self.client, self._contract_key, self._contract),
            what="compare the model with the run's",
            stop=self._stop,
        )

    def _standing(self) -> Standing:
        return self.client.retry(self._reader.standing, what="look at the last broadcast", stop=self._stop)

    def _tell_what_is_replaced(self, model: Module) -> None:
        """Say that the run is not new, unless the caller has shown that it knows: nobody goes on unawares."""
        standing = self._standing()
        if standing.version and standing.version != model.version and not self._proposed:
            what = (
                "run %s at %s is not new: policy %s stands at %s, and is replaced now; the broadcaster's restore() goes"
            )
            what += " on from it, RedisClient(..., run=NAME) begins a run of its own"
            logger.warning(what, self.client.run, self.client.address, self.policy, standing)

    def _refused(self, status: str) -> LeaseError:
        where = f"the parameters of policy {self.policy} in run {self.client.run}"
        if self.version == 0:
            return LeaseError(f"{where} are published by another learner; stop it, or use another run or policy")
        happened = "took over" if status == "held" else "took over and published"
        return LeaseError(f"another learner {happened} {where} while this one was silent for {self._lease_s:.0f} s")
