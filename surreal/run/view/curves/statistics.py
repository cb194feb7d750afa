"""The interquartile mean over runs, and how sure it is: stratified bootstrap.

Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of the Statistical Precipice", arXiv:2108.13264: section 4
and appendix A.6. With few seeds, a mean follows the luckiest run, and a median hardly uses the others; the
interquartile mean (IQM) drops a quarter of the runs at either end. Its interval comes of runs drawn again, with
replacement, within each task. The interval is of percentiles, as theirs is.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

#: Numbers that the drawn runs of one pass may have, which bounds the memory.
_BLOCK = 4 << 20


def interquartile_mean(values: Floats, axis: int = 0) -> Floats:
    """Mean of what is left along an axis after a quarter of it, rounded down, was dropped at each end."""
    size = values.shape[axis]
    dropped = size // 4
    if not dropped:
        return np.asarray(values.mean(axis=axis))
    kept = np.take(np.sort(values, axis=axis), range(dropped, size - dropped), axis=axis)
    return np.asarray(kept.mean(axis=axis))


def bootstrap_interval(
    strata: Sequence[Floats], rng: np.random.Generator, *, confidence: float = 0.95, resamples: int = 2000
) -> tuple[Floats, Floats]:
    """Lower and upper end of the interval of the IQM over all runs, at each point.

    Args:
        strata: of each task its runs, `[runs, points]`; all finite.
        rng: draws the runs.
        confidence: raising it widens the interval; 0 to 1.
        resamples: how often runs are drawn; raising it makes the ends steadier.

    Returns:
        Two arrays `[points]`.
    """
    points = strata[0].shape[1]
    runs = sum(len(stratum) for stratum in strata)
    middles = np.empty((resamples, points))
    # The same runs are drawn at all points: the points of a run belong together.
    drawn = [rng.integers(0, len(stratum), (resamples, len(stratum))) for stratum in strata]
    size = max(1, _BLOCK // max(1, runs * points))
    for begin in range(0, resamples, size):
        part = slice(begin, begin + size)
        samples = [stratum[index[part]] for stratum, index in zip(strata, drawn, strict=True)]
        middles[part] = interquartile_mean(np.concatenate(samples, axis=1), axis=1)
    tail = (1.0 - confidence) / 2
    low, high = np.quantile(middles, (tail, 1.0 - tail), axis=0)
    return low, high
