"""Rows that wait for their rewards, next to rows that do not."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from surreal.base.specs import ArraySpec, ObsSpec
from surreal.base.types import Action, StepBatch
from surreal.rlx.pool.batches import BatchBuilder, Event, LastEvent, LiveEvent
from surreal.rlx.pool.held_steps import HeldSteps

BUILDER = BatchBuilder(ObsSpec((ArraySpec("", (1,), np.dtype(np.float32)),), None), False, True, True)
#: One thing that the sender heard of an env slot: a row (name, reward, action), or its end.
Heard = tuple[float, float, int] | str


class Recorder:
    """A sender that notes, for each env slot, what it heard, in order."""

    global_step, sent_through = 7, ("name", 3)

    def __init__(self) -> None:
        self.heard: dict[int, list[Heard]] = defaultdict(list)
        self.flushed = 0

    def send_batch(self, batch: StepBatch, action: Action) -> None:
        for env_id in batch.closed_ids.tolist():
            self.heard[env_id].append("closed")
        actions = [-1] * batch.num_last + action.actions.tolist()
        assert len(actions) == len(batch.kind) == len(action.extras["value"]) + batch.num_last
        for row, env_id in enumerate(batch.env_ids.tolist()):
            self.heard[env_id].append((float(batch.obs[row, 0]), float(batch.reward[row]), actions[row]))

    def flush_due(self) -> None:
        self.flushed += 1

    flush = flush_due


def batch_of(*events: Event, cut: tuple[int, ...] = ()) -> tuple[StepBatch, Action]:
    ended = [event for event in events if isinstance(event, LastEvent)]
    live = [event for event in events if isinstance(event, LiveEvent)]
    batch = BUILDER.build(ended, live, cut)
    actions = np.array([int(event.state[0][0]) for event in live], np.int64)
    return batch, Action(actions, {"value": actions.astype(np.float32)}, 1)


def live(slot: int, name: int, reward: float = 0.0, step_id: int = 0, **more: Any) -> LiveEvent:
    state = [np.full(1, name, np.float32)]
    return LiveEvent(slot, None, state, reward, more.pop("first", False), more.pop("exploit", False), step_id=step_id)


def last(slot: int, name: int, reward: float, step_id: int = 0) -> LastEvent:
    return LastEvent(slot, [np.full(1, name, np.float32)], reward, True, False, 1.0, 1, step_id=step_id)


def make() -> tuple[HeldSteps, Recorder, dict[int, float | None]]:
    sender, final = Recorder(), dict[int, float | None]()

    def take() -> dict[int, float | None]:
        taken = dict(final)
        final.clear()
        return taken

    return HeldSteps(sender, take), sender, final


def test_a_pending_step_and_those_after_it_wait_and_other_environments_do_not() -> None:
    steps, sender, final = make()
    steps.send_batch(*batch_of(live(0, 10, first=True), live(1, 20, first=True)))
    steps.send_batch(*batch_of(live(0, 11, 0.0, step_id=5), live(1, 21, 1.0)))
    steps.send_batch(*batch_of(live(0, 12, 1.0), live(1, 22, 1.0)))
    assert sender.heard == {0: [(10, 0, 10)], 1: [(20, 0, 20), (21, 1, 21), (22, 1, 22)]}
    final[5] = 0.5
    steps.flush_due()
    assert sender.flushed == 1
    assert sender.heard[0] == [(10, 0, 10), (11, 0.5, 11), (12, 1, 12)]
    assert steps.global_step == 7 and steps.sent_through == ("name", 3)


def test_an_end_and_the_next_episode_in_one_batch_both_wait() -> None:
    steps, sender, final = make()
    steps.send_batch(*batch_of(live(0, 10, first=True)))
    steps.send_batch(*batch_of(last(0, 11, 0.0, step_id=5), live(0, 12, first=True)))
    steps.send_batch(*batch_of(cut=(0,)))
    assert sender.heard[0] == [(10, 0, 10)]
    final[5] = None  # its time is over
    steps.flush()
    assert sender.heard[0] == [(10, 0, 10), (11, 0, -1), (12, 0, 12), "closed"]


def test_a_reward_that_is_final_at_once_and_one_of_a_step_that_is_not_recorded() -> None:
    steps, sender, final = make()
    final.update({5: 2.0, 6: 3.0})
    steps.send_batch(*batch_of(live(0, 11, 0.0, step_id=5), live(1, 21, 0.0, step_id=6, exploit=True)))
    assert sender.heard == {0: [(11, 2, 11)], 1: [(21, 0, 21)]}


def test_the_rest_leaves_at_the_end_with_the_rewards_that_it_has() -> None:
    steps, sender, final = make()
    steps.send_batch(*batch_of(live(0, 11, 0.25, step_id=5), live(1, 21, 0.0, step_id=6)))
    steps.send_batch(*batch_of(live(0, 12, 0.0, step_id=7)))
    final[6] = 9.0
    steps.release()
    assert sender.heard == {0: [(11, 0.25, 11), (12, 0, 12)], 1: [(21, 9, 21)]}


def test_random_streams_leave_as_a_naive_list_would() -> None:
    """Each environment's rows arrive in order, none before an older one is final, and none later than needed."""
    rng = np.random.default_rng(3)
    steps, sender, final = make()
    rows: dict[int, list[tuple[int, Heard]]] = defaultdict(list)  # number of the step, and what is to be heard
    pending: dict[int, tuple[int, int]] = {}
    alive: set[int] = set()
    for turn in range(600):
        events: list[Event] = []
        cut = tuple(slot for slot in alive if rng.random() < 0.03)
        for slot in cut:
            rows[slot].append((0, "closed"))
        alive -= set(cut)
        for slot in range(4):
            name, step_id = 1000 * slot + turn % 1000, 0
            if slot not in alive or rng.random() < 0.3:
                if slot not in alive:
                    events.append(live(slot, name, first=True))
                    rows[slot].append((0, (name, 0, name)))
                    alive.add(slot)
                continue
            if rng.random() < 0.3:
                step_id = int(rng.integers(1, 1 << 53))
                pending[step_id] = slot, len(rows[slot])
            if rng.random() < 0.1:
                events.append(last(slot, name, 0.5, step_id))
                rows[slot].append((step_id, (name, 0.5, -1)))
                alive.remove(slot)
            else:
                events.append(live(slot, name, 0.5, step_id))
                rows[slot].append((step_id, (name, 0.5, name)))
        steps.send_batch(*batch_of(*events, cut=cut))
        for step_id in [step_id for step_id in pending if rng.random() < 0.2]:
            slot, row = pending.pop(step_id)
            _, heard = rows[slot][row]
            reward = float(rng.integers(100)) if rng.random() < 0.7 else None
            assert not isinstance(heard, str)
            rows[slot][row] = 0, heard if reward is None else (heard[0], reward, heard[2])
            final[step_id] = reward
        steps.flush_due()
        for slot, expected in rows.items():
            ready = next((i for i, (step_id, _) in enumerate(expected) if step_id), len(expected))
            assert sender.heard[slot] == [heard for _, heard in expected[:ready]]
    assert len(pending) < 40  # most were judged
