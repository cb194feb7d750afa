"""Observations that stay in Redis: the same batches as mirrored ones, and what happens when rows are gone."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import pytest
import torch
from naive_replay import NaiveReplay, Pool, Walker, assert_same, contents, make_obs, names_of, pump, pump_until

from surreal.base.errors import ContractError, ThreadFailedError
from surreal.base.types import Action, Batch, StepBatch, StepKind
from surreal.replay.store.remote_rows import RemoteRows
from surreal.replay.store.rows import CompressedRows

STEPS = 300


def send_stacks(sender: Any, *, steps: int, stack: int, envs: int = 3) -> None:
    """Stacks of frames, each frame with numbers of its own, from environments whose episodes have random lengths."""
    rng = np.random.default_rng(0)
    frames = [deque[int](maxlen=stack) for _ in range(envs)]
    count, is_over = 0, [True] * envs
    flags, none = np.ones(envs, np.bool_), np.empty(0, np.int64)
    for _ in range(steps // envs + 1):
        kind = np.zeros(envs, np.uint8)
        for i in range(envs):
            count += 1
            frames[i].extend([count] * (stack if is_over[i] else 1))
            kind[i] = StepKind.FIRST if is_over[i] else StepKind.MID
            is_over[i] = not is_over[i] and bool(rng.random() < 0.1)
            kind[i] = StepKind.LAST if is_over[i] else kind[i]
        order = np.argsort(kind != StepKind.LAST, kind="stable")
        number = np.array([frames[i] for i in order], np.int64)
        obs = {"image": (number[..., None] * np.arange(1, 4) % 256).astype(np.uint8), "number": number}
        is_last = kind[order] == StepKind.LAST
        terminated = is_last & (rng.random(envs) < 0.5)
        reward = rng.random(envs).astype(np.float32)
        batch = StepBatch(
            *(kind[order], order, obs, reward, terminated, is_last & ~terminated, flags, flags),
            *(int(is_last.sum()), {}, none),
        )
        sender.send_batch(batch, Action(rng.integers(0, 5, envs - batch.num_last), {}, count))


def draw(replay: Any, number: int) -> list[Batch]:
    """The first batches of a replay that is driven by hand."""
    batches: list[Batch] = []
    while len(batches) < number:
        replay.step(timeout_s=0)
        while len(batches) < number and len(replay.fetcher_queue):
            batches.append(replay.fetcher_queue.dequeue(0.0))
    return batches


def tensors(tree: Any) -> list[Any]:
    if isinstance(tree, dict):
        return [tensor for key in sorted(tree) for tensor in tensors(tree[key])]
    return [tensor for item in tree for tensor in tensors(item)] if type(tree) is tuple else [tree]


def assert_same_batches(ours: list[Batch], theirs: list[Batch]) -> None:
    for first, second in zip(ours, theirs, strict=True):
        for name in ("obs", "next_obs", "action", "reward", "discount", "extras"):
            for a, b in zip(tensors(getattr(first, name)), tensors(getattr(second, name)), strict=True):
                assert (a.dtype, a.shape) == (b.dtype, b.shape)
                assert torch.equal(a, b)
        for a, b in zip(first.sample_info, second.sample_info, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("kind", ["array", "dict", "stacks"])
@pytest.mark.parametrize("n", [1, 3])
def test_batches_are_those_of_mirrored_observations(
    make_run: Any, start_redis: Any, redis_binary: str, kind: str, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("surreal.replay.store.rows._LEAST_BYTES", 9)  # some leaves are, some are not
    run = make_run(start_redis(binary=redis_binary).address)
    if kind == "stacks":
        sender = run.sender(lookahead=n - 1, frame_stack=4)
        send_stacks(sender, steps=STEPS, stack=4)
    else:
        sender = run.sender(lookahead=n - 1)
        pool = Pool(5, n, 0.5, is_dict=kind == "dict")
        for _ in range(STEPS // 4):
            sender.send_batch(*pool.recv())
    assert sender.close()
    steps = int(sender.metrics()["sender/steps_total"])
    options = {"n_step": n, "batch_size": 32, "prefetch": 4, "seed": 7}
    mirrored = run.replay(observations="mirrored", **options)
    remote = run.replay(observations="remote", is_owner=False, **options)
    compressed = run.replay(observations="compressed", is_owner=False, **options)
    for replay in (mirrored, remote, compressed):
        pump_until(replay, lambda r=replay: r.metrics()["replay/inserted_steps_total"] == steps)
    assert isinstance(remote.store.observations, RemoteRows)
    assert isinstance(compressed.store.observations, CompressedRows)
    assert remote.metrics()["replay/mirrored_bytes"] < mirrored.metrics()["replay/mirrored_bytes"]
    batches = draw(mirrored, 30)
    assert_same_batches(batches, draw(remote, 30))
    assert_same_batches(batches, draw(compressed, 30))
    if kind == "stacks":
        obs = draw(remote, 1)[0].obs
        assert obs["image"].shape == (32, 4, 3)
        numbers = obs["number"].numpy()
        np.testing.assert_array_equal(obs["image"].numpy(), numbers[..., None] * np.arange(1, 4) % 256)


def test_a_remote_owner_has_the_contents_of_plain_lists_while_it_evicts(run: Any) -> None:
    replay, sender = run.replay(observations="remote", capacity=100, n_step=2), run.sender(lookahead=1)
    walker = Walker(NaiveReplay(2, 0.5), is_dict=True)
    for turn in range(1, 11):
        walker.walk(sender, 60)
        sender.flush()
        pump(replay, steps=60 * turn - 1)
    sender.close()
    pump(replay, steps=600)
    expected = walker.naive.transitions()
    replay.store.observations.forget()
    kept = contents(replay)
    assert 60 < len(kept) <= 100
    assert_same(kept, {name: expected[name] for name in sorted(expected)[-len(kept) :]})


def test_threads_serve_a_remote_replay(run: Any) -> None:
    sender, replay = run.sender(), run.replay(observations="remote", batch_size=32, start_size=100, prefetch=3)
    walker = Walker(NaiveReplay(1, 0.5))
    walker.walk(sender, STEPS)
    sender.close()
    replay.start_threads()
    expected = walker.naive.transitions()
    for i, batch in replay.batch_iterator():
        names = names_of([batch.obs.numpy()])
        assert names_of([batch.next_obs.numpy()]) == [expected[name].next_name for name in names]
        if i == 50:
            break
    assert replay.metrics()["replay/gone_rows_total"] == 0


def test_a_follower_draws_again_what_its_owner_evicted(run: Any) -> None:
    owner, follower = run.replay(capacity=100), run.replay(observations="remote", is_owner=False, batch_size=32)
    sender, walker = run.sender(), Walker(NaiveReplay(1, 0.5))
    walker.walk(sender, 600)
    sender.flush()
    steps = int(sender.metrics()["sender/steps_total"])
    pump(follower, steps=steps)
    assert len(follower) == steps
    pump(owner, steps=steps)
    while owner.owner.num_pending:
        owner.step(timeout_s=0.001)
    alive = contents(owner)
    # What was drawn before the eviction may still be there; behind it everything is alive.
    batches = draw(follower, 6)[2:]
    for batch in batches:
        assert set(names_of([batch.obs.numpy()])) <= alive.keys()
    assert follower.metrics()["replay/gone_rows_total"] > 0
    assert len(follower) == len(owner) == len(alive)
    assert follower.num_samples == 6 * 32


def test_a_lost_block_among_others_is_avoided(run: Any) -> None:
    replay, sender = run.replay(observations="remote", batch_size=64, prefetch=2), run.sender()
    walker = Walker(NaiveReplay(1, 0.5))
    walker.walk(sender, STEPS)
    sender.close()
    pump(replay, steps=STEPS)
    lost = list(replay.chunks)[5]
    run.client.redis.delete(run.client.shard_keys().block(lost.chunk_id))
    for batch in draw(replay, 12)[4:]:  # the first ones were made, or asked for, before
        numbers = batch.sample_info.generation
        assert not ((numbers >= lost.end - lost.steps) & (numbers < lost.end)).any()
    assert replay.metrics()["replay/gone_rows_total"] > 0
    assert len(replay) == STEPS


def test_an_emptied_redis_empties_a_remote_replay_which_fills_again(make_run: Any, start_redis: Any) -> None:
    run = make_run(start_redis().address)
    replay, sender = run.replay(observations="remote", start_size=50, prefetch=2), run.sender()
    walker = Walker(NaiveReplay(1, 0.5))
    walker.walk(sender, 200)
    sender.flush()
    pump_until(replay, lambda: len(replay) > 150)
    run.client.redis.flushall()
    walker.walk(sender, 20)
    sender.flush()

    def is_emptied() -> bool:
        if len(replay.fetcher_queue):
            replay.fetcher_queue.dequeue(0.0)
        return replay.metrics()["replay/gone_rows_total"] > 0 and len(replay) < 50

    pump_until(replay, is_emptied)
    assert not replay.start_sample_condition()
    walker.walk(sender, 200)
    sender.close()
    pump_until(replay, lambda: len(replay) > 150)
    names = names_of([draw(replay, 4)[-1].obs.numpy()])
    assert min(names) >= 150


def test_a_broken_connection_is_made_again_and_no_batch_is_lost(run: Any) -> None:
    sender = run.sender()
    Walker(NaiveReplay(1, 0.5)).walk(sender, STEPS)
    sender.close()
    options = {"batch_size": 16, "prefetch": 4, "seed": 3}
    mirrored = run.replay(observations="mirrored", **options)
    remote = run.replay(observations="remote", is_owner=False, client=run.make_client(), **options)
    for replay in (mirrored, remote):
        pump(replay, steps=STEPS)
    ours: list[Batch] = []
    for _ in range(5):
        ours += draw(remote, 3)
        run.client.redis.client_kill_filter(_type="normal", skipme=True)
    assert_same_batches(draw(mirrored, len(ours)), ours)


@pytest.mark.parametrize(("budget", "is_remote"), [(1 << 20, False), (10_000, True)])
def test_auto_mirrors_what_fits_into_its_budget(run: Any, budget: int, is_remote: bool, caplog: Any) -> None:
    caplog.set_level("INFO")
    replay, sender = run.replay(mirror_max_bytes=budget, capacity=1000), run.sender()
    Walker(NaiveReplay(1, 0.5)).walk(sender, 40)
    sender.close()
    pump(replay, steps=40)
    assert isinstance(replay.store.observations, RemoteRows) == is_remote
    text = f"observations are {'remote' if is_remote else 'mirrored'} (auto)"
    assert sum(text in record.getMessage() for record in caplog.records) == 1


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_compressed_observations_arrive_as_they_were(
    make_run: Any, start_redis: Any, redis_binary: str, compression: str
) -> None:
    run = make_run(start_redis(binary=redis_binary).address)
    plain, sender = run.sender(), run.sender(compression=compression, lookahead=2, chunk_steps=64)
    replay, pool = run.replay(n_step=3), Pool(5, 3, 0.5, is_dict=True)
    for _ in range(STEPS):
        sender.send_batch(*pool.recv())
    assert sender.close()
    expected = pool.transitions()
    pump(replay, steps=len(expected))
    assert_same(contents(replay), expected)
    assert replay.metrics()["replay/redis_bytes"] >= 0
    stored = sum(chunk.stored_bytes for chunk in replay.chunks)
    assert int(run.client.redis.hget(run.client.shard_keys().meta, "live_bytes")) == stored
    with pytest.raises(ContractError, match="another kind"):
        for _ in range(20):
            plain.send([make_obs(0, is_dict=True), make_obs(1, is_dict=True)], 0, 0.0, False)
        plain.flush()


@pytest.mark.parametrize(
    ("mode", "remedy"), [("remote", "use observations: mirrored"), ("auto", "raise mirror_max_bytes")]
)
def test_compressed_observations_cannot_be_remote(run: Any, mode: str, remedy: str) -> None:
    sender, replay = run.sender(compression="zstd"), run.replay(observations=mode, mirror_max_bytes=100)
    Walker(NaiveReplay(1, 0.5)).walk(sender, 40)
    sender.flush()
    replay.start_threads()
    with pytest.raises(ThreadFailedError, match=f"cannot be remote.*compressed.*{remedy}"):
        next(iter(replay.batch_iterator()))
