"""Evaluation: an agent plays whole episodes without exploring, and every episode counts the same. Knows no Redis.

The main path: `Evaluator.play` assigns the environments to slots (`evaluator.EvaluationSlot`) and returns the
`EpisodeScore` of each episode.
"""

from surreal.run.evaluation.evaluator import Evaluator
from surreal.run.evaluation.scores import EpisodeScore, EvaluationRound

__all__ = ["EpisodeScore", "EvaluationRound", "Evaluator"]
