"""Alert rules and the Grafana dashboard use metrics that there are, and pages that there are."""

from __future__ import annotations

import json
import re
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
MONITORING = ROOT / "k8s" / "monitoring"
PAGE = (ROOT / "docs" / "autoscaling.md").read_text()


def metrics_in(expression: str) -> set[str]:
    return set(re.findall(r"\bsurreal_\w+", expression))


def test_alerts_use_metrics_that_are_exported_and_lead_to_a_section() -> None:
    (group,) = yaml.safe_load((MONITORING / "alerts.yaml").read_text())["spec"]["groups"]
    headings = re.findall(r"^## (.+)$", (ROOT / "docs" / "runbook.md").read_text(), re.MULTILINE)
    anchors = {heading.lower().replace(" ", "-") for heading in headings}
    assert len(group["rules"]) >= 5
    for rule in group["rules"]:
        used = metrics_in(rule["expr"])
        assert used and all(f"`{name}`" in PAGE for name in used), rule["alert"]
        page, _, anchor = rule["annotations"]["runbook"].partition("#")
        assert page == "runbook.md" and anchor in anchors, rule["alert"]


def test_what_an_operator_is_told_of_is_on_the_dashboard() -> None:
    (group,) = yaml.safe_load((MONITORING / "alerts.yaml").read_text())["spec"]["groups"]
    used = set().union(*(metrics_in(rule["expr"]) for rule in group["rules"]))
    shown = metrics_in((MONITORING / "dashboard.json").read_text())
    assert {name for name in used if "_checkpoint_" in name} == {
        "surreal_checkpoint_age_seconds",
        "surreal_checkpoint_upload_failures_total",
    }
    assert {name for name in used if "_checkpoint_" in name} <= shown


def test_the_dashboard_uses_metrics_that_are_exported() -> None:
    panels = json.loads((MONITORING / "dashboard.json").read_text())["panels"]
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels]
    assert len(panels) >= 8 and len(set(places)) == len(places)
    for panel in panels:
        for target in panel["targets"]:
            used = metrics_in(target["expr"])
            assert used and all(f"`{name}`" in PAGE for name in used), panel["title"]
            # A server has no run.
            assert 'run=~"$run"' in target["expr"] or used <= {name for name in used if "_redis_" in name}
