"""Errors that Surreal raises at run time.

    SurrealError
    |-- ConfigError              a setting is wrong: key, file, line
    |-- EnvError                 an environment cannot be made or breaks its contract
    |-- BadValueError            a number that is not finite, or too large to learn from
    |-- UserCodeError            a user's class breaks the contract of its base: method, file, line
    |-- RedisUnavailableError    no answer from Redis within the time allowed
    |-- ContractError            two processes of a run disagree: the difference
    |-- CodecError               bytes that are not what they claim to be
    |-- ReplayFullError          the stream stayed at its bound longer than the sender may wait
    |-- QueueFullError           the queue of gradients stayed full for longer
    |-- CallError                a call of a method in another process failed, or was not answered in time
    |-- GroupChangedError        a parameter server of a group has restarted: the others join it again
    |-- LeaseError               another process holds the lease of a stream or a policy
    |   `-- NameLostError        another process took the name of this one in the run
    |-- DivergedError            learning repeatedly gives numbers that are not finite
    |-- RankError                a rank of a learner is gone, and the group of ranks ends with it
    |-- CheckpointError          a checkpoint is missing, cut off, or of another model
    |   `-- UnreadableError      its file system does not answer, or refuses
    |-- ExportError              a policy cannot become a file of another format
    |-- FolderError              a run's folder cannot be written: its disk is full
    |-- BusyError                a folder or a run belongs to another live process
    |-- ThreadFailedError        a supervised thread died: its exception is the cause
    `-- StoppedError             the owner asked to stop while a call was waiting

Bad arguments are `ValueError`. The command line prints a `SurrealError` as one line, without a traceback.
"""

from __future__ import annotations

import errno
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any


class SurrealError(Exception):
    """Base of all run-time failures; the message states what is wrong, the value, the limit and the remedy."""


class ConfigError(SurrealError):
    """A setting is unknown, of the wrong type, out of range, or in conflict with another."""

    def __init__(self, message: str, *, key: str = "", source: str = "") -> None:
        super().__init__(message)
        self.key = key  #: dotted path of the setting, "" for the whole file
        self.source = source  #: file and line, "--set", or the preset's name


class EnvError(SurrealError):
    """An environment cannot be made, or it broke its contract (shape, dtype, a worker that died)."""


class BadValueError(SurrealError):
    """A number that is not finite, or too large to learn from; the message names its source."""


class UserCodeError(SurrealError):
    """A method of a user's class breaks the contract of its base; the message names file and line."""


class RedisUnavailableError(SurrealError):
    """Redis did not answer within the time allowed."""

    def __init__(self, message: str, *, address: str = "") -> None:
        super().__init__(message)
        self.address = address  #: address of the server, without the password


class ContractError(SurrealError):
    """A process and its run disagree."""

    def __init__(self, message: str, *, diff: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.diff = diff  #: one line for each difference, `path: theirs -> ours`


class CodecError(SurrealError):
    """Bytes that are cut off, corrupted, too large, or of another version or contract."""


class ReplayFullError(SurrealError):
    """The replay took no experience for longer than the sender may wait."""

    def __init__(self, message: str, *, waited_s: float = 0.0) -> None:
        super().__init__(message)
        self.waited_s = waited_s  #: time that the sender waited, s


class QueueFullError(SurrealError):
    """The parameter servers took no gradients for longer than the sender may wait."""


class CallError(SurrealError):
    """A method of the learner or parameter server could not be called, failed there, or did not answer in time."""


class GroupChangedError(SurrealError):
    """One of several parameter servers has restarted; the others must agree with it on where to continue."""


class LeaseError(SurrealError):
    """Another process holds the lease of a stream or policy, or took it over."""


class NameLostError(LeaseError):
    """Another process took the name of this one in the run, because this one was away."""


class DivergedError(SurrealError):
    """Parameters, or the gradients of many updates, are not finite."""


class RankError(SurrealError):
    """One of the ranks that learn together failed, was killed, or cannot be reached: none of them can continue."""

    def __init__(self, message: str, *, is_killed: bool = False) -> None:
        super().__init__(message)
        self.is_killed = is_killed  #: whether a signal ended it, so that a restart of all ranks may help


class CheckpointError(SurrealError):
    """A checkpoint is missing, cut off, or belongs to another model or algorithm."""


class UnreadableError(CheckpointError):
    """A checkpoint, or a folder of checkpoints, cannot be reached."""


class ExportError(SurrealError):
    """A policy cannot be exported to a format, or the exported file would act differently."""


class FolderError(SurrealError):
    """A run's folder cannot be written."""


class BusyError(SurrealError):
    """A folder or a run belongs to another live process; nothing was changed."""


class ThreadFailedError(SurrealError):
    """A supervised thread died; `__cause__` is its exception with the original traceback."""


class StoppedError(SurrealError):
    """The owner asked to stop while this call was waiting."""


#: Remedies for errors of the operating system.
OS_REMEDIES = {
    errno.EADDRINUSE: "another program listens there; end it, or choose another port",
    errno.EACCES: "this user may not do that there; choose another place, or change its permissions",
    errno.EPERM: "this user may not do that there; choose another place, or change its permissions",
    errno.EROFS: "nothing can be written there; choose another place",
    errno.ENOSPC: "the disk is full; make room, or choose another place",
    errno.EDQUOT: "this user's share of the disk is full; make room, or choose another place",
    errno.EMFILE: "this process has too many open files; raise `ulimit -n`",
}


def describe_os_error(error: OSError) -> str:
    """Describe an error of the operating system in one sentence, with the remedy if it is known."""
    where = f"{error.filename}: " if error.filename else ""
    why = os.strerror(error.errno).lower() if error.errno else str(error)
    remedy = OS_REMEDIES.get(error.errno or 0, "")
    return f"{where}{why}" + (f"; {remedy}" if remedy else "")


def find_os_error(log: str) -> str:
    """Describe the first known error of the operating system in a log; "" if there is none."""
    for number in OS_REMEDIES:
        if os.strerror(number).lower() in log.lower():
            return describe_os_error(OSError(number, os.strerror(number)))
    return ""


def describe_method(method: Callable[..., Any]) -> str:
    """Name a method with its class, file and line, if they can be found: `my.Net.forward (my.py line 12)`."""
    owner = getattr(method, "__self__", None)
    name = getattr(method, "__name__", type(method).__name__)
    if owner is not None:
        name = f"{type(owner).__module__}.{type(owner).__qualname__}.{name}"
    try:
        file, (_, line) = inspect.getsourcefile(method), inspect.getsourcelines(method)
    except (OSError, TypeError):
        return name
    return f"{name} ({Path(file).name} line {line})" if file else name
