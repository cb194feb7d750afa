"""Evaluation: an agent plays whole episodes without exploring, and every episode counts the same. Knows no Redis.

The main path: `evaluator.Evaluator.play` assigns the environments (`seat.EvaluationSlot`) and gives
`rounds.EpisodeScore`s.
"""

from surreal.run.evaluation.evaluator import Evaluator
from surreal.run.evaluation.scores import EpisodeScore, EvaluationRound

__all__ = ["EpisodeScore", "EvaluationRound", "Evaluator"]
