"""Read a ScaledObject from the manifest that a cluster gets, so that no value is repeated here.

Only the features of Surreal's manifests are supported, and others are refused: a query is one metric of one run, and a
formula is arithmetic.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import yaml

from surreal.plugins.clusters.scaling.figures import FIGURES

OVERLAY = Path(__file__).parents[2] / "k8s" / "overlays" / "autoscale"

_QUERY = re.compile(r"max\((surreal_[a-z_]+)\{namespace=\"[\w.-]+\",run=\"[\w.-]+\"\}\)")
_OPERATORS: dict[type[ast.AST], Callable[..., float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_FUNCTIONS: dict[str, Callable[..., float]] = {"max": max, "min": min}

MetricType = Literal["AverageValue", "Value"]


class Policy(NamedTuple):
    """The largest change of the number of pods within a period."""

    type: Literal["Percent", "Pods"]
    value: int
    period_s: float


class Direction(NamedTuple):
    """The behavior when pods are added, or removed."""

    stabilization_s: float
    policies: tuple[Policy, ...]


class Trigger(NamedTuple):
    """A metric that KEDA queries."""

    name: str
    figure: str
    threshold: float
    metric_type: MetricType
    ignores_null: bool


class Wish(NamedTuple):
    """A metric's wish: `value / target` pods, or the current number of pods times `value / target`."""

    value: float
    target: float
    metric_type: MetricType


#: Defaults of an HPA.
UP = Direction(0.0, (Policy("Percent", 100, 15.0), Policy("Pods", 4, 15.0)))
DOWN = Direction(300.0, (Policy("Percent", 100, 15.0),))


@dataclass(frozen=True)
class Rule:
    """The scaling rule of a ScaledObject."""

    deployment: str
    least: int
    most: int
    up: Direction
    down: Direction
    triggers: tuple[Trigger, ...]
    formula: str
    target: float
    metric_type: MetricType

    @classmethod
    def load(cls, name: str) -> Rule:
        """Read a file of the overlay."""
        return cls.of(yaml.safe_load((OVERLAY / name).read_text()))

    @classmethod
    def of(cls, manifest: Mapping[str, Any]) -> Rule:
        """Read a manifest.

        Raises:
            ValueError: The manifest has a feature that is not modeled.
        """
        spec = manifest["spec"]
        advanced = spec.get("advanced", {})
        behavior = advanced.get("horizontalPodAutoscalerConfig", {}).get("behavior", {})
        modifiers = advanced.get("scalingModifiers", {})
        least = spec.get("minReplicaCount", 0)
        if least < 1 or "idleReplicaCount" in spec or "fallback" in spec:
            raise ValueError("going to zero (pollingInterval, cooldownPeriod) and fallback are not modeled")
        return cls(
            spec["scaleTargetRef"]["name"],
            least,
            spec.get("maxReplicaCount", 100),
            _direction(behavior.get("scaleUp", {}), UP),
            _direction(behavior.get("scaleDown", {}), DOWN),
            tuple(map(_trigger, spec["triggers"])),
            modifiers.get("formula", ""),
            float(modifiers.get("target", "nan")),
            modifiers.get("metricType", "AverageValue"),
        )

    @property
    def figures(self) -> list[str]:
        """The names of the queried metrics."""
        return [trigger.figure for trigger in self.triggers]

    def wishes(self, values: Mapping[str, float], _: object = None) -> list[Wish] | None:
        """Return the metrics' wishes; None if a required one is missing.

        Args:
            values: Values of metrics by name; a metric that Prometheus does not have is missing.
            _: The pods, which this rule does not use.
        """
        found: dict[str, float] = {}
        for trigger in self.triggers:
            value = values.get(trigger.figure)
            if value is None and not trigger.ignores_null:
                return None
            found[trigger.name] = 0.0 if value is None else value
        if self.formula:
            # KEDA reports thousandths.
            value = math.trunc(1000 * _evaluate(ast.parse(self.formula, mode="eval").body, found)) / 1000
            return [Wish(value, self.target, self.metric_type)]
        return [Wish(found[each.name], each.threshold, each.metric_type) for each in self.triggers]


def scrape_interval_s() -> float:
    """Return the interval at which Prometheus scrapes."""
    for manifest in yaml.safe_load_all((OVERLAY / "servicemonitor.yaml").read_text()):
        (endpoint,) = manifest["spec"]["endpoints"]
        return float(endpoint["interval"].removesuffix("s"))
    raise ValueError("no ServiceMonitor")


def _direction(given: Mapping[str, Any], default: Direction) -> Direction:
    if given.get("selectPolicy", "Max") != "Max" or "tolerance" in given:
        raise ValueError("only the policy that allows most, and the usual tolerance, are modeled")
    policies = tuple(Policy(each["type"], each["value"], each["periodSeconds"]) for each in given.get("policies", ()))
    return Direction(given.get("stabilizationWindowSeconds", default.stabilization_s), policies or default.policies)


def _trigger(given: Mapping[str, Any]) -> Trigger:
    metadata = given["metadata"]
    query = _QUERY.fullmatch(metadata["query"])
    if given["type"] != "prometheus" or query is None or given.get("useCachedMetrics"):
        raise ValueError(f"the trigger {given} is not modeled")
    if query[1] not in [figure.name for figure in FIGURES]:
        raise ValueError(f"{query[1]} is not a metric of surreal metrics")
    ignores_null = metadata.get("ignoreNullValues", "true") == "true"
    return Trigger(
        given["name"], query[1], float(metadata["threshold"]), given.get("metricType", "AverageValue"), ignores_null
    )


def _evaluate(node: ast.AST, values: Mapping[str, float]) -> float:
    match node:
        case ast.Constant(value=int() | float() as value):
            return float(value)
        case ast.Name(id=name):
            return values[name]
        case ast.BinOp(left=left, op=op, right=right):
            return _OPERATORS[type(op)](_evaluate(left, values), _evaluate(right, values))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            return _FUNCTIONS[name](*(_evaluate(each, values) for each in arguments))
    raise ValueError(f"{ast.dump(node)} is not modeled")
