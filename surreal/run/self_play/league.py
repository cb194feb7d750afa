"""`League`: a learning policy and a bounded number of its past versions, all with ratings. No I/O.

The learner keeps it (`keeper.py`), agents read it and draw their opponents from it (`opponents.py`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np
from annotated_types import Ge
from numpy.typing import NDArray

from surreal.base.errors import CodecError
from surreal.base.ranges import Positive, checked

#: How opponents are drawn: see `League.weights`.
Sampling = Literal["pfsp", "rating", "uniform"]

#: Games of a version that its score remembers: the learner changes, and so does what it scores.
_REMEMBERED = 50
_MAX_VERSIONS = 1000
#: Rating of a player without games.
FIRST_RATING = 1000.0
#: A difference of 400 points means that the better player is expected to score ten times as much as the other.
_SCALE = 400.0 / math.log(10.0)


@dataclass(frozen=True)
class PastVersion:
    """A former version of the policy."""

    version: int  #: version of its parameters, by which it is known
    env_steps: int = 0  #: env steps of the run when it was kept
    updates: int = 0  #: updates of the learner then
    rating: float = FIRST_RATING  #: Elo
    games: int = 0  #: that were played against it and counted
    score: float = 0.5  #: score of the learner in the last of these games, 0..1; a new version begins with 0.5


class League:
    """At most `size` past versions, oldest first, and the learner's own rating, by `rating_step`; see `rate`."""

    @checked
    def __init__(self, *, size: Annotated[int, Ge(2)] = 10, rating_step: Positive = 4.0) -> None:
        self.size = size
        self.rating = FIRST_RATING
        self.games = 0  #: counted in all
        self.versions: list[PastVersion] = []
        self._rating_step = rating_step

    @property
    def newest(self) -> PastVersion | None:
        return self.versions[-1] if self.versions else None

    def add(self, version: int, *, env_steps: int, updates: int) -> list[int]:
        """Keep the current learner as a version with its rating, and return the versions that are dropped for it.

        The oldest and the newest always stay. The one whose neighbors are nearest to each other in
        env steps is dropped, so that the rest are spread evenly over the run.
        """
        self.versions.append(PastVersion(version, env_steps, updates, self.rating))
        gone = []
        while len(self.versions) > self.size:
            steps = [each.env_steps for each in self.versions]
            gaps = [after - before for before, after in zip(steps, steps[2:], strict=False)]
            gone.append(self.versions.pop(1 + int(np.argmin(gaps))).version)
        return gone

    def count(self, version: int, score: float, games: int) -> bool:
        """Record the learner's score in games against a version; false if the version was dropped."""
        place = next((i for i, each in enumerate(self.versions) if each.version == version), None)
        if place is None:
            return False
        known = self.versions[place]
        self.rating, rating = rate(self.rating, known.rating, score, games, self._rating_step)
        recent = known.score
        for played in range(known.games + 1, known.games + games + 1):
            recent += (score / games - recent) / min(1 + played, _REMEMBERED)
        self.versions[place] = replace(known, rating=rating, games=known.games + games, score=recent)
        self.games += games
        return True

    def weights(self, sampling: Sampling, *, exponent: float = 2.0) -> NDArray[np.float64]:
        """Return the probability of each version to be drawn as opponent.

        - `pfsp`: (1 - x)^exponent, with x the learner's recent score: those who still win (prioritized fictitious
          self-play, Vinyals et al. 2019, doi:10.1038/s41586-019-1724-z, f_hard).
        - `rating`: 4 e (1 - e), with e the score that the ratings let expect: those of the same strength.
        - `uniform`: all alike (fictitious self-play, Heinrich et al. 2015).

        Returns:
            [versions] with sum 1.
        """
        if sampling == "pfsp":
            weights = np.array([(1.0 - each.score) ** exponent for each in self.versions])
        elif sampling == "rating":
            expected = np.array([expected_score(self.rating, each.rating) for each in self.versions])
            weights = 4.0 * expected * (1.0 - expected)
        else:
            weights = np.ones(len(self.versions))
        # Each version keeps a chance, because ratings and scores are old.
        weights = np.maximum(weights, 1e-3)
        found: NDArray[np.float64] = weights / weights.sum()
        return found

    def to_json(self) -> dict[str, Any]:
        return {"rating": self.rating, "games": self.games, "versions": [asdict(each) for each in self.versions]}

    def load_json(self, data: Mapping[str, Any]) -> None:
        """Take over what `to_json` gave, or raise `CodecError`; versions beyond `size` stay until the next is added."""
        try:
            versions = [PastVersion(**each) for each in data["versions"]]
            rating, games = float(data["rating"]), int(data["games"])
            numbers = [rating, *(number for each in versions for number in (each.rating, each.score))]
            whole = [games, *(n for each in versions for n in (each.version, each.env_steps, each.updates, each.games))]
            is_sound = all(map(math.isfinite, numbers)) and all(type(n) is int and n >= 0 for n in whole)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CodecError(f"this is not a league: {error}") from None
        if not is_sound or len(versions) > _MAX_VERSIONS:
            raise CodecError("this is not a league: its numbers are impossible")
        self.rating, self.games, self.versions = rating, games, versions


def expected_score(rating: float, opponent: float) -> float:
    """Return the expected score of a player in a game, 0..1: 1 / (1 + 10^((opponent - rating) / 400)).

    Elo, "The Rating of Chessplayers, Past and Present", 1978.
    """
    return 1.0 / (1.0 + math.exp((opponent - rating) / _SCALE))


def rate(rating: float, opponent: float, score: float, games: int, step: float) -> tuple[float, float]:
    """Rate two players after games against each other; returns the new ratings of both, whose sum stays.

    The score of the one, 0..games, counts 1 for a win and 0.5 for a draw. It is taken to be spread evenly over the
    games, so their order does not matter, and each game moves both ratings by `step` (Elo's K) times the difference
    from what was expected just before it. A higher step follows a change sooner and shakes more.
    """
    for _ in range(games):
        change = step * (score / games - expected_score(rating, opponent))
        rating, opponent = rating + change, opponent - change
    return rating, opponent
