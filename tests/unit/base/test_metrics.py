from __future__ import annotations

import math

import numpy as np
import pytest

from surreal.base.metrics import EpisodeStatistics, MeanDuration, RateMeter, summarize


class FakeClock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_rate_meter_counts_events_over_its_window() -> None:
    clock = FakeClock()
    meter = RateMeter("agent/env_steps_per_s", window_s=4.0, clock=clock)
    meter.add(30)
    meter.add()
    assert meter.metrics() == {}  # no time has passed
    clock.now += 2.0
    assert meter.metrics() == {"agent/env_steps_per_s": 15.5}
    clock.now += 2.0
    assert meter.metrics() == {"agent/env_steps_per_s": 7.75}
    clock.now += 2.0
    assert meter.metrics() == {"agent/env_steps_per_s": 0.0}
    assert meter.total == 31


def test_a_rate_does_not_flip_when_events_come_in_bursts() -> None:
    clock = FakeClock()
    meter = RateMeter("learner/updates_per_s", window_s=5.0, clock=clock)
    rates = []
    for second in range(30):
        meter.add(4000 if second % 2 else 0)
        clock.now += 1.0
        rates.append(meter.metrics()["learner/updates_per_s"])
    assert min(rates[5:]) >= 1600
    assert max(rates[5:]) <= 2400


def test_a_rate_begins_with_what_is_counted_from_then_on() -> None:
    clock = FakeClock()
    meter = RateMeter("learner/updates_per_s", clock=clock)
    clock.now += 1.0
    meter.begin(1_000_000)
    meter.add(10)
    clock.now += 1.0
    assert meter.metrics() == {"learner/updates_per_s": 10.0}


def test_durations_are_means_since_the_last_reading() -> None:
    duration = MeanDuration("learner/optimize_ms")
    assert duration.metrics() == {}
    duration.add(0.5)
    duration.add(0.25)
    assert duration.metrics() == {"learner/optimize_ms": 375.0}
    duration.add(1.0)
    assert duration.metrics() == {"learner/optimize_ms": 1000.0}
    assert duration.metrics() == {}


def test_episodes_are_summed_up_between_readings() -> None:
    clock = FakeClock()
    episodes = EpisodeStatistics("agent", window=2, clock=clock)
    assert episodes.metrics() == {}
    # Two environments: the first one's episodes take 2 s and 4 s, the other's takes 3 s.
    for now, episode_return, length, env_id in [(102.0, 1.0, 10, 0), (103.0, 2.0, 20, 1), (106.0, 6.0, 30, 0)]:
        clock.now = now
        episodes.add(episode_return, length, env_id)
    assert episodes.metrics() == {
        "agent/episodes_total": 3.0,
        "agent/episode_return": 3.0,
        "agent/episode_length": 20.0,
        "agent/episode_time_s": 3.0,
        "agent/reward_per_s": 1.0,
        "agent/episode_return_recent": 4.0,
    }
    assert episodes.metrics() == {"agent/episodes_total": 3.0, "agent/episode_return_recent": 4.0}


def test_an_empty_window_is_refused() -> None:
    with pytest.raises(ValueError, match="window is 0"):
        EpisodeStatistics("agent", window=0)


def test_histogram_matches_numpy_and_leaves_out_what_is_not_finite() -> None:
    values = np.array([[0.0, 1.0, 2.0], [math.nan, math.inf, 4.0]])
    histogram = summarize(values, bins=4)
    finite = [0.0, 1.0, 2.0, 4.0]
    counts, edges = np.histogram(finite, bins=4)
    np.testing.assert_array_equal(histogram.counts, counts)
    np.testing.assert_array_equal(histogram.edges, edges)
    assert histogram[2:] == (0.0, 4.0, 4, 7.0, 21.0)


def test_histogram_takes_anything_that_detaches() -> None:
    class Tensor:
        def detach(self) -> Tensor:
            return self

        cpu = double = detach

        def numpy(self) -> np.ndarray:
            return np.array([1.0, 3.0])

    assert summarize(Tensor(), bins=2).size == 2


@pytest.mark.parametrize("values", [[], [math.nan]])
def test_histogram_of_nothing_is_refused(values: list[float]) -> None:
    with pytest.raises(ValueError, match="at least one finite value"):
        summarize(values)


@pytest.mark.parametrize("bins", [0, 1001])
def test_histogram_bins_are_bounded(bins: int) -> None:
    with pytest.raises(ValueError, match="bins"):
        summarize([1.0], bins=bins)
