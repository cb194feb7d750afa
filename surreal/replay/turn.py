"""The turn of a replay's thread: insert chunks, evict old ones, and make batches ahead of the learner.

    take_turn:  claim the streams -> take_in -> make_ahead, up to 8 times -> hand over -> renew the leases
    take_in:    dequeue a chunk -> Replay._insert, up to 8 times -> Replay._evict -> let_go
    make_ahead: ask (Replay._sample -> store.request) -> next_batches (store.collect -> Replay.aggregate_batch) -> queue

These are functions over the `ReplayState` that the replay has as `state`. They call the replay only for its decisions:
its hooks, and its settings.

With mirrored observations, a batch is complete at once, and small ones are sampled and gathered several at a time.
Remote ones are on their way while the batch before them is made. If observations of a batch are gone from Redis, the
chunks that lost them leave, and the batch is sampled again.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from surreal.base.errors import ContractError
from surreal.distributed.experience.codec import Contract
from surreal.replay.batches import B, check_sampled
from surreal.replay.state import ReplayHooks, ReplayState
from surreal.replay.store.storage import Request, StoredChunk, TransitionStore

_CHUNKS_PER_TURN = 8
_BATCHES_PER_TURN = 8
#: Bytes of the batches that are gathered at once: below them, NumPy's calls take longer than what they copy.
_BYTES_AT_ONCE = 1 << 20
#: How often a batch is sampled again before the thread does other work.
_MAX_TRIES = 16
_LIMITED_PAUSE_S = 0.005


def take_turn(replay: ReplayHooks[B], state: ReplayState[B], timeout_s: float) -> bool:
    """Take one turn; wait a moment if there is nothing to do, or was nothing left to do after the last one. Return
    whether something was done. Raises as `StreamKeeper.claim` and `renew`, `ContractError` if the replay cannot work
    with the stream's contract, and `UserCodeError` if `_sample` returned something that cannot be gathered.
    """
    has_waited = state.is_done and state.fetcher_queue.room <= 0
    if has_waited:
        state.wake.wait(timeout_s)
        state.wake.clear()
    state.owner.claim()
    taken, is_waiting, is_limited = take_in(replay, state), False, False
    has_worked = taken > 0
    store = state.store
    size = len(store.transitions) if store is not None else 0
    if not state.has_begun and state.pointer_queue.has_caught_up.is_set() and not len(state.pointer_queue):
        state.has_begun = True
        if size < replay.start_size or not state.owner.is_owner:
            has_lost = state.pointer_queue.refused_chunks or state.pointer_queue.gone_chunks
            is_complete = state.owner.is_owner and not has_lost
            state.owner.rebase(None if is_complete else size)
    elif state.has_begun and size >= replay.start_size and not replay.start_sample_condition():
        # The replay waits for something else, such as lanes that are long enough for a sequence. The band begins with
        # it. Otherwise, the agents would have no credit left to send it.
        state.owner.rebase(replay.start_size - 1)
        is_waiting = replay.limiter is not None
    for _ in range(_BATCHES_PER_TURN):
        has_made, is_limited = make_ahead(replay, state)
        has_worked |= has_made
        if not has_made:
            break
    state.fetcher_queue.hand_over()
    state.owner.renew(is_waiting=is_waiting or is_limited)
    state.is_done = has_worked and taken < _CHUNKS_PER_TURN
    if not has_worked and not has_waited:
        state.wake.wait(min(timeout_s, _LIMITED_PAUSE_S) if is_limited else timeout_s)
        state.wake.clear()
    return has_worked


# -- chunks: insert and evict ------------------------------------------------------------------------------------------


def take_in(replay: ReplayHooks[B], state: ReplayState[B]) -> int:
    """Insert the chunks that are ready, and evict old ones; return how many there were."""
    taken = 0
    while taken < _CHUNKS_PER_TURN:
        chunk = state.pointer_queue.dequeue(state.open_shards.__contains__)
        if chunk is None:
            break
        store = state.store
        if store is None or store.contract is not chunk.contract:
            store = _open_store(replay, state, chunk.contract)
        begin = store.transitions.head
        numbers = replay._insert(chunk)
        if numbers is None:  # a user's hook returned nothing: what the built-in store has gained, if anything
            numbers = range(begin, store.transitions.head)
        stored = StoredChunk(
            shard=chunk.shard,
            entry_id=chunk.entry_id,
            chunk_id=chunk.chunk_id,
            epoch=chunk.epoch,
            steps=len(numbers),
            stored_bytes=chunk.stored_bytes,
            end=numbers.stop,
            row_end=store.observations.head,
        )
        state.chunks.append(stored)
        state.owner.make_room_for(stored)
        state.inserted_steps += chunk.own_steps
        state.newest_version = int(chunk.columns["version"][-1])
        taken += 1
    if taken or (state.ages is not None and state.chunks and state.ages.is_old(state.chunks[0])):
        let_go(state, replay._evict())
    return taken


def _open_store(replay: ReplayHooks[B], state: ReplayState[B], contract: Contract | None) -> TransitionStore:
    """Create the store for the first chunk; refuse chunks of another contract."""
    run, store = state.streams[0].client.run, state.store
    if contract is None:
        raise ValueError("the chunk has no contract; chunks must come from `decode`")
    if store is not None:
        if store.contract.id != contract.id:
            raise ContractError(f"the stream of run {run} changed its contract while it was read")
        return store
    if replay.n_step > contract.lookahead + 1:
        problem = f"n_step is {replay.n_step}, but the stream of run {run} has a lookahead of {contract.lookahead}"
        raise ContractError(f"{problem}; send with lookahead >= {replay.n_step - 1}")
    state.store = store = replay._make_store(contract, state.place.open(contract, state.streams, state.stop))
    if replay.samples_single_rows and not store.observations.asks_ahead:
        state.at_once = max(1, _BYTES_AT_ONCE // (2 * contract.stacked_obs.row_bytes * replay.batch_size + 1))
    return store


def let_go(state: ReplayState[B], number: int) -> None:
    """Drop this many of the oldest chunks, here and in Redis."""
    for _ in range(number):
        chunk = state.chunks.popleft()
        if state.store is not None:
            state.store.evict(chunk)
        state.owner.evict(chunk)
    state.evicted_chunks += number


def count_superfluous(state: ReplayState[B], *, capacity: int, start_size: int) -> int:
    """Count the oldest chunks that are over the capacity or the byte bound, too old, or gone; `start_size` transitions
    stay, or it raises `ValueError`, if the byte bound cannot hold them.
    """
    if (store := state.store) is None:
        return 0
    number, steps, gone_until = 0, len(store.transitions), store.observations.gone_until
    stored_bytes, ages = state.chunks.stored_bytes.copy(), state.ages
    for chunk in state.chunks:
        is_needed = steps - chunk.steps < start_size
        if chunk.row_end <= gone_until:
            pass
        elif state.owner.is_over(stored_bytes):
            if is_needed:
                raise ValueError(
                    f"the replay's max_bytes is used up by {len(store.transitions)} transitions, but its start_size is "
                    f"{start_size}: raise max_bytes (and Redis' maxmemory), or lower start_size"
                )
        elif is_needed or (steps <= capacity and not (ages is not None and ages.is_old(chunk))):
            break
        number, steps = number + 1, steps - chunk.steps
        stored_bytes[chunk.shard] -= chunk.stored_bytes
    return number


# -- batches: sample and gather ----------------------------------------------------------------------------------------


def make_ahead(replay: ReplayHooks[B], state: ReplayState[B]) -> tuple[bool, bool]:
    """Make batches if there is room for them. If observations are remote, ask for one and finish the one before it.
    Return whether something was done, and whether the limiter did not allow it.
    """
    if state.store is None:
        return False, False
    asked, number, is_limited = len(state.asked), 0, False
    room = state.fetcher_queue.room - asked
    if room > 0 and replay.start_sample_condition():
        each = replay.batch_size * replay.steps_per_sample
        while number < min(room, state.at_once) and state.owner.may_sample((asked + number + 1) * each):
            number += 1
        is_limited = not number
    state.is_starved = room > 0 and not number
    asks_ahead = state.store.observations.asks_ahead
    if number and asks_ahead:
        ask(replay, state)
        if asked < asks_ahead:
            return True, False
    if not asked and not number:
        return False, is_limited
    batches = next_batches(replay, state, number)
    for batch in batches:  # none as long as no shard answers
        state.fetcher_queue.put(batch)
    return bool(batches), is_limited


def ask(replay: ReplayHooks[B], state: ReplayState[B], number: int = 1) -> None:
    """Sample this many batches, and request their observations."""
    store = state.store
    if store is None:
        raise ValueError("nothing was inserted yet")
    size = number * replay.batch_size
    sampled = replay._sample(size)
    if not isinstance(sampled, np.ndarray | tuple) and replay.makes_own_batches:
        state.asked.append(Request(sampled, None))
        return
    alive = range(store.transitions.tail, store.transitions.head)
    numbers, probability = check_sampled(sampled, replay._sample, alive=alive, batch_size=size)
    if store.observations.has_gone:
        numbers, probability = _replace_gone(replay, store, alive, numbers, probability)
    if probability is None:
        probability = np.empty(size)
        probability.fill(1.0 / len(alive))
    if number > 1:
        numbers, probability = numbers.reshape(number, -1), probability.reshape(number, -1)
    state.asked.append(store.request(numbers, probability))


def next_batches(replay: ReplayHooks[B], state: ReplayState[B], number: int = 1) -> list[B]:
    """Make the batch of the oldest request, or new ones; none if too few steps are left, or rows were gone.

    More than one batch is sampled only if `state.at_once` is.
    """
    if not state.asked:
        ask(replay, state, number)
    for _ in range(_MAX_TRIES):
        store = state.store
        if not state.asked or store is None:
            break
        request = state.asked.popleft()
        gathered = store.collect(request) if request.rows is not None else request.gathered
        if gathered is not None:
            batches = []
            for each in gathered.split() if request.batches > 1 else (gathered,):
                state.owner.samples += replay.batch_size * replay.steps_per_sample
                batches.append(replay.aggregate_batch(each))
            return batches
        let_go(state, replay._evict())
        if len(store.transitions) < replay.start_size:
            # The agents may have no credit left to fill the replay again.
            state.owner.rebase(len(store.transitions))
        if replay.start_sample_condition():
            ask(replay, state)
    return []


def _replace_gone(
    replay: ReplayHooks[B],
    store: TransitionStore,
    alive: range,
    numbers: NDArray[np.int64],
    probability: NDArray[np.float64] | None,
) -> tuple[NDArray[np.int64], NDArray[np.float64] | None]:
    """Sample transitions again whose observations are known to be gone."""
    are_gone = store.are_gone(numbers)
    are_gone[: replay.drawn_once] = False
    numbers, probability = numbers.copy(), None if probability is None else probability.copy()
    for _ in range(_MAX_TRIES):
        if not are_gone.any():
            break
        sampled = replay._sample(replay.batch_size)
        others, chances = check_sampled(sampled, replay._sample, alive=alive, batch_size=len(numbers))
        # In the same places: each part of a batch may come from another part of the replay.
        places = np.flatnonzero(are_gone & ~store.are_gone(others))
        numbers[places], are_gone[places] = others[places], False
        if probability is not None and chances is not None:
            probability[places] = chances[places]
    return numbers, probability
