"""Evaluation: an agent plays whole episodes without exploring, and every episode counts the same. Knows no Redis.

The main path: `evaluator.Evaluator.play` seats the environments (`seat.Seat`) and gives `rounds.EpisodeScore`s.
"""

from surreal.run.evaluation.evaluator import Evaluator
from surreal.run.evaluation.rounds import EpisodeScore, EvaluationRound

__all__ = ["EpisodeScore", "EvaluationRound", "Evaluator"]
