"""Recorded runs with one violation each: exactly the invariant that it breaks is found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from redis.exceptions import ConnectionError as AwayError

from surreal.config import load_config
from surreal.plugins.chaos import audit as module
from surreal.plugins.chaos.audit import Audit
from surreal.plugins.chaos.observing import Entry, Life, PolicySight, Segment, ShardSight

STEPS = 10
LOST, DOUBLED, EXACT, RISE = (
    "nothing acknowledged is lost",
    "nothing is doubled",
    "the global step is exact",
    "versions rise",
)


def entry(sequence: int) -> Entry:
    return Entry("a", sequence, STEPS, (Segment(0, STEPS * (sequence - 1), STEPS),))


@dataclass
class Moment:
    """All that is seen of a run at one look."""

    entries: list[Entry]
    epoch: str
    steps: int
    chunks: int
    version: int
    publication: str
    held: int  #: version that the agent has
    acknowledged: int  #: chunks, as the agent reports

    @property
    def shard(self) -> ShardSight:
        return ShardSight(0, self.epoch, self.steps, self.chunks, True, tuple(self.entries))

    @property
    def lives(self) -> tuple[Life, ...]:
        chunks, steps = self.acknowledged, STEPS * self.acknowledged
        return (Life("1", "agent-0", "agent", 1, False, True, 0.1, self.held, chunks, steps, 0),)


def healthy(count: int = 6) -> list[Moment]:
    """A chunk and a version with each look."""
    return [
        Moment([entry(n)], "e", STEPS * n, n, n, f"p{n}", held=max(n - 1, 1), acknowledged=n - 1)
        for n in range(1, count + 1)
    ]


@dataclass
class Recording:
    """A recorded run, in the place of the reader of a real one."""

    moments: Sequence[Moment]
    at: int = -1
    is_away: bool = False
    clients: list[object] = field(default_factory=lambda: [object()])

    @property
    def now(self) -> Moment:
        return self.moments[self.at]

    def shards(self, client: object, and_then: object = None) -> list[ShardSight]:
        if self.is_away:
            raise AwayError("refused")
        return [self.now.shard]

    def policies(self) -> list[PolicySight]:
        return [PolicySight("default", self.now.epoch, self.now.version, self.now.publication)]


def watch(monkeypatch: pytest.MonkeyPatch, recording: Recording, *overrides: str) -> Audit:
    """Prepare an audit of a recorded run, whose clock advances by a second with each look."""
    subject: Any = SimpleNamespace(
        config=load_config("cartpole-dqn", overrides),
        replay=SimpleNamespace(streams=lambda: [SimpleNamespace(shard=0, client=recording.clients[0])]),
        parameter_client=None,
        client=None,
        is_new=True,
        policies=lambda: ["default"],
    )
    monkeypatch.setattr(module, "Reader", lambda *_, **__: recording)
    monkeypatch.setattr(module, "read_lives", lambda _: recording.now.lives)
    return Audit(subject, clock=lambda: float(recording.at))


def broken(audit: Audit) -> dict[str, tuple[str, ...]]:
    return {verdict.name: verdict.violations for verdict in audit.verdicts() if not verdict.holds}


def judge(monkeypatch: pytest.MonkeyPatch, moments: Sequence[Moment], *overrides: str) -> Audit:
    recording = Recording(moments)
    audit = watch(monkeypatch, recording, *overrides)
    for recording.at in range(len(moments)):
        assert audit.look()
    return audit


def test_nothing_is_found_in_a_run_without_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    audit = judge(monkeypatch, healthy())
    assert broken(audit) == {}
    assert (audit.standing.steps, audit.standing.publications, audit.was_emptied) == (60, 6, False)
    evidence = {verdict.name: verdict.evidence for verdict in audit.verdicts()}
    assert "1 lives of agents were told that 5 chunks of 50 are stored; 6 chunks of 60 env steps" in evidence[LOST]
    assert "up to version 6" in evidence[RISE]


def tell_too_much(run: list[Moment]) -> None:
    run[3].acknowledged = 9


def skip_a_chunk(run: list[Moment]) -> None:
    """Number 4 never comes."""
    del run[3].entries[:]
    for moment in run[3:]:
        moment.steps, moment.chunks = moment.steps - STEPS, moment.chunks - 1
        moment.acknowledged = min(moment.acknowledged, moment.chunks)


def repeat_a_chunk(run: list[Moment]) -> None:
    run[3].entries.append(run[3].entries[0])
    for moment in run[3:]:
        moment.steps, moment.chunks = moment.steps + STEPS, moment.chunks + 1


def count_a_step_twice(run: list[Moment]) -> None:
    for moment in run[3:]:
        moment.steps += 1


def store_without_counting(run: list[Moment]) -> None:
    for moment in run[3:]:
        moment.steps, moment.chunks = moment.steps - STEPS, moment.chunks - 1


def forget_chunks(run: list[Moment]) -> None:
    """Redis loses two chunks, and the epoch is the same."""
    for moment in run[3:]:
        moment.entries = []
        moment.steps, moment.chunks, moment.acknowledged = STEPS, 1, run[2].acknowledged


def change_the_epoch(run: list[Moment]) -> None:
    for number, moment in enumerate(run[3:]):
        moment.epoch, moment.steps, moment.chunks = "f", STEPS * (number + 1), number + 1


def publish_an_old_version(run: list[Moment]) -> None:
    run[4].version = 2


def publish_a_version_twice(run: list[Moment]) -> None:
    run[4].version = run[3].version


def go_back_to_old_parameters(run: list[Moment]) -> None:
    run[4].held = 1


@pytest.mark.parametrize(
    ("violate", "name", "sentence"),
    [
        (tell_too_much, LOST, "agents were told that 9 chunks of 90 env steps are stored; the streams had 4 of 40"),
        (skip_a_chunk, LOST, "1 chunks are missing between others of the same sender"),
        (repeat_a_chunk, DOUBLED, "chunk a-4 came again"),
        (count_a_step_twice, EXACT, "the global step counts 41 env steps where the chunks hold 40"),
        (store_without_counting, EXACT, "the stream holds 1 chunks that were never counted"),
        (forget_chunks, LOST, "2 chunks that were acknowledged are gone, and the epoch is the same"),
        (change_the_epoch, LOST, "Redis has another epoch (f after e), though no process emptied it"),
        (publish_an_old_version, RISE, "policy default: version 2 was published after version 4"),
        (publish_a_version_twice, RISE, "policy default: version 4 was published twice"),
        (go_back_to_old_parameters, RISE, "agent-0 (process 1) went back from version 3 to 1"),
    ],
)
def test_a_violation_breaks_its_invariant_and_no_other(
    monkeypatch: pytest.MonkeyPatch, violate: Callable[[list[Moment]], None], name: str, sentence: str
) -> None:
    run = healthy()
    violate(run)
    found = broken(judge(monkeypatch, run))
    assert list(found) == [name]
    assert sentence in found[name][0]


def test_what_was_lost_on_purpose_is_not_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    run = healthy()
    change_the_epoch(run)
    recording = Recording(run)
    audit = watch(monkeypatch, recording)
    for recording.at in range(len(run)):
        if recording.at == 3:
            audit.expect_emptying(recording.clients[0])  # type: ignore[arg-type]
        audit.look()
    assert broken(audit) == {}
    assert audit.was_emptied
    assert "Redis was emptied 1 times" in audit.verdicts()[0].not_promised[0]


def test_a_redis_that_is_away_is_not_a_violation_and_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    run = healthy()
    recording = Recording(run)
    audit = watch(monkeypatch, recording)
    looks = []
    for recording.at in range(len(run)):
        recording.is_away = recording.at == 3
        if recording.at == 4:  # what came meanwhile is read together
            run[4].entries.insert(0, entry(4))
        looks.append(audit.look())
    assert looks == [True, True, True, False, True, True]
    assert broken(audit) == {}
    assert audit.standing.steps == 60


def test_gradients_are_counted_without_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    run = healthy()
    for moment in run:
        moment.entries, moment.chunks, moment.acknowledged = [], 0, 0
    audit = judge(monkeypatch, run, "learner.class=surreal.learner.A2CLearner", "learner.gradients=agents",
                  "model.class=surreal.model.ActorCritic", "agent.class=surreal.agent.PolicyAgent",
                  "replay.class=surreal.replay.FIFOReplay")  # fmt: skip
    assert broken(audit) == {}
    assert audit.verdicts()[0].evidence == "not looked at: agents send gradients, and no experience"
