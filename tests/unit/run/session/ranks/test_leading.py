"""What ranks other than rank 0 decide by themselves."""

from __future__ import annotations

import threading

from surreal.run.session.ranks.leading import OwnEnd


def test_a_rank_lets_rank_0_say_first_why_all_end() -> None:
    now, stop = [0.0], threading.Event()
    wants_end = OwnEnd(stop, clock=lambda: now[0])
    assert not wants_end()
    now[0] = 100.0
    stop.set()
    assert not wants_end()
    now[0] = 104.0
    assert not wants_end()
    now[0] = 105.0
    assert wants_end()
