"""How many examples the generated tests try: all they ask for, or a few where somebody waits for the answer."""

from __future__ import annotations

import os

from hypothesis import settings

#: The environment variable with a share of the examples, 0 .. 1; `make quick` sets it.
SHARE_VARIABLE = "SURREAL_TEST_EXAMPLES"

_LEAST = 5


def examples(number: int) -> settings:
    """Settings of a test that tries so many examples when all tests run."""
    share = float(os.environ.get(SHARE_VARIABLE, "1"))
    return settings(max_examples=max(_LEAST, round(number * share)))
