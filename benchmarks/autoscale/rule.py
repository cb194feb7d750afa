"""What a ScaledObject says, read from the very manifest that a cluster gets: nothing of it is written down again here.

It takes what ours use, and refuses the rest: queries are one figure of one run, formulas arithmetic.
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
    """How far the number of pods may go in a time."""

    type: Literal["Percent", "Pods"]
    value: int
    period_s: float


class Direction(NamedTuple):
    """How it goes up, or down."""

    stabilization_s: float
    policies: tuple[Policy, ...]


class Trigger(NamedTuple):
    """A figure that is asked for."""

    name: str
    figure: str
    threshold: float
    metric_type: MetricType
    ignores_null: bool


class Wish(NamedTuple):
    """What one metric of the autoscaler wants: it is to be `value / target` pods, or times as many as there are."""

    value: float
    target: float
    metric_type: MetricType


#: What an HPA does where nothing is said.
UP = Direction(0.0, (Policy("Percent", 100, 15.0), Policy("Pods", 4, 15.0)))
DOWN = Direction(300.0, (Policy("Percent", 100, 15.0),))


@dataclass(frozen=True)
class Rule:
    """A ScaledObject."""

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
            ValueError: it has something that is not modelled.
        """
        spec = manifest["spec"]
        advanced = spec.get("advanced", {})
        behavior = advanced.get("horizontalPodAutoscalerConfig", {}).get("behavior", {})
        modifiers = advanced.get("scalingModifiers", {})
        least = spec.get("minReplicaCount", 0)
        if least < 1 or "idleReplicaCount" in spec or "fallback" in spec:
            raise ValueError("going to zero (pollingInterval, cooldownPeriod) and fallback are not modelled")
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
        """What Prometheus is asked for."""
        return [trigger.figure for trigger in self.triggers]

    def wishes(self, values: Mapping[str, float], _: object = None) -> list[Wish] | None:
        """What the metrics want; None where one is missing that must not be.

        Args:
            values: of figures, by name; those that Prometheus does not have are not there.
            _: the pods, which it does not look at.
        """
        found: dict[str, float] = {}
        for trigger in self.triggers:
            value = values.get(trigger.figure)
            if value is None and not trigger.ignores_null:
                return None
            found[trigger.name] = 0.0 if value is None else value
        if self.formula:
            # KEDA hands over thousandths.
            value = math.trunc(1000 * _evaluate(ast.parse(self.formula, mode="eval").body, found)) / 1000
            return [Wish(value, self.target, self.metric_type)]
        return [Wish(found[each.name], each.threshold, each.metric_type) for each in self.triggers]


def scrape_interval_s() -> float:
    """How often Prometheus is told to ask."""
    for manifest in yaml.safe_load_all((OVERLAY / "servicemonitor.yaml").read_text()):
        (endpoint,) = manifest["spec"]["endpoints"]
        return float(endpoint["interval"].removesuffix("s"))
    raise ValueError("no ServiceMonitor")


def _direction(given: Mapping[str, Any], default: Direction) -> Direction:
    if given.get("selectPolicy", "Max") != "Max" or "tolerance" in given:
        raise ValueError("only the policy that allows most, and the usual tolerance, are modelled")
    policies = tuple(Policy(each["type"], each["value"], each["periodSeconds"]) for each in given.get("policies", ()))
    return Direction(given.get("stabilizationWindowSeconds", default.stabilization_s), policies or default.policies)


def _trigger(given: Mapping[str, Any]) -> Trigger:
    metadata = given["metadata"]
    query = _QUERY.fullmatch(metadata["query"])
    if given["type"] != "prometheus" or query is None or given.get("useCachedMetrics"):
        raise ValueError(f"the trigger {given} is not modelled")
    if query[1] not in [figure.name for figure in FIGURES]:
        raise ValueError(f"{query[1]} is no figure of surreal metrics")
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
    raise ValueError(f"{ast.dump(node)} is not modelled")
