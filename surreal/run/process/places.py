"""`RankPlace`: which of a learner's ranks a process is, as torchrun's environment variables say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from surreal.base.errors import ConfigError

#: Where ranks on one machine meet.
LOOPBACK = "127.0.0.1"
_NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True)
class RankPlace:
    """The place of a process among the ranks that whoever started it started."""

    rank: int  #: 0 .. count - 1
    count: int
    local_rank: int = 0  #: among those of this machine: which GPU it has
    restarts: int = 0  #: how often all of them were started again

    def variables(self, port: int) -> dict[str, str]:
        """Environment variables of a process that has this place, and meets the others at a port of this machine."""
        return {
            "RANK": str(self.rank),
            "WORLD_SIZE": str(self.count),
            "LOCAL_RANK": str(self.local_rank),
            "MASTER_ADDR": LOOPBACK,
            "MASTER_PORT": str(port),
        }


def read_place(variables: Mapping[str, str]) -> RankPlace | None:
    """Read the place of this process; None where nobody has started ranks, or it is the only one.

    Raises:
        ConfigError: what is needed is only partly there, or no number.
    """
    if "RANK" not in variables or variables.get("WORLD_SIZE", "1") == "1":
        return None
    missing = [name for name in _NEEDED if not variables.get(name)]
    if missing:
        raise ConfigError(f"$RANK is set, but not ${missing[0]}; torchrun sets both")
    try:
        place = RankPlace(
            int(variables["RANK"]),
            int(variables["WORLD_SIZE"]),
            int(variables.get("LOCAL_RANK", "0")),
            int(variables.get("TORCHELASTIC_RESTART_COUNT", "0")),
        )
    except ValueError as error:
        raise ConfigError(f"$RANK, $WORLD_SIZE and $LOCAL_RANK must be whole numbers: {error}") from error
    if not 0 <= place.rank < place.count:
        raise ConfigError(f"$RANK is {place.rank}; it must be 0 .. {place.count - 1}, as $WORLD_SIZE is {place.count}")
    return place
