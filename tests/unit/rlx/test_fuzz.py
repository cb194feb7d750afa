"""A short run of tests/fuzz_rlx.py; the long one is `python -m tests.fuzz_rlx 1000000`."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

SPEC = importlib.util.spec_from_file_location("fuzz_rlx", Path(__file__).parents[2] / "fuzz_rlx.py")
assert SPEC is not None
assert SPEC.loader is not None
fuzz_rlx = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(fuzz_rlx)


@pytest.mark.slow
def test_mutated_frames_raise_nothing_but_typed_errors() -> None:
    assert fuzz_rlx.run(10_000) > 250


def test_no_message_allocates_much_more_than_its_bytes() -> None:
    worst = fuzz_rlx.largest_allocation(fuzz_rlx.mutations(3000, seed=1), fuzz_rlx.try_payload)
    assert worst <= fuzz_rlx.MAX_ALLOCATED
