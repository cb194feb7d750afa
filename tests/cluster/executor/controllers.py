"""What Deployments and StatefulSets do next, as pure functions: from the pods there are to pods made and deleted.

Each function follows the documented rules of its kind, without its rarer settings (progress deadlines, partitions).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from tests.cluster.executor.manifests import Manifest, share


class Member(NamedTuple):
    """A pod as its controller sees it; `is_current` if it is made from the template as it is now."""

    name: str
    is_current: bool
    is_ready: bool
    is_terminating: bool


class Plan(NamedTuple):
    """How many pods to make (of a StatefulSet: the ordinals), and which to delete."""

    create: int = 0
    ordinals: tuple[int, ...] = ()
    delete: tuple[str, ...] = ()


def plan_deployment(spec: Manifest, members: Sequence[Member]) -> Plan:
    """Scale or roll a Deployment one step; pods that are terminating do not count."""
    wanted = spec.get("replicas", 1)
    alive = sorted((member for member in members if not member.is_terminating), key=lambda member: not member.is_ready)
    new = [member for member in alive if member.is_current]
    old = [member for member in alive if not member.is_current]
    strategy = spec.get("strategy", {})
    if strategy.get("type") == "Recreate":
        is_clear = all(member.is_current for member in members)
        return Plan(create=max(0, wanted - len(new)) * is_clear, delete=_names(old + new[wanted:]))
    rolling = strategy.get("rollingUpdate", {})
    surge = share(rolling.get("maxSurge", "25%"), wanted, up=True)
    missing = share(rolling.get("maxUnavailable", "25%"), wanted, up=False)
    # Unready old ones can go at once, and ready ones while enough pods stay ready.
    ready = [member for member in old if member.is_ready]
    spare = max(0, sum(member.is_ready for member in alive) - (wanted - missing))
    create = max(0, min(wanted - len(new), wanted + surge - len(alive)))
    return Plan(create=create, delete=_names(new[wanted:] + old[len(ready) :] + ready[:spare]))


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
    surplus = [ordinals[each] for each in sorted(ordinals) if each >= wanted and not ordinals[each].is_terminating]
    if missing or surplus:
        return Plan(ordinals=tuple(missing), delete=_names(surplus[-1:] if in_order else surplus))
    for _, member in sorted(ordinals.items(), reverse=True):
        if not member.is_current:
            return Plan() if member.is_terminating else Plan(delete=(member.name,))
        if not member.is_ready:
            return Plan()
    return Plan()


#: What each kind of controller does.
PLANS: Mapping[str, Callable[[Manifest, Sequence[Member]], Plan]] = MappingProxyType(
    {"Deployment": plan_deployment, "StatefulSet": plan_stateful_set}
)


def numbered_template(name: str, spec: Manifest, ordinal: int) -> Manifest:
    """The template of a StatefulSet's pod: with its name, and its own claims."""
    template, name = spec["template"], f"{name}-{ordinal}"
    claims = [claim["metadata"]["name"] for claim in spec.get("volumeClaimTemplates", [])]
    volumes = [{"name": claim, "persistentVolumeClaim": {"claimName": f"{claim}-{name}"}} for claim in claims]
    metadata = template.get("metadata", {})
    labels = metadata.get("labels", {}) | {"apps.kubernetes.io/pod-index": str(ordinal)}
    volumes = [*template["spec"].get("volumes", []), *volumes]
    names = {"hostname": name, "subdomain": spec.get("serviceName"), "volumes": volumes}
    return {"metadata": metadata | {"labels": labels}, "spec": template["spec"] | names}


def _names(members: Sequence[Member]) -> tuple[str, ...]:
    return tuple(member.name for member in members)
