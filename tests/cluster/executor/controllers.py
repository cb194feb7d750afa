"""What Deployments, StatefulSets and Jobs do next, as pure functions: from the pods there are to pods made and deleted.

The cluster asks at every step. Each function follows the documented rules of its kind, without its rarer settings
(progress deadlines, partitions, paused rollouts).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from tests.cluster.executor.manifests import Manifest, share

#: Kubernetes' own defaults.
_DEFAULT_SHARE = "25%"
_DEFAULT_BACKOFF_LIMIT = 6


class Member(NamedTuple):
    """A pod as its controller sees it.

    Args:
        is_current: Made from the template as it is now.
        is_over: Has ended for good, in success or not (`has_failed`).
    """

    name: str
    is_current: bool
    is_ready: bool
    is_terminating: bool
    is_over: bool = False
    has_failed: bool = False


class Plan(NamedTuple):
    """How many pods to make (of a StatefulSet: the ordinals), and which to delete."""

    create: int = 0
    ordinals: tuple[int, ...] = ()
    delete: tuple[str, ...] = ()


def plan_deployment(spec: Manifest, members: Sequence[Member]) -> Plan:
    """Scale or roll a Deployment one step; pods that are on their way out do not count."""
    wanted = spec.get("replicas", 1)
    alive = [member for member in members if not member.is_terminating]
    new = [member for member in alive if member.is_current]
    old = [member for member in alive if not member.is_current]
    strategy = spec.get("strategy", {})
    if strategy.get("type") == "Recreate":
        if any(not member.is_current for member in members):
            return Plan(delete=_names(old))
        return Plan(create=max(0, wanted - len(new)), delete=_names(_dispensable(new)[wanted:][::-1]))
    rolling = strategy.get("rollingUpdate", {})
    surge = share(rolling.get("maxSurge", _DEFAULT_SHARE), wanted, up=True)
    missing = share(rolling.get("maxUnavailable", _DEFAULT_SHARE), wanted, up=False)
    create = max(0, min(wanted - len(new), wanted + surge - len(alive)))
    surplus = _dispensable(new)[wanted:]
    return Plan(create=create, delete=_names(surplus) + _rolled(wanted - missing, old, new))


def _rolled(at_least: int, old: Sequence[Member], new: Sequence[Member]) -> tuple[str, ...]:
    """The old pods that can go while `at_least` pods stay ready: the unready ones first."""
    spare = len(old) + len(new) - at_least - sum(not member.is_ready for member in new)
    if spare <= 0:
        return ()
    unready = [member for member in old if not member.is_ready][:spare]
    ready = [member for member in old if member.is_ready]
    available = len(ready) + sum(member.is_ready for member in new)
    return _names(unready + ready[: max(0, min(available - at_least, spare - len(unready)))])


def plan_stateful_set(spec: Manifest, members: Sequence[Member]) -> Plan:
    """Make the lowest ordinal that is missing; roll from the highest down, one pod at a time."""
    wanted = spec.get("replicas", 1)
    ordinals = {int(member.name.rpartition("-")[2]): member for member in members}
    in_order = spec.get("podManagementPolicy", "OrderedReady") == "OrderedReady"
    missing = []
    for ordinal in range(wanted):
        if ordinal not in ordinals:
            missing.append(ordinal)
        if in_order and (ordinal not in ordinals or not ordinals[ordinal].is_ready):
            break
    surplus = [
        member for ordinal, member in sorted(ordinals.items()) if ordinal >= wanted and not member.is_terminating
    ]
    if missing or surplus:
        return Plan(ordinals=tuple(missing), delete=_names(surplus[-1:] if in_order else surplus))
    if spec.get("updateStrategy", {}).get("type", "RollingUpdate") != "RollingUpdate":
        return Plan()
    for _, member in sorted(ordinals.items(), reverse=True):
        if not member.is_current:
            return Plan() if member.is_terminating else Plan(delete=(member.name,))
        if not member.is_ready:
            return Plan()
    return Plan()


def plan_job(spec: Manifest, members: Sequence[Member]) -> Plan:
    """Make pods until enough have succeeded or too many have failed."""
    failed = sum(member.has_failed for member in members)
    done = sum(member.is_over for member in members) - failed
    active = sum(not member.is_over for member in members)
    if failed > spec.get("backoffLimit", _DEFAULT_BACKOFF_LIMIT):
        return Plan()
    return Plan(create=max(0, min(spec.get("parallelism", 1), spec.get("completions", 1) - done) - active))


#: What each kind of controller does.
PLANS: Mapping[str, Callable[[Manifest, Sequence[Member]], Plan]] = MappingProxyType(
    {"Deployment": plan_deployment, "StatefulSet": plan_stateful_set, "Job": plan_job}
)


def numbered_template(name: str, spec: Manifest, ordinal: int) -> Manifest:
    """The template of a StatefulSet's pod: with its name, and its own claims."""
    template, name = spec["template"], f"{name}-{ordinal}"
    claims = [claim["metadata"]["name"] for claim in spec.get("volumeClaimTemplates", [])]
    volumes = [{"name": claim, "persistentVolumeClaim": {"claimName": f"{claim}-{name}"}} for claim in claims]
    metadata = template.get("metadata", {})
    labels = metadata.get("labels", {}) | {"statefulset.kubernetes.io/pod-name": name}
    labels["apps.kubernetes.io/pod-index"] = str(ordinal)
    return {
        "metadata": metadata | {"labels": labels},
        "spec": template["spec"]
        | {
            "hostname": name,
            "subdomain": spec.get("serviceName"),
            "volumes": [*template["spec"].get("volumes", []), *volumes],
        },
    }


def _dispensable(members: Sequence[Member]) -> list[Member]:
    """Those to keep first: ready ones before others."""
    return sorted(members, key=lambda member: not member.is_ready)


def _names(members: Sequence[Member]) -> tuple[str, ...]:
    return tuple(member.name for member in members)
