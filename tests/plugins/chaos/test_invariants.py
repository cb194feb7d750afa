"""Faults that are planted into the history of a run: each is found, and a history without any is not complained of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from surreal.base.system.health import StartParts
from surreal.plugins.chaos.experience import ShardLedger
from surreal.plugins.chaos.observing import Entry, Life, PolicySight, Segment, ShardSight, Standing
from surreal.plugins.chaos.verdicts import Acknowledgements, Complaints, Recovery, Versions, judge_scores


class Shard:
    """A Redis with one stream, as a faultless one behaves, of two senders with one environment each."""

    def __init__(self) -> None:
        self.epoch, self.steps, self.chunks, self.is_counted = "e1", 0, 0, True
        self.sent = {"a": 0, "b": 0}
        self.step = {"a": 0, "b": 0}

    def chunk(
        self, sender: str, own_steps: int = 10, *, sequence: int | None = None, first: int | None = None
    ) -> Entry:
        """The next chunk of a sender, on its way."""
        self.sent[sender] += 1
        begin = self.step[sender] if first is None else first
        self.step[sender] = begin + own_steps
        segments = (Segment(0, begin, own_steps),)
        return Entry(sender, self.sent[sender] if sequence is None else sequence, own_steps, segments)

    def store(self, *entries: Entry) -> ShardSight:
        """Append chunks, and look."""
        self.chunks += len(entries)
        self.steps += sum(entry.own_steps for entry in entries)
        return self.see(*entries)

    def see(self, *entries: Entry) -> ShardSight:
        return ShardSight(0, self.epoch, self.steps, self.chunks, self.is_counted, entries)

    def empty(self, brought_back: int | None = None) -> None:
        """Lose everything; the owner adds what it knew."""
        self.epoch = f"{self.epoch}'"
        self.steps, self.chunks, self.is_counted = brought_back or 0, 0, brought_back is not None


def complaints(ledger: ShardLedger) -> dict[str, Sequence[str]]:
    found = {"lost": ledger.lost, "doubled": ledger.doubled, "inexact": ledger.inexact}
    return {name: each.all() for name, each in found.items() if each}


def ledger_of(*sights: ShardSight, **options: Any) -> ShardLedger:
    ledger = ShardLedger(**options)
    for sight in sights:
        ledger.look(sight)
    return ledger


def test_history_without_a_fault_is_not_complained_of() -> None:
    shard = Shard()
    sights = [shard.store(shard.chunk("a"), shard.chunk("b")), shard.store(), shard.store(shard.chunk("a", 7))]
    sights.append(shard.store(shard.chunk("a", 5, first=0)))  # a new episode
    ledger = ledger_of(*sights)
    assert complaints(ledger) == {}
    assert (ledger.chunks, ledger.steps, ledger.growth, ledger.counted) == (4, 32, 32, 32)


def test_chunk_that_is_missing_between_two_of_its_sender_is_lost() -> None:
    shard = Shard()
    lost, kept = shard.chunk("a"), shard.chunk("a")
    assert complaints(ledger_of(shard.store(shard.chunk("b")), shard.store(kept))) == {
        "lost": ("1 chunks are missing between others of the same sender",)
    }
    assert lost.sequence == 1


def test_chunk_that_was_evicted_before_it_was_seen_is_not_lost() -> None:
    shard = Shard()
    before = shard.see()
    first, gone, last = (shard.chunk("a") for _ in range(3))
    shard.store(gone)
    ledger = ledger_of(before, shard.see(), shard.store(first, last))
    assert complaints(ledger) == {}
    assert (ledger.unseen_chunks, ledger.unseen_steps, ledger.growth) == (1, 10, 30)


def test_chunk_that_comes_twice_is_doubled() -> None:
    shard = Shard()
    chunk = shard.chunk("a")
    assert complaints(ledger_of(shard.store(chunk), shard.store(chunk)))["doubled"] == ("chunk a-1 came again",)


@pytest.mark.parametrize(("first", "what"), [(14, "lost"), (6, "doubled")])
def test_steps_between_chunks_are_followed(first: int, what: str) -> None:
    shard = Shard()
    found = complaints(ledger_of(shard.store(shard.chunk("a")), shard.store(shard.chunk("a", first=first))))
    assert list(found) == [what]
    assert f"continues at step {first} of its episode in chunk 2, where step 10 was next" in found[what][0]


def test_lanes_are_not_followed_where_not_every_step_is_recorded() -> None:
    shard = Shard()
    sights = shard.store(shard.chunk("a")), shard.store(shard.chunk("a", first=14))
    assert complaints(ledger_of(*sights, has_lanes=False)) == {}


@pytest.mark.parametrize("more", [-1, 1])
def test_global_step_that_differs_from_the_chunks_is_not_exact(more: int) -> None:
    shard = Shard()
    first = shard.store(shard.chunk("a"))
    shard.steps += more
    ledger = ledger_of(first, shard.see(), shard.see())
    counted = f"the global step counts {10 + more} env steps where the chunks hold 10"
    assert complaints(ledger) == {"inexact": (counted,)}  # once


def test_entry_that_was_never_counted_is_found() -> None:
    shard = Shard()
    chunk = shard.chunk("a")
    shard.steps += 10
    assert complaints(ledger_of(shard.see(chunk)))["inexact"] == ("the stream holds 1 chunks that were never counted",)


def test_redis_that_forgets_chunks_within_an_epoch_has_lost_them() -> None:
    shard = Shard()
    before = shard.store(shard.chunk("a"), shard.chunk("a"))
    shard.chunks, shard.steps = 1, 10
    assert complaints(ledger_of(before, shard.see())) == {
        "lost": ("1 chunks that were acknowledged are gone, and the epoch is the same",)
    }


def test_redis_that_may_lose_the_last_second_is_forgiven_once() -> None:
    shard = Shard()
    lost = shard.chunk("a")
    ledger = ledger_of(shard.store(lost))
    ledger.expect_rollback()
    shard.chunks = shard.steps = 0
    ledger.look(shard.store(lost))  # it was not acknowledged, and is sent again
    ledger.look(shard.store(shard.chunk("a")))
    assert complaints(ledger) == {}
    shard.chunks = shard.steps = 0
    ledger.look(shard.see())
    assert list(complaints(ledger)) == ["lost"]


def test_epoch_that_changes_though_nobody_emptied_redis_is_a_loss() -> None:
    shard = Shard()
    before = shard.store(shard.chunk("a"))
    shard.empty(10)
    assert "another epoch" in complaints(ledger_of(before, shard.see()))["lost"][0]


@pytest.mark.parametrize(("brought_back", "is_exact"), [(20, True), (15, True), (21, False)])
def test_emptied_redis_loses_what_it_held_and_the_owner_brings_no_more_than_that_back(
    brought_back: int, is_exact: bool
) -> None:
    shard = Shard()
    flying = shard.chunk("a")
    ledger = ledger_of(shard.store(shard.chunk("b")), shard.store(flying))
    ledger.expect_emptying()
    shard.empty()
    ledger.look(ShardSight(0, ""))
    ledger.look(shard.store(flying))  # its answer was lost
    shard.steps, shard.is_counted = shard.steps + brought_back, True
    ledger.look(shard.see())
    ledger.look(shard.store(shard.chunk("a")))
    assert list(complaints(ledger)) == ([] if is_exact else ["inexact"])
    assert ledger.repeated == 1
    assert ledger.carried == [(20, brought_back)]
    assert ledger.growth == ledger.counted == 40


def test_run_that_is_joined_is_followed_from_there() -> None:
    shard = Shard()
    for _ in range(5):
        shard.store(shard.chunk("a"))
    sights = shard.see(), shard.store(shard.chunk("a")), shard.store(shard.chunk("b"))
    ledger = ledger_of(*sights, is_new=False)
    assert complaints(ledger) == {}
    assert ledger.growth == 20
    shard.chunk("b")
    ledger.look(shard.store(shard.chunk("b", first=30)))
    assert list(complaints(ledger)) == ["lost"]


def test_gradients_are_counted_without_chunks_and_only_up() -> None:
    shard = Shard()

    def sights() -> Iterator[ShardSight]:
        for steps in (0, 128, 256):
            shard.steps = steps
            yield shard.see()

    ledger = ledger_of(*sights(), counts_chunks=False)
    assert (complaints(ledger), ledger.growth) == ({}, 256)
    ledger.expect_emptying()
    shard.empty()
    shard.steps = 128
    ledger.look(shard.see())
    shard.steps, shard.is_counted = 128 + 256 + 128, True  # brought back, and another gradient came in the same moment
    ledger.look(shard.see())
    assert (complaints(ledger), ledger.growth, ledger.carried) == ({}, 512, [(256, 256)])
    shard.steps = 500
    ledger.look(shard.see())
    assert list(complaints(ledger)) == ["inexact"]


# -- senders --------------------------------------------------------------------------------------------------------


def life(
    name: str = "agent-0", *, life_id: str = "1", version: int = 1, chunks: int = 0, is_alive: bool = True
) -> Life:
    return Life(life_id, name, "agent", 1, True, is_alive, 0.5, version, chunks, 10 * chunks, 0)


def test_what_was_acknowledged_and_never_came_is_lost() -> None:
    told = Acknowledgements()
    told.hear([life(chunks=3), life(life_id="2", chunks=4)])
    told.compare(7, 70)
    assert not told.lost
    told.hear([life(life_id="2", chunks=2)])  # of a heartbeat that came late
    told.compare(6, 60)
    assert told.lost.all() == ("agents were told that 7 chunks of 70 env steps are stored; the streams had 6 of 60",)


def test_what_was_acknowledged_before_a_run_was_joined_is_not_looked_for() -> None:
    told = Acknowledgements(is_new=False)
    told.hear([life(chunks=100)])
    told.compare(0, 0)
    told.settle()
    told.hear([life(chunks=102), life(life_id="2", chunks=1)])
    told.compare(3, 30)
    assert (*told.counts(), bool(told.lost)) == (2, 3, 30, False)


# -- versions -------------------------------------------------------------------------------------------------------


def test_version_that_goes_back_or_comes_twice_is_found() -> None:
    versions = Versions()
    for version, publication in ((1, "x"), (2, "y"), (2, "y"), (4, "z")):
        versions.look([PolicySight("default", "e", version, publication)])
    assert (bool(versions.broken), versions.publications) == (False, 4)
    versions.look([PolicySight("default", "e", 3, "w")])
    versions.look([PolicySight("default", "e", 3, "v")])
    assert versions.broken.all() == (
        "policy default: version 3 was published after version 4",
        "policy default: version 3 was published twice",
    )


def test_versions_may_go_back_after_a_rollback_but_not_from_those_published_since() -> None:
    versions, replica = Versions(), PolicySight("default", "e", 7, "v")
    versions.look([PolicySight("default", "e", 9, "x")])
    versions.hear([life(version=9)])
    versions.expect_rollback()
    versions.look([replica])
    versions.hear([life(version=7)])
    assert not versions.broken
    assert versions.not_promised() == ("1 times a process had an older version after a replica had taken over",)
    versions.look([PolicySight("default", "e", 6, "u")])
    versions.hear([life(version=12)])
    versions.hear([life(version=11)])
    assert versions.broken.all() == (
        "policy default: version 6 was published after version 7",
        "agent-0 (process 1) went back from version 12 to 11",
    )


def test_version_may_begin_lower_in_a_redis_that_was_emptied() -> None:
    versions = Versions()
    versions.look([PolicySight("default", "e", 9, "x")])
    versions.hear([life(version=9)])
    versions.look([PolicySight("default", "f", 2, "y")])
    versions.hear([life(version=2)])
    assert not versions.broken
    versions.hear([life(version=1)])
    assert versions.broken.all() == ("agent-0 (process 1) went back from version 2 to 1",)


# -- evaluation and recovery ----------------------------------------------------------------------------------------


def rounds(*versions: int) -> list[dict[str, Any]]:
    return [{"round": number, "version": version, "mean_return": 10.0} for number, version in enumerate(versions)]


def test_rounds_that_go_on_are_fine() -> None:
    found = judge_scores(rounds(1, 2, 2, 5), before=1, last_at=3, may_go_back=False)
    assert found.holds
    assert "4 rounds, 1 of them after the last disturbance" in found.evidence


@pytest.mark.parametrize(
    ("lines", "last_at", "wrong"),
    [
        (rounds(1, 3, 2), 1, "round 2 played version 2 after version 3"),
        ([*rounds(1, 2), *rounds(3)], 1, "rounds are numbered 0, 1, 0"),
        (rounds(1, 2), 2, "no round was played after the last disturbance"),
    ],
)
def test_rounds_that_do_not_go_on_are_found(lines: list[dict[str, Any]], last_at: int, wrong: str) -> None:
    found = judge_scores(lines, before=1, last_at=last_at, may_go_back=False)
    assert wrong in found.violations[0]
    assert len(found.violations) == 1


def test_run_is_itself_again_when_the_killed_one_is_back_acts_and_learns() -> None:
    recovery = Recovery(1, "kill", "agent-0", began_s=1.0, killed="1")
    other = life("learner", life_id="9")
    recovery.end(1.0, Standing(100, 5, (life(), other)))
    expected = {"agent-0", "learner"}
    seen = {
        "agent-0 not back": Standing(120, 6, (life(), other)),
        "no env step since": Standing(100, 6, (life(life_id="2"), other)),
        "no new version since": Standing(120, 5, (life(life_id="2"), other)),
        "learner not back": Standing(120, 6, (life(life_id="2"), other._replace(is_alive=False))),
    }
    for missing, standing in seen.items():
        assert not recovery.look(2.0, standing, expected)
        assert recovery.missing == missing
    assert not recovery.is_late(60.9, 60.0)
    assert recovery.is_late(61.1, 60.0)
    assert recovery.look(4.0, Standing(120, 6, (life(life_id="2"), life()._replace(age_s=3.0), other)), expected)
    assert (recovery.took_s, recovery.is_late(99.0, 60.0)) == (3.0, False)


def test_downtime_of_the_killed_is_split_once_its_next_life_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("surreal.plugins.chaos.verdicts.process_age_s", lambda pid: 3.0)
    recovery = Recovery(1, "kill", "agent-0", began_s=1.0, killed="1")
    recovery.end(1.0, Standing(100, 5, (life(),)))
    parts = StartParts(0.5, 1.0, 0.25)
    next_life = life(life_id="2")
    for seen in (None, life()._replace(start=parts), next_life, next_life._replace(start=parts, is_here=False)):
        recovery.look_at_start(9.0, seen)
        assert recovery.downtime is None
    recovery.look_at_start(6.0, next_life._replace(start=parts))
    assert recovery.downtime == (2.0, *parts)


def test_complaints_are_told_once_and_not_without_end() -> None:
    found = Complaints()
    found.extend(f"number {number // 2}" for number in range(60))
    assert len(found.all()) == 21
    assert found.all()[-1] == "and 10 more of the kind"
