"""Batches with continuous actions."""

from tests.unit.learner.off_policy.conftest import make_continuous

__all__ = ["make_continuous"]
