"""The number of examples that generated tests try: all, or a share of them in `make quick`."""

from __future__ import annotations

import os

from hypothesis import settings

#: Environment variable with the share of the examples, > 0, at most 1; `make quick` sets it.
SHARE_VARIABLE = "SURREAL_TEST_EXAMPLES"

_LEAST = 5


def share() -> float:
    """Return the share of its examples that a test tries."""
    return float(os.environ.get(SHARE_VARIABLE, "1"))


def examples(number: int) -> settings:
    """Settings of a test that tries `number` examples when all tests run."""
    return settings(max_examples=max(_LEAST, round(number * share())))
