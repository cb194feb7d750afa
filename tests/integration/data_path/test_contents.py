"""What senders send is what a replay holds: compared with a replay of plain Python lists."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import redis
from naive_replay import DEADLINE_S, NaiveReplay, Pool, Walker, assert_same, contents, make_obs, pump

from surreal.base.types import Action, StepBatch, StepKind
from surreal.distributed.experience.stream import Stream
from surreal.replay.store.rows import MirroredRows

STEPS = 300


@pytest.mark.parametrize("is_dict", [False, True], ids=["array", "dict"])
@pytest.mark.parametrize(("n", "lookahead"), [(1, 0), (3, 2), (2, 4)])
def test_single_steps_arrive_as_n_step_transitions(run: Any, n: int, lookahead: int, is_dict: bool) -> None:
    sender, replay = run.sender(lookahead=lookahead), run.replay(n_step=n)
    walker = Walker(NaiveReplay(n, 0.5), is_dict=is_dict)
    walker.walk(sender, STEPS)
    assert sender.close()
    pump(replay, steps=STEPS)
    assert_same(contents(replay), walker.naive.transitions())
    assert sender.metrics()["sender/steps_total"] == replay.global_step == sender.global_step == STEPS


@pytest.mark.parametrize("is_dict", [False, True], ids=["array", "dict"])
@pytest.mark.parametrize("n", [1, 3])
def test_batches_of_a_pool_arrive_as_n_step_transitions(run: Any, n: int, is_dict: bool) -> None:
    sender, replay = run.sender(lookahead=n - 1), run.replay(n_step=n)
    pool = Pool(5, n, 0.5, is_dict=is_dict)
    for _ in range(STEPS // 4):
        sender.send_batch(*pool.recv())
    assert sender.close()
    expected = pool.transitions()
    pump(replay, steps=len(expected))
    assert_same(contents(replay), expected)


def test_batches_drawn_are_rows_of_the_contents(run: Any) -> None:
    sender, replay = run.sender(lookahead=2), run.replay(n_step=3, batch_size=32, start_size=100)
    walker = Walker(NaiveReplay(3, 0.5), is_dict=True)
    walker.walk(sender, STEPS)
    sender.close()
    replay.start_threads()
    expected = walker.naive.transitions()
    drawn = set()
    for i, batch in replay.batch_iterator():
        names = batch.obs["pose"][1].tolist()
        for row, name in enumerate(names):
            columns = (batch.action, batch.reward, batch.discount, batch.next_obs["pose"][1])
            np.testing.assert_allclose([float(column[row]) for column in columns], expected[name][:4], rtol=1e-6)
        assert (batch.obs["pixels"][:, 1] == -batch.obs["pose"][1]).all()
        drawn.update(names)
        if i == 60:
            break
    # 61 * 32 uniform draws of 300 leave one out with a probability of 300 * exp(-6.5) = 0.4 in the mean.
    assert len(drawn) > 0.97 * STEPS


def test_the_form_without_new_obs_takes_it_from_the_next_step(run: Any) -> None:
    sender, replay = run.sender(chunk_steps=3), run.replay()
    naive = NaiveReplay(1, 0.5)
    for name in range(1, 11):
        ends = name in (4, 7)
        next_name = name if ends else name + 1
        if name < 10:  # the last one stays incomplete
            naive.add(name, name % 3, float(name), next_name, terminated=ends)
        sender.send([make_obs(name, is_dict=False)], name % 3, float(name), ends)
    sender.close()
    pump(replay, steps=9)
    assert_same(contents(replay), naive.transitions())


def test_an_obs_that_does_not_follow_starts_a_new_segment(run: Any) -> None:
    sender, replay = run.sender(lookahead=2, chunk_steps=5), run.replay(n_step=3)
    naive = NaiveReplay(3, 0.5)
    for begin in (0, 100, 200):  # three walks without an end, as after a `reset` that nobody told the sender of
        for name in range(begin, begin + 7):
            naive.add(name, 1, 1.0, name + 1, terminated=False)
            sender.send([make_obs(name, is_dict=False), make_obs(name + 1, is_dict=False)], 1, 1.0, False)
        naive.end()
    sender.close()
    pump(replay, steps=21)
    assert_same(contents(replay), naive.transitions())


def test_equal_observations_in_other_arrays_are_one_segment(run: Any) -> None:
    sender = run.sender(chunk_steps=100)
    for name in range(6):
        sender.send([np.array([name, 0.5]), np.array([name + 1, 0.5])], 0, 0.0, False)
    sender.close()
    replay = run.replay()
    pump(replay, steps=6)
    assert replay.store is not None
    assert replay.store.observations.head == 7


def test_buffers_that_the_environment_reuses_are_copied(run: Any) -> None:
    sender, replay = run.sender(lookahead=1), run.replay(n_step=2)
    naive = NaiveReplay(2, 0.5)
    buffers = [make_obs(0, is_dict=True), make_obs(0, is_dict=True)]
    for name in range(40):
        new = make_obs(name + 1, is_dict=True)
        buffer = buffers[(name + 1) % 2]
        buffer["pixels"][:], buffer["pose"][0][:] = new["pixels"], new["pose"][0]
        buffer["pose"] = (buffer["pose"][0], new["pose"][1])
        sender.send([buffers[name % 2], buffer], 2, 1.0, False)
        naive.add(name, 2, 1.0, name + 1, terminated=False)
    sender.close()
    for buffer in buffers:
        buffer["pixels"][:] = 77
    pump(replay, steps=40)
    assert_same(contents(replay), naive.transitions())


def test_a_pool_may_write_into_its_arrays_again(run: Any) -> None:
    sender, replay = run.sender(chunk_steps=8), run.replay()
    obs, reward = np.zeros((1, 2), np.float32), np.zeros(1, np.float32)
    flags, none = np.ones(1, np.bool_), np.zeros(1, np.bool_)
    actions, kind = np.zeros(1, np.int64), np.zeros(1, np.uint8)
    ids = np.zeros(1, np.int64)
    naive = NaiveReplay(1, 0.5)
    for name in range(31):
        obs[0], reward[0], actions[0], kind[0] = (name, -name), name / 2, name, StepKind.MID if name else StepKind.FIRST
        batch = StepBatch(kind, ids, obs, reward, none, none, flags, flags, 0, {}, np.empty(0, np.int64))
        sender.send_batch(batch, Action(actions, {}, name))
        if name:
            naive.add(name - 1, name - 1, name / 2, name, terminated=False, version=name - 1)
    sender.close()
    pump(replay, steps=30)
    assert_same(contents(replay), naive.transitions())


def test_rows_that_are_not_to_be_recorded_are_left_out(run: Any) -> None:
    sender, replay = run.sender(), run.replay()
    pool, records = Pool(4, 1, 0.5, is_dict=True), np.array([True, False, True, False])
    for _ in range(60):
        batch, action = pool.recv()
        sender.send_batch(batch._replace(record=records[batch.env_ids]), action)
    sender.close()
    expected = {name: found for i in (0, 2) for name, found in pool.naives[i].transitions().items()}
    pump(replay, steps=len(expected))
    assert_same(contents(replay), expected)


def test_extras_and_versions_travel_with_their_steps(run: Any) -> None:
    sender, replay = run.sender(), run.replay()
    for name in range(40):
        obs = [make_obs(name, is_dict=False), make_obs(name + 1, is_dict=False)]
        extras = {"logp": -0.5 * name, "state": np.full(3, name, np.float32)}
        sender.send(obs, 0, 0.0, False, extras=extras, version=name // 7)
    with pytest.raises(ValueError, match="extras"):
        sender.send([make_obs(40, is_dict=False), make_obs(41, is_dict=False)], 0, 0.0, False, extras={"logp": 1.0})
    with pytest.raises(ValueError, match="extras"):
        sender.send([make_obs(40, is_dict=False), make_obs(41, is_dict=False)], 0, 0.0, False, extras=extras | {"b": 1})
    sender.close()
    pump(replay, steps=40)
    assert replay.store is not None
    rows = replay.store.gather(np.arange(40), np.ones(40))
    np.testing.assert_array_equal(rows.extras["logp"], -0.5 * np.arange(40))
    np.testing.assert_array_equal(rows.extras["state"][:, 2], np.arange(40))
    np.testing.assert_array_equal(rows.version, np.arange(40) // 7)


def test_the_global_step_is_exact_with_several_senders(run: Any) -> None:
    counts = [257, 400]
    walkers = [Walker(NaiveReplay(1, 0.5), begin=100_000 * i, seed=i) for i in range(2)]
    senders = [run.sender(client=run.make_client(), chunk_steps=7) for _ in counts]

    def work(index: int) -> None:
        walkers[index].walk(senders[index], counts[index])
        senders[index].close()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    replay = run.replay()
    pump(replay, steps=sum(counts))
    assert replay.global_step == max(sender.global_step for sender in senders) == sum(counts)
    assert_same(contents(replay), walkers[0].naive.transitions() | walkers[1].naive.transitions())


def test_a_replay_built_anew_is_the_same_in_the_same_order(run: Any) -> None:
    sender = run.sender(lookahead=2)
    Walker(NaiveReplay(3, 0.5), is_dict=True).walk(sender, STEPS)
    sender.close()
    first = run.replay(n_step=3)
    pump(first, steps=STEPS)
    before = first.store
    first.stop()
    assert first.join(DEADLINE_S)
    second = run.replay(n_step=3)
    pump(second, steps=STEPS)
    after = second.store
    assert before is not None and after is not None
    assert isinstance(before.observations, MirroredRows) and isinstance(after.observations, MirroredRows)
    for old, new in ((before.transitions, after.transitions), (before.observations.ring, after.observations.ring)):
        assert (old.head, old.tail) == (new.head, new.tail)
        for name, column in old.columns.items():
            np.testing.assert_array_equal(column[: old.head], new.columns[name][: new.head])


@pytest.mark.parametrize("is_late", [False, True], ids=["at once", "an hour later"])
def test_a_chunk_whose_answer_was_lost_is_stored_once(run: Any, monkeypatch: pytest.MonkeyPatch, is_late: bool) -> None:
    sender, replay = run.sender(lookahead=1), run.replay(n_step=2)
    walker = Walker(NaiveReplay(2, 0.5))
    real_append, real_finish = Stream.append, Stream.finish_append
    lost = []

    def lose(call: Any) -> Any:
        def wrapper(self: Stream, *args: Any) -> Any:
            answer = call(self, *args)
            if answer.status == "ok" and len(lost) < 5:
                lost.append(answer)
                if is_late:  # Redis has forgotten the sender's last number
                    assert run.client.redis.delete(self.keys.seq(sender.outbox.sender_id))
                raise redis.exceptions.ConnectionError("the answer was lost")
            return answer

        return wrapper

    monkeypatch.setattr(Stream, "append", lose(real_append))
    monkeypatch.setattr(Stream, "finish_append", lose(real_finish))
    walker.walk(sender, STEPS)
    assert sender.close()
    assert len(lost) == 5
    metrics = sender.metrics()
    assert metrics["sender/steps_total"] == STEPS
    assert metrics["sender/duplicates_total"] == 5
    pump(replay, steps=STEPS)
    assert_same(contents(replay), walker.naive.transitions())
    assert replay.global_step == STEPS


def test_the_step_that_only_resets_is_not_recorded(run: Any) -> None:
    """`Env.step` of the plain loop resets after an end, and says so: that is no step of the environment."""
    sender, replay = run.sender(), run.replay()
    naive = NaiveReplay(1, 0.5)
    for name in range(30):
        ends, is_phantom = name % 5 == 3, name % 5 == 4
        obs, new_obs = make_obs(name, is_dict=False), make_obs(name + 1, is_dict=False)
        info = {"phantom": True} if is_phantom else {"terminated": ends}
        sender.send([obs, new_obs], 1, 2.0, ends, info)
        if not is_phantom:
            naive.add(name, 1, 2.0, name + 1, terminated=ends)
    sender.close()
    pump(replay, steps=24)
    assert_same(contents(replay), naive.transitions())
