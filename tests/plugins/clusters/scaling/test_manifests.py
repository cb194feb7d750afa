"""The overlay `autoscale`: ScaledObjects against KEDA's own definition, and what its parts say of each other."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from benchmarks.autoscale.rule import OVERLAY, Rule, scrape_interval_s
from surreal.plugins.clusters.scaling.figures import FIGURES

NAMES = ("scaledobject-agents.yaml", "scaledobject-rlx.yaml")


def manifests(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((OVERLAY / name).read_text()))


def check(manifest: dict[str, Any]) -> None:
    """Types are checked by the model, and a field that it does not have is gone after a way there and back."""
    from cloudcoil.models.keda.v1alpha1 import ScaledObject  # takes a second, which other tests need not wait for

    known = ScaledObject.model_validate(manifest)
    assert known.model_dump(mode="json", by_alias=True, exclude_unset=True) == manifest


@pytest.mark.parametrize("name", NAMES)
def test_scaled_objects_are_what_keda_knows(name: str) -> None:
    (manifest,) = manifests(name)
    check(manifest)
    spec = manifest["spec"]
    with pytest.raises(AssertionError):
        check({**manifest, "spec": {**spec, "minReplicas": 1}})
    with pytest.raises(ValueError, match="maxReplicaCount"):
        check({**manifest, "spec": {**spec, "maxReplicaCount": "many"}})
    with pytest.raises(ValueError, match="threshold"):  # metadata are text, or KEDA refuses them
        check({**manifest, "spec": {**spec, "triggers": [{"type": "prometheus", "metadata": {"threshold": 1}}]}})


def test_what_is_asked_for_is_what_surreal_metrics_serves() -> None:
    served = {figure.name for figure in FIGURES if figure.kind == "gauge"}
    for name in NAMES:
        rule = Rule.load(name)
        assert set(rule.figures) <= served
        assert rule.most > rule.least >= 1


def test_the_overlay_has_all_files_of_its_folder() -> None:
    (overlay,) = manifests("kustomization.yaml")
    listed = {*overlay["resources"]} - {"../../base"}
    assert listed == {path.name for path in OVERLAY.glob("*.yaml")} - {"kustomization.yaml"}


def test_prometheus_finds_the_metrics_and_often_enough() -> None:
    service, deployment, policy = manifests("metrics.yaml")
    (monitor,) = manifests("servicemonitor.yaml")
    labels, name = service["metadata"]["labels"], {"app.kubernetes.io/name": "metrics"}
    assert monitor["apiVersion"] == "monitoring.coreos.com/v1"
    assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()
    (endpoint,) = monitor["spec"]["endpoints"]
    assert set(endpoint) == {"port", "path", "interval", "scrapeTimeout"}
    (port,) = service["spec"]["ports"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert endpoint["port"] == port["name"] == container["ports"][0]["name"]
    assert {port["port"], container["ports"][0]["containerPort"], policy["spec"]["ingress"][0]["ports"][0]["port"]} == {
        int(service["metadata"]["annotations"]["prometheus.io/port"])
    }
    assert f"--port={port['port']}" in container["args"]
    pods = deployment["spec"]["template"]["metadata"]["labels"]
    for selector in (service["spec"]["selector"], policy["spec"]["podSelector"]["matchLabels"]):
        assert selector == name and selector.items() <= pods.items()
    # What processes say is of ten seconds: less often, and something would go by unseen.
    assert scrape_interval_s() <= 10


def test_what_is_not_modelled_is_refused() -> None:
    (manifest,) = manifests("scaledobject-agents.yaml")
    spec = manifest["spec"]

    def changed(**changes: Any) -> dict[str, Any]:
        return {**manifest, "spec": {**spec, **changes}}

    with pytest.raises(ValueError, match="zero"):
        Rule.of(changed(minReplicaCount=0))
    trigger = spec["triggers"][0]
    for query in ("sum(surreal_agents_busy)", 'max(surreal_no_figure{namespace="a",run="demo"})'):
        with pytest.raises(ValueError):
            Rule.of(changed(triggers=[{**trigger, "metadata": {**trigger["metadata"], "query": query}}]))
    odd = Rule.of(changed(advanced={"scalingModifiers": {"formula": "agents_busy ** 2", "target": "1"}}))
    with pytest.raises((ValueError, KeyError)):
        odd.wishes({"surreal_agents_busy": 1.0, "surreal_learner_waiting_ratio": 0.0})
