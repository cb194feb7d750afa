"""A model of Kubernetes' horizontal pod autoscaler.

Every 15 s, it compares each metric with its target. Within 10 %, nothing changes. Otherwise, it wants
`ceil(value / target)` pods for a total, and `ceil(ready pods * value / target)` for a value per pod. The largest result
over all metrics counts. Among the results within the stabilization window, it chooses the one with the smallest change,
and then changes only as much as a policy allows within its period.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from benchmarks.autoscale.rule import Direction, Wish

#: Defaults of Kubernetes' controller manager.
SYNC_S, TOLERANCE = 15.0, 0.1


class Autoscaler:
    """An autoscaler for one Deployment.

    Args:
        least: Minimum number of pods.
        most: Maximum number of pods.
        up: Behavior when it adds pods.
        down: Behavior when it removes pods.
    """

    def __init__(self, least: int, most: int, up: Direction, down: Direction) -> None:
        self._least, self._most = least, most
        self._up, self._down = up, down
        self._wanted: list[tuple[float, int]] = []
        self._changes: list[tuple[float, int]] = []

    def decide(self, now_s: float, pods: int, ready: int, wishes: Sequence[Wish] | None) -> int:
        """Return the new number of pods.

        Args:
            now_s: Current time.
            pods: Number of pods requested now.
            ready: Number of pods that are ready.
            wishes: The metrics' wishes; None: they could not be read, and the number stays.
        """
        if wishes is None:
            return pods
        wanted = max(_desired(wish, pods, ready) for wish in wishes)
        longest_s = max(self._up.stabilization_s, self._down.stabilization_s)
        self._wanted = [(at_s, each) for at_s, each in self._wanted if now_s - at_s < longest_s]
        calm = self._calmest(now_s, pods, wanted)
        self._wanted.append((now_s, wanted))
        allowed = self._allowed(now_s, pods, min(max(calm, self._least), self._most))
        if allowed != pods:
            self._changes.append((now_s, allowed - pods))
        return allowed

    def _calmest(self, now_s: float, pods: int, wanted: int) -> int:
        """Return the smallest change that was wanted within the stabilization window."""
        most = min([wanted, *(each for at_s, each in self._wanted if now_s - at_s < self._up.stabilization_s)])
        least = max([wanted, *(each for at_s, each in self._wanted if now_s - at_s < self._down.stabilization_s)])
        return most if pods < most else least if pods > least else pods

    def _allowed(self, now_s: float, pods: int, wanted: int) -> int:
        direction = self._up if wanted > pods else self._down
        limits = []
        for policy in direction.policies:
            begin = pods - sum(change for at_s, change in self._changes if now_s - at_s < policy.period_s)
            sign = 1 if wanted > pods else -1
            if policy.type == "Pods":
                limits.append(begin + sign * policy.value)
            else:
                share = begin * (1 + sign * policy.value / 100)
                limits.append(math.ceil(share) if sign > 0 else math.trunc(share))
        if wanted > pods:
            return min(wanted, max(pods, *limits))
        return max(wanted, min(pods, *limits)) if wanted < pods else pods


def _desired(wish: Wish, pods: int, ready: int) -> int:
    if wish.metric_type == "AverageValue":
        ratio = wish.value / (wish.target * pods)
        return pods if abs(1 - ratio) <= TOLERANCE else math.ceil(wish.value / wish.target)
    ratio = wish.value / wish.target
    return pods if abs(1 - ratio) <= TOLERANCE else math.ceil(ratio * ready)
