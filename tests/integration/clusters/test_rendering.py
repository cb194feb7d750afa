"""The manifests of a run: those of k8s/, with what its configuration says."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from surreal.base.errors import ConfigError
from surreal.config import load_config, preset_path
from surreal.plugins.clusters.kubernetes.manifest import copy_manifests, read_base, write_manifests
from surreal.plugins.clusters.kubernetes.redis import REDIS_USERS, make_secrets
from surreal.plugins.clusters.kubernetes.rendering import Request, render
from surreal.run.process.arguments import parse
from surreal.run.process.roles import ROLES
from tests.manifests import K8S, containers, find, pods

IMAGE = "registry.example/surreal:7"


@pytest.fixture
def rendered() -> Callable[..., list[dict[str, Any]]]:
    """Render as the command does: what is compared is read back from the text."""

    def run(source: str = "cartpole-dqn", **options: Any) -> list[dict[str, Any]]:
        manifests = render(Request(source, IMAGE, **options), lambda sentence: None)
        return list(yaml.safe_load_all(write_manifests(manifests)))

    return run


def counts(manifests: list[dict[str, Any]]) -> dict[str, int]:
    workloads = [each for each in manifests if each["kind"] in ("Deployment", "StatefulSet")]
    return {each["metadata"]["name"]: each["spec"]["replicas"] for each in workloads}


def test_a_run_has_the_processes_that_its_configuration_asks_for(rendered: Callable[..., Any]) -> None:
    others = {"redis": 1, "tensorboard": 1}
    assert counts(rendered(agents=5)) == {**others, "learner": 1, "agents": 5, "eval": 1}
    assert counts(rendered(overrides=("eval.enabled=false", "run.stop_at_return=null"))) == {
        **others,
        "learner": 1,
        "agents": 2,
    }
    assert counts(rendered("cartpole-rlx")) == {**others, "learner": 1, "rlx-servers": 1, "eval": 1}
    found = rendered("cartpole-a3c", overrides=("parameter_server.servers=2",))
    assert counts(found) == {**others, "ps": 2, "agents": load_config("cartpole-a3c").agent.count, "eval": 1}
    assert "--shard=$(POD)/2" in find(found, "StatefulSet", "ps")["spec"]["template"]["spec"]["containers"][0]["args"]
    # Nothing is left behind that is for pods which are not there.
    there = {name for name, _ in pods(found)}
    named = {each["metadata"]["labels"].get("app.kubernetes.io/name") for each in found} - {None}
    assert named == there


def test_every_process_is_told_of_the_run_as_its_command_takes_it(rendered: Callable[..., Any]) -> None:
    roles = {role.name: role for role in ROLES}
    manifests = rendered(agents=7, overrides=("learner.batch_size=64",), run="first-try")
    assert find(manifests, "ConfigMap", "run")["data"] == {
        "SURREAL_RUN": "first-try", "SURREAL_REDIS": "redis://redis-0.redis:6379",
    }  # fmt: skip
    (path, text), *_ = find(manifests, "ConfigMap", "app")["data"].items()
    assert (path, text) == ("app.yaml", preset_path("cartpole-dqn").read_text())
    for name, container in containers(manifests):
        assert container["image"] == IMAGE, name
        role, *arguments = container["args"]
        if role not in roles:
            assert name in ("redis", "tensorboard")
            continue
        parsed = parse(roles[role], arguments)
        config = load_config("cartpole-dqn", parsed.overrides)
        assert (config.agent.count, config.learner.batch_size) == (7, 64)


def test_jobs_end_with_the_run(rendered: Callable[..., Any]) -> None:
    manifests = rendered(agents=5, has_jobs=True)
    jobs = {each["metadata"]["name"]: each for each in manifests if each["kind"] == "Job"}
    assert {name: job["spec"]["completions"] for name, job in jobs.items()} == {"learner": 1, "agents": 5, "eval": 1}
    assert counts(manifests) == {"redis": 1, "tensorboard": 1}
    for job in jobs.values():
        kubernetes_validate.validate(job, "1.30", strict=True)
        spec = job["spec"]["template"]["spec"]
        assert spec["restartPolicy"] == "Never"
        arguments = spec["containers"][0]["args"]
        assert "--once" in arguments and "--stay" not in arguments
    actions = [rule["action"] for rule in jobs["learner"]["spec"]["podFailurePolicy"]["rules"]]
    assert actions == ["Ignore", "FailJob"]
    # With maxUnavailable, a budget of a Job's pods would forbid every eviction.
    budgets = [each["metadata"]["name"] for each in manifests if each["kind"] == "PodDisruptionBudget"]
    assert budgets == ["redis"]
    with pytest.raises(ConfigError, match="parameter servers"):
        rendered("cartpole-a3c", has_jobs=True)


def test_all_of_a_run_is_in_its_namespace_and_says_whose_it_is(rendered: Callable[..., Any]) -> None:
    first, *others = rendered(run="first-try")
    assert (first["kind"], first["metadata"]["name"]) == ("Namespace", "surreal-first-try")
    assert first["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    assert {each["metadata"]["namespace"] for each in others} == {"surreal-first-try"}
    assert {each["metadata"]["labels"]["app.kubernetes.io/instance"] for each in (first, *others)} == {"first-try"}
    for _, template in pods(others):
        assert template["metadata"]["labels"]["app.kubernetes.io/instance"] == "first-try"
    given = rendered(run="first-try", namespace="team-7")
    assert {each["metadata"]["namespace"] for each in given} == {"team-7"}
    assert len(given) == len(others)
    assert [each["kind"] for each in given[:2]] == ["ConfigMap", "ConfigMap"]  # before those who read them


def test_pods_start_anew_when_the_configuration_changes_and_only_then(
    rendered: Callable[..., Any], tmp_path: Path
) -> None:
    def checksums(source: str) -> set[str]:
        return {template["metadata"]["annotations"]["surreal/app-checksum"] for _, template in pods(rendered(source))}

    path = tmp_path / "app.yaml"
    path.write_text(preset_path("cartpole-dqn").read_text())
    before = checksums(str(path))
    assert checksums(str(path)) == before
    assert len(before) == 1
    path.write_text(path.read_text() + "\n# another word\n")
    assert checksums(str(path)) != before


def test_redis_gets_the_memory_that_the_replay_needs(rendered: Callable[..., Any]) -> None:
    for size in ("64mb", "20gb"):
        overrides = (f"replay.max_bytes={size}",)
        maxmemory = load_config("cartpole-dqn", overrides).own_redis_bytes
        redis = find(rendered(overrides=overrides), "StatefulSet", "redis")["spec"]
        (container,) = redis["template"]["spec"]["containers"]
        assert f"--maxmemory={maxmemory}" in container["args"]
        limit, request = (mib(container["resources"][kind]["memory"]) for kind in ("limits", "requests"))
        assert limit >= 2 * maxmemory / 2**20 > request >= maxmemory / 2**20 or size == "64mb"
        storage = mib(redis["volumeClaimTemplates"][0]["spec"]["resources"]["requests"]["storage"])
        assert storage >= max(8 * 1024, 4 * maxmemory / 2**20 - 1)


def mib(quantity: str) -> int:
    assert quantity.endswith("Mi")
    return int(quantity.removesuffix("Mi"))


def test_another_redis_takes_the_place_of_the_runs_own(rendered: Callable[..., Any]) -> None:
    manifests = rendered(redis="rediss://cache.example:6380")
    assert not [each for each in manifests if each["metadata"]["labels"].get("app.kubernetes.io/name") == "redis"]
    assert find(manifests, "ConfigMap", "run")["data"]["SURREAL_REDIS"] == "rediss://cache.example:6380"
    policy = find(manifests, "NetworkPolicy", "from-run-to-redis")
    assert policy["spec"]["egress"] == [{"ports": [{"protocol": "TCP", "port": 6380}]}]
    cluster = rendered(redis="redis+cluster://a:7000,b:7001")
    ports = find(cluster, "NetworkPolicy", "from-run-to-redis")["spec"]["egress"][0]["ports"]
    assert [each["port"] for each in ports] == [7000, 7001]


@pytest.mark.parametrize(
    ("address", "ports"),
    [
        ("redis+sentinel://s1,s2/primary", [6379, 26379]),
        ("rediss+sentinel://s1:5000,s2,s3:5000/primary", [5000, 6379, 26379]),
        ("redis+cluster://a:7000,b", [6379, 7000]),
        ("cache.example", [6379]),
    ],
)
def test_ports_of_another_redis_are_open(rendered: Callable[..., Any], address: str, ports: list[int]) -> None:
    (egress,) = find(rendered(redis=address), "NetworkPolicy", "from-run-to-redis")["spec"]["egress"]
    assert [each["port"] for each in egress["ports"]] == ports


def test_sentinels_have_a_user_and_a_password_of_their_own(rendered: Callable[..., Any]) -> None:
    manifests = rendered(redis="redis+sentinel://s1,s2/primary", redis_sentinel_user="watcher")
    for each in manifests:
        kubernetes_validate.validate(each, "1.30", strict=True)
    variables = find(manifests, "ConfigMap", "run")["data"]
    assert variables["SURREAL_REDIS_SENTINEL_USER"] == "watcher"
    path = Path(variables["SURREAL_REDIS_SENTINEL_PASSWORD_FILE"])
    volumes = mounted(manifests, str(path.parent))
    assert set(volumes) == {"learner", "agent", "eval"}
    for name, volume in volumes.items():
        assert {"key": "sentinel", "path": path.name} in volume["secret"]["items"], name
        assert [each["path"] for each in volume["secret"]["items"]] == ["password", "sentinel"]


def mounted(manifests: list[dict[str, Any]], path: str) -> dict[str, dict[str, Any]]:
    """The volume that each kind of pod has at a path."""
    found = {}
    for name, template in pods(manifests):
        (container,) = template["spec"]["containers"]
        for each in container["volumeMounts"]:
            if each["mountPath"] == path:
                (found[name],) = [volume for volume in template["spec"]["volumes"] if volume["name"] == each["name"]]
    return found


def test_a_managed_redis_has_one_user_and_an_authority_of_its_own(rendered: Callable[..., Any], tmp_path: Path) -> None:
    authority = tmp_path / "ca.pem"
    authority.write_text("-----BEGIN CERTIFICATE-----\n")
    manifests = rendered(redis="rediss://cache.example", redis_user="default", redis_ca=authority)
    for each in manifests:
        kubernetes_validate.validate(each, "1.30", strict=True)
    assert find(manifests, "ConfigMap", "redis-ca")["data"] == {"ca.crt": "-----BEGIN CERTIFICATE-----\n"}
    assert find(manifests, "ConfigMap", "run")["data"]["SURREAL_REDIS_TLS_CA"] == "/run/secrets/redis-ca/ca.crt"
    processes = {"learner", "agent", "eval"}
    assert set(mounted(manifests, "/run/secrets/redis-ca")) == processes
    passwords = mounted(manifests, "/run/secrets/surreal")
    assert set(passwords) == processes
    for volume in passwords.values():
        assert volume["secret"]["items"] == [{"key": "default", "path": "password"}]
    users = {each["value"] for _, container in containers(manifests) for each in container.get("env", ())
             if each["name"] == "SURREAL_REDIS_USER"}  # fmt: skip
    assert users == {"default"}


def test_the_runs_own_redis_has_tls_where_it_is_asked_for(
    rendered: Callable[..., Any], require_tool: Callable[..., str]
) -> None:
    require_tool("openssl")
    manifests = rendered(has_tls=True)
    for each in manifests:
        kubernetes_validate.validate(each, "1.30", strict=True)
    assert find(manifests, "ConfigMap", "run")["data"] == {
        "SURREAL_RUN": "cartpole-dqn",
        "SURREAL_REDIS": "rediss://redis-0.redis:6379",
        "SURREAL_REDIS_TLS_CA": "/run/secrets/redis-ca/ca.crt",
    }
    trusting = mounted(manifests, "/run/secrets/redis-ca")
    assert set(trusting) == {"redis", "learner", "agent", "eval"}
    assert {item["key"] for each in trusting.values() for item in each["secret"]["items"]} == {"ca.crt"}  # and no key
    assert set(mounted(manifests, "/run/secrets/redis-tls")) == {"redis"}
    *_, made = make_secrets("demo", has_tls=True)
    kubernetes_validate.validate(made, "1.30", strict=True)
    assert (made["metadata"]["name"], made["type"]) == ("surreal-redis-tls", "kubernetes.io/tls")
    assert set(made["stringData"]) == {"tls.crt", "tls.key", "ca.crt"}


@pytest.mark.parametrize(
    ("endpoint", "port"), [("http://minio.storage:9000", 9000), ("https://s3.example", 443), ("http://s3.example", 80)]
)
def test_checkpoints_go_to_an_s3_service_at_any_port(rendered: Callable[..., Any], endpoint: str, port: int) -> None:
    manifests = rendered(s3_endpoint=endpoint)
    policy = find(manifests, "NetworkPolicy", "from-learner-to-s3")
    assert policy["spec"]["egress"] == [{"ports": [{"protocol": "TCP", "port": port}]}]
    assert find(manifests, "ConfigMap", "run")["data"]["AWS_ENDPOINT_URL"] == endpoint


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"s3_endpoint": "minio:9000"}, "--s3-endpoint is 'minio:9000'; it must be http://HOST:PORT"),
        ({"s3_endpoint": "http://me:secret@minio:9000"}, "--s3-endpoint is 'http://minio:9000'"),
        ({"redis_user": "default"}, "name it with --redis"),
        ({"redis_sentinel_user": "default"}, "name it with --redis"),
        ({"redis": "cache:6379", "redis_sentinel_user": "default"}, "for Sentinels, but --redis is cache:6379"),
        ({"redis": "cache:6379", "has_tls": True}, "--tls is for the run's own Redis"),
        ({"redis": "cache:6379", "redis_ca": Path("/nowhere")}, "write rediss://"),
        ({"redis": "rediss://cache:6379", "redis_ca": Path("/nowhere")}, "/nowhere cannot be read as PEM"),
        ({"redis": "redis://:secret@cache:6379"}, "into the Secret surreal-redis"),
        ({"redis": "unix:///tmp/redis.sock"}, "cannot reach a socket"),
        ({"run": "My_Run"}, "cannot be the name of a namespace"),
        ({"namespace": "-x"}, "--namespace"),
        ({"overrides": ("learner.batch_sise=3",)}, "batch_size"),
        ({"overlay": "nowhere"}, "autoscale, cluster, gpu, local, site"),
        ({"overlay": "./nowhere"}, "nowhere has no kustomization.yaml"),
    ],
)
def test_what_makes_no_sense_is_refused(rendered: Callable[..., Any], options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        rendered(**options)
    assert "secret@" not in str(caught.value)


def test_clients_that_a_launcher_would_start_are_spoken_of() -> None:
    said: list[str] = []
    render(Request("cartpole-rlx", IMAGE), said.append)
    assert said == ["rlx.clients is 4: environments that connect run elsewhere, none is rendered"]


def test_an_overlay_without_kubectl_is_refused_and_the_base_needs_none(
    rendered: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    rendered()
    with pytest.raises(ConfigError, match="kubectl"):
        rendered(overlay="local")


def test_what_kustomize_says_of_a_broken_overlay_is_repeated(
    rendered: Callable[..., Any], require_tool: Callable[..., str], tmp_path: Path
) -> None:
    require_tool("kubectl")
    (tmp_path / "kustomization.yaml").write_text("resources: [missing.yaml]\n")
    with pytest.raises(ConfigError, match=r"missing\.yaml"):
        rendered(overlay=str(tmp_path))


def test_overlays_come_out_of_kustomize_with_the_same_edits(
    rendered: Callable[..., Any], require_tool: Callable[..., str]
) -> None:
    require_tool("kubectl")
    plain = rendered(overlay="local")
    assert [each["kind"] for each in plain[:3]] == ["Namespace", "ConfigMap", "ConfigMap"]
    assert find(plain, "Deployment", "learner")["spec"]["template"]["spec"]["containers"][0]["image"] == IMAGE
    gpu = dict(containers(rendered(overlay="gpu", gpu_image="registry.example/surreal:7-cuda")))
    assert gpu["learner"]["image"] == "registry.example/surreal:7-cuda"
    assert gpu["agent"]["image"] == IMAGE
    cluster = rendered(overlay="cluster")
    (overrides,) = {
        tuple(word.removeprefix("--set=") for word in container["args"] if word.startswith("--set="))
        for name, container in containers(cluster)
        if name not in ("redis", "tensorboard")
    }
    config = load_config("cartpole-dqn", overrides)
    assert config.replay_addresses == [f"redis-{number}.redis:6379" for number in range(6)]
    assert config.num_shards == 6


def test_what_a_scaled_object_scales_has_no_number_of_its_own(
    rendered: Callable[..., Any], require_tool: Callable[..., str], tmp_path: Path
) -> None:
    require_tool("kubectl")
    copy_manifests(tmp_path / "k8s")
    overlay = tmp_path / "k8s" / "overlays" / "mine"
    overlay.mkdir()
    (overlay / "kustomization.yaml").write_text("resources: [../../base, scaled.yaml]\n")
    query = 'max(surreal_agents_busy{namespace="surreal-demo",run="demo"})'
    trigger = {"type": "prometheus", "metadata": {"serverAddress": "http://here:9090", "query": query}}
    scaled = {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": "agents", "labels": {"app.kubernetes.io/name": "agent"}},
        "spec": {"scaleTargetRef": {"name": "agents"}, "maxReplicaCount": 100, "triggers": [trigger]},
    }
    (overlay / "scaled.yaml").write_text(yaml.safe_dump(scaled))
    manifests = rendered(overlay=str(overlay), agents=40, run="mine", namespace="team-7", prometheus="http://p:90")
    assert "replicas" not in find(manifests, "Deployment", "agents")["spec"]
    spec = find(manifests, "ScaledObject", "agents")["spec"]
    assert spec["maxReplicaCount"] == 40
    assert spec["triggers"][0]["metadata"] == {
        "serverAddress": "http://p:90",
        "query": 'max(surreal_agents_busy{namespace="team-7",run="mine"})',  # others may have a run of this name
    }
    kept = rendered(overlay=str(overlay), run="mine")
    trigger = find(kept, "ScaledObject", "agents")["spec"]["triggers"][0]["metadata"]
    assert trigger["serverAddress"] == "http://here:9090"
    assert 'namespace="surreal-mine",run="mine"' in trigger["query"]


def test_pods_and_volumes_fit_to_the_cluster(rendered: Callable[..., Any]) -> None:
    given = {"priority_class": "high", "storage_class": "ssd", "pull_secrets": ["one", "two"]}
    plain, found = rendered("cartpole-a3c"), rendered("cartpole-a3c", **given)
    by_name = {name: template["spec"] for name, template in pods(found)}
    assert {name for name, pod in by_name.items() if pod.get("priorityClassName") == "high"} == {*by_name} - {"agent"}
    assert all(pod["imagePullSecrets"] == [{"name": "one"}, {"name": "two"}] for pod in by_name.values())
    text = json.dumps(found)
    volumes = text.count('"storage":')
    assert volumes >= 2 and text.count('"storageClassName": "ssd"') == volumes
    assert "storageClassName" not in json.dumps(plain) and "priorityClassName" not in json.dumps(plain)
    (spread,) = by_name["agent"]["topologySpreadConstraints"]
    assert (
        spread["labelSelector"]["matchLabels"].items()
        <= find(found, "Deployment", "agents")["spec"]["template"]["metadata"]["labels"].items()
    )
    for each in found:
        kubernetes_validate.validate(each, "1.37", strict=True)


def test_what_is_rendered_is_valid(rendered: Callable[..., Any]) -> None:
    for each in rendered("cartpole-rlx", agents=1):
        kubernetes_validate.validate(each, "1.37", strict=True)
    assert not [each for each in rendered() if each["kind"] == "Secret"]


def test_secrets_are_fresh_and_have_what_manifests_ask_for() -> None:
    first, again = make_secrets("demo"), make_secrets("demo")
    for each in first:
        kubernetes_validate.validate(each, "1.37", strict=True)
        assert each["metadata"]["namespace"] == "surreal-demo"
    passwords = [value for each in (*first, *again) for value in each["stringData"].values()]
    assert len(set(passwords)) == len(passwords) == 2 * (len(REDIS_USERS) + 1)
    assert min(map(len, passwords)) >= 32
    there = {each["metadata"]["name"]: set(each["stringData"]) for each in first}
    for _, template in pods(read_base()):
        for secret in (volume["secret"] for volume in template["spec"]["volumes"] if "secret" in volume):
            if secret.get("optional"):
                continue
            asked = {item["key"] for item in secret.get("items", ())}
            assert asked <= there[secret["secretName"]]


def test_a_copy_can_be_edited_and_is_not_written_over(tmp_path: Path) -> None:
    copy_manifests(tmp_path / "k8s")
    copied = {path.relative_to(tmp_path / "k8s") for path in (tmp_path / "k8s").rglob("*.yaml")}
    assert copied == {path.relative_to(K8S) for path in K8S.rglob("*.yaml")}
    assert os.stat(tmp_path / "k8s" / "base" / "agents.yaml").st_mode & stat.S_IWUSR
    with pytest.raises(ConfigError, match="already exists"):
        copy_manifests(tmp_path / "k8s")
