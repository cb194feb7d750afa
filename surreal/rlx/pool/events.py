"""What the server's thread tells the pool about its sessions, in the order in which it happened.

An env slot is the number of a session in the pool. Events of one are never reordered, and it is given to another
session only after the pool has released it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class LiveEvent:
    """A session waits for an action. It has one of these for all its steps: nobody keeps it beyond the answer."""

    env_slot: int
    session: Any  #: handed back with the action
    #: `Leaves`, each of them an array or its bytes; without an observation space, the state as it came
    state: Any
    reward: float  #: of the action before; 0 at the beginning of an episode
    is_first: bool
    is_exploiting: bool


@dataclass(slots=True)
class LastEvent:
    """An episode ended in a final state."""

    env_slot: int
    state: Any
    reward: float
    is_terminated: bool  #: else truncated
    is_exploiting: bool
    episode_return: float  #: nan if it is not to be counted
    episode_length: int


@dataclass(slots=True)
class CutEvent:
    """An episode was given up, or a session is gone."""

    env_slot: int
    has_episode: bool  #: whether there is an episode to be cut
    is_gone: bool  #: whether the env slot is to be released


Event = LiveEvent | LastEvent | CutEvent
