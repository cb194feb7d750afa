"""The manifests in k8s/ are valid, careful, and agree with what processes take and how long they need."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from surreal.base.system.probe import PROBES
from surreal.config import load_config
from surreal.plugins.clusters.kubernetes.manifest import overlay_names, read_base
from surreal.run.process.arguments import parse
from surreal.run.process.roles import ROLES
from tests.manifests import BASE, K8S, OVERLAYS, ROOT, build, containers, find, pods

#: Oldest and newest Kubernetes that manifests are compared with.
VERSIONS = ("1.30", "1.37")
#: Seconds that are left when a process has drained as long as it may.
MARGIN_S = 10.0
#: As they lie there; tests only look at them.
BASE_MANIFESTS = read_base()
_ROLES = {role.name: role for role in ROLES}


@pytest.fixture
def built(require_tool: Callable[..., str]) -> Callable[[Path], list[dict[str, Any]]]:
    return lambda folder: cached_build(folder, require_tool("kubectl"))


@cache
def cached_build(folder: Path, kubectl: str) -> list[dict[str, Any]]:
    return build(folder, kubectl)


@pytest.mark.parametrize("folder", [BASE, *OVERLAYS], ids=lambda path: path.name)
def test_every_manifest_is_valid(folder: Path, built: Callable[[Path], list[dict[str, Any]]]) -> None:
    manifests = built(folder)
    names = [(each["kind"], each["metadata"]["name"]) for each in manifests]
    assert len(names) == len(set(names)) >= 20
    for each in manifests:
        if "keda.sh" in each["apiVersion"] or "coreos.com" in each["apiVersion"]:
            continue  # resources of others, which Kubernetes' own schemas do not know
        for version in VERSIONS:
            validate(json.dumps(each), version)


@cache
def validate(manifest: str, version: str) -> None:
    """Compare with Kubernetes' schemas; most manifests of overlays are those of the base."""
    kubernetes_validate.validate(json.loads(manifest), version, strict=True)


def test_validation_finds_a_misspelt_field() -> None:
    broken = find(read_base(), "Deployment", "agents")
    broken["spec"]["template"]["spec"]["terminationGracePeriodSecond"] = 1
    with pytest.raises(kubernetes_validate.ValidationError, match="terminationGracePeriodSecond"):
        kubernetes_validate.validate(broken, VERSIONS[0], strict=True)


def test_files_of_manifests_are_clean() -> None:
    command = [sys.executable, "-m", "yamllint", "--strict", "-c", K8S / "yamllint.yaml", K8S, ROOT / "compose.yaml"]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_the_base_is_the_same_with_and_without_kustomize(built: Callable[[Path], list[dict[str, Any]]]) -> None:
    generated = [each for each in built(BASE) if each["kind"] == "ConfigMap"]
    others = deepcopy([each for each in built(BASE) if each["kind"] != "ConfigMap"])
    for each in others:
        assert each["metadata"].pop("namespace", None) == (None if each["kind"] == "Namespace" else "surreal-demo")
    key = lambda each: (each["kind"], each["metadata"]["name"])  # noqa: E731
    assert sorted(others, key=key) == sorted(BASE_MANIFESTS, key=key)
    assert sorted(each["metadata"]["name"] for each in generated) == ["app", "run"]
    assert load_config(BASE / "app.yaml").name == "cartpole-dqn"
    assert overlay_names() == [path.name for path in OVERLAYS] == ["autoscale", "cluster", "gpu", "local", "site"]


def test_every_command_is_one_that_its_role_takes() -> None:
    seen = set()
    for name, container in containers(BASE_MANIFESTS):
        assert container["command"] in (["surreal"], ["tensorboard"])
        role, *arguments = container["args"]
        if role not in _ROLES:
            continue
        seen.add(role)
        arguments = [word.replace("$(SURREAL_RUN)", "demo").replace("$(POD)", "ps-0") for word in arguments]
        own = [word for word in arguments if not word.startswith(("--host", "--port"))]  # the server's own
        parsed = parse(_ROLES[role], own)
        assert parsed.run == "demo", name
        assert parsed.resume and parsed.stay
        assert parsed.config == "/etc/surreal/app.yaml"
        assert (parsed.index is None) is (role in ("agent", "rlx-server"))
    assert seen == {"learner", "ps", "agent", "rlx-server", "eval"}


def test_nobody_is_killed_who_still_drains() -> None:
    for name, template in pods(BASE_MANIFESTS):
        for container in template["spec"]["containers"]:
            role = _ROLES.get(container["args"][0])
            if role is None:
                continue
            pause = container.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", ["sleep", "0"])
            assert pause[0] == "sleep"
            needed_s = role.drain_timeout_s + float(pause[1]) + MARGIN_S
            assert template["spec"]["terminationGracePeriodSeconds"] >= needed_s, name


def test_each_process_is_asked_whether_it_is_well() -> None:
    for name, container in containers(BASE_MANIFESTS):
        for probe in PROBES:
            asked = container[f"{probe}Probe"]
            if name == "tensorboard":
                assert asked["httpGet"]["port"] == "http"
                continue
            assert asked["exec"]["command"] == ["surreal", "health", container["args"][0], "--probe", probe]
            assert asked["timeoutSeconds"] >= 5  # a loaded machine starts a Python slowly
        if name != "tensorboard":
            assert {"name": "SURREAL_HEALTH", "value": "/tmp/health"} in container["env"]


def test_no_pod_may_do_more_than_it_needs() -> None:
    for name, template in pods(BASE_MANIFESTS):
        spec = template["spec"]
        assert spec["automountServiceAccountToken"] is False
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in spec["containers"]:
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"] and not context["allowPrivilegeEscalation"], name
            assert context["capabilities"] == {"drop": ["ALL"]}
            for kind in ("requests", "limits"):
                assert set(container["resources"][kind]) >= {"cpu", "memory", "ephemeral-storage"}, name


def test_each_process_has_the_password_of_its_user_and_no_other() -> None:
    users = {}
    for name, template in pods(BASE_MANIFESTS):
        (container,) = template["spec"]["containers"]
        found = {volume["name"]: volume["secret"] for volume in template["spec"]["volumes"] if "secret" in volume}
        assert not [
            each for each in container.get("env", ()) if "valueFrom" in each and "fieldRef" not in each["valueFrom"]
        ]
        if name in ("redis", "tensorboard"):
            assert set(found) == ({"redis"} if name == "redis" else set())
            continue
        variables = {each["name"]: each.get("value") for each in container["env"]}
        (item,) = found["redis"]["items"]
        assert found["redis"]["secretName"] == "surreal-redis"
        assert variables["SURREAL_REDIS_USER"] == item["key"]
        mount = next(each["mountPath"] for each in container["volumeMounts"] if each["name"] == "redis")
        assert variables["SURREAL_REDIS_PASSWORD_FILE"] == f"{mount}/{item['path']}"
        users[name] = item["key"]
    assert users == {
        "agent": "agent", "rlx-server": "agent", "eval": "evaluation", "learner": "learner",
        "parameter-server": "parameter-server",
    }  # fmt: skip


def test_only_the_runs_pods_reach_redis_and_only_rlx_is_open() -> None:
    policies = {each["metadata"]["name"]: each["spec"] for each in BASE_MANIFESTS if each["kind"] == "NetworkPolicy"}
    everyone = {"matchLabels": {"app.kubernetes.io/part-of": "surreal"}}
    assert policies["nothing-else"] == {"podSelector": everyone, "policyTypes": ["Ingress", "Egress"]}
    entrances = {
        spec["podSelector"]["matchLabels"]["app.kubernetes.io/name"]: spec["ingress"]
        for spec in policies.values()
        if "ingress" in spec
    }
    assert entrances == {
        "redis": [{"from": [{"podSelector": everyone}], "ports": [{"protocol": "TCP", "port": 6379}]}],
        "rlx-server": [{"ports": [{"protocol": "TCP", "port": 7001}]}],
    }
    # All of the run's pods have the label that closes them, and services lead to pods that are there.
    labels = [template["metadata"]["labels"] for _, template in pods(BASE_MANIFESTS)]
    assert all(each["app.kubernetes.io/part-of"] == "surreal" for each in labels)
    for service in (each for each in BASE_MANIFESTS if each["kind"] == "Service"):
        assert [each for each in labels if service["spec"]["selector"].items() <= each.items()], service["metadata"]


def test_names_that_manifests_use_are_there() -> None:
    manifests = BASE_MANIFESTS
    there = {(each["kind"], each["metadata"]["name"]) for each in manifests} | {
        ("ConfigMap", "app"),
        ("ConfigMap", "run"),
    }
    for name, template in pods(manifests):
        assert ("ServiceAccount", template["spec"]["serviceAccountName"]) in there
        for volume in template["spec"]["volumes"]:
            if "configMap" in volume:
                assert ("ConfigMap", volume["configMap"]["name"]) in there, name
            if "persistentVolumeClaim" in volume:
                assert ("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]) in there, name
    for each in (each for each in manifests if "spec" in each):
        if each["kind"] == "StatefulSet":
            assert ("Service", each["spec"]["serviceName"]) in there
        if each["kind"] == "PodDisruptionBudget":
            assert each["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
            assert each["spec"]["maxUnavailable"] != 0  # a node can always be drained
            selected = each["spec"]["selector"]["matchLabels"]
            assert [
                name for name, template in pods(manifests) if selected.items() <= template["metadata"]["labels"].items()
            ]


def test_agents_may_run_on_machines_that_are_taken_away_and_nobody_else() -> None:
    tolerant = {name for name, template in pods(BASE_MANIFESTS) if "tolerations" in template["spec"]}
    assert tolerant == {"agent"}


def test_no_manifest_holds_a_secret() -> None:
    assert not [path for path in K8S.rglob("*.yaml") if "kind: Secret\n" in path.read_text()]


def test_the_overlay_of_a_site_names_its_priority_registry_and_storage(
    built: Callable[[Path], list[dict[str, Any]]],
) -> None:
    manifests = built(K8S / "overlays" / "site")
    by_name = {name: template["spec"] for name, template in pods(manifests)}
    assert {name for name, pod in by_name.items() if pod.get("priorityClassName")} == {*by_name} - {"agent"}
    assert find(manifests, "ServiceAccount", "surreal")["imagePullSecrets"] == [{"name": "registry"}]
    assert {pod["serviceAccountName"] for pod in by_name.values()} == {"surreal"}
    text = json.dumps(manifests)
    assert text.count('"storageClassName": "fast"') == text.count('"storage":') >= 3


def test_pods_of_a_kind_spread_over_nodes() -> None:
    found = dict(pods(BASE_MANIFESTS))
    for name in ("agent", "rlx-server"):
        (spread,) = found[name]["spec"]["topologySpreadConstraints"]
        assert spread["labelSelector"]["matchLabels"].items() <= found[name]["metadata"]["labels"].items()
        assert spread["whenUnsatisfiable"] == "ScheduleAnyway"


@pytest.mark.parametrize("overlay", OVERLAYS, ids=lambda path: path.name)
def test_an_overlay_changes_what_it_says(overlay: Path, built: Callable[[Path], list[dict[str, Any]]]) -> None:
    manifests = built(overlay)
    learner = find(manifests, "Deployment", "learner")["spec"]["template"]["spec"]["containers"][0]
    redis = find(manifests, "StatefulSet", "redis")
    assert redis["spec"]["replicas"] == (6 if overlay.name == "cluster" else 1)
    assert learner["imagePullPolicy"] == ("IfNotPresent" if overlay.name == "local" else "Always")
    assert learner["resources"]["limits"].get("nvidia.com/gpu") == (1 if overlay.name == "gpu" else None)
    app = find(manifests, "ConfigMap", "app")["data"]["app.yaml"]
    assert yaml.safe_load(app) == yaml.safe_load((BASE / "app.yaml").read_text())
