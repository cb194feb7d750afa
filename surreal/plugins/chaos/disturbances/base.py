"""`Disturbance`: something is done to a run, lasts for a while, and is undone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import StrEnum


class Kind(StrEnum):
    """A way to disturb a run."""

    KILL = "kill"  #: SIGKILL of a process
    PAUSE = "pause"  #: SIGSTOP, and SIGCONT some seconds later
    CUT = "cut"  #: all connections of the run are broken again and again
    RESTART = "restart"  #: Redis is killed, and starts again
    FLUSH = "flush"  #: Redis loses all that the run has there
    FULL = "full"  #: Redis has no room left


#: What `--redis` takes.
REDIS_KINDS = (Kind.RESTART, Kind.FLUSH, Kind.FULL)


class Disturbance(ABC):
    """One way to disturb, ready to begin.

        disturbance.begin()
        while ...: disturbance.turn()     # some times a second
        disturbance.end()

    Attributes:
        kind: which way.
        target: name of the process or server.
        detail: more about it, for people; known once it has begun.
        lasts: whether anything is to be undone after a while.
    """

    kind: Kind
    lasts: bool = True

    def __init__(self, target: str) -> None:
        self.target = target
        self.detail = ""

    @abstractmethod
    def begin(self) -> None:
        """Begin.

        Raises:
            NotDoneError: it was not possible, and nothing was done.
        """

    def turn(self) -> None:
        """Go on with it; never raises because Redis is away."""

    def end(self) -> None:
        """Undo it; may be called twice."""


class NotDoneError(Exception):
    """The process or server that was to be disturbed is not there, or cannot be disturbed now."""
