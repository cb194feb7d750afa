"""Renders all manifests of a run from its configuration: `surreal k8s render`.

The manifests are those of k8s/. A run changes counts, the image, names, the memory of Redis, and arguments and
environment of its processes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from surreal.base.errors import ConfigError
from surreal.config import Config, load_config, preset_path
from surreal.plugins.clusters.kubernetes.manifest import (
    RUN_LABEL,
    Manifest,
    check_namespace,
    config_map,
    containers,
    find,
    pod_name,
    pod_template,
    read_base,
    read_overlay,
    scale,
    set_argument,
    set_redis_memory,
    use_s3,
)
from surreal.plugins.clusters.kubernetes.redis import (
    own_address,
    own_shards,
    trust_file,
    use_other,
    use_sentinel_user,
    use_tls,
)
from surreal.plugins.clusters.options import Request
from surreal.run.process.ending import ExitCode
from surreal.run.process.roles import AGENT, EVAL, LEARNER, PARAMETER_SERVER, RLX_SERVER

CHECKSUM = "surreal/app-checksum"
#: Image of all containers in k8s/.
_IMAGE = "surreal:"
_GPU = "nvidia.com/gpu"
#: Path of the configuration in containers; the settings that override it follow it in the arguments.
CONFIG_PATH = "/etc/surreal/app.yaml"
#: The ConfigMaps that are replaced: the configuration, and the environment variables of all processes.
APP, RUN = "app", "run"
#: Role of each kind of pod.
_ROLES = {
    "learner": LEARNER,
    "parameter-server": PARAMETER_SERVER,
    "agent": AGENT,
    "rlx-server": RLX_SERVER,
    "eval": EVAL,
}
#: Kinds that come first, because other manifests are in them or read them when they start.
_FIRST = {"Namespace": 0, "ConfigMap": 1}
#: Number of times that failed pods of a Job are made again, after 10, 20, 40, ... 360 s.
_BACKOFF_LIMIT = 50
_ENDS_WITH_THE_RUN = {role.name for role in (AGENT, EVAL, LEARNER, RLX_SERVER)}


def render(request: Request, warn: Callable[[str], object]) -> list[Manifest]:
    """Make the manifests of a run, in the order in which they must be applied.

    `warn` gets a sentence on each part of the run that is not rendered.

    Raises:
        ConfigError: the configuration, a name or an address is wrong, or an overlay cannot be built.
    """
    asked = [] if request.agents is None else [f"agent.count={request.agents}"]
    overrides = request.overrides or []
    config = load_config(request.source, [*overrides, *asked])
    manifests = read_base() if request.overlay is None else read_overlay(request.overlay)
    given = find(manifests, "ConfigMap", RUN)
    variables = {} if given is None else dict(given["data"])
    if address := request.redis or config.redis.address:
        if request.has_tls:
            raise ConfigError("--tls is for the run's own Redis; for TLS with another one, --redis rediss://HOST:PORT")
        manifests = use_other(manifests, address, request.redis_user)
        found = use_sentinel_user(manifests, address, request.redis_sentinel_user)
        found |= {} if request.redis_ca is None else trust_file(manifests, request.redis_ca, address)
    else:
        if any((request.redis_user, request.redis_sentinel_user, request.redis_ca)):
            raise ConfigError("--redis-user and --redis-ca are for an existing Redis: name it with --redis")
        asked += own_shards(manifests, config, has_tls=request.has_tls)
        address = own_address(has_tls=request.has_tls)
        found = use_tls(manifests) if request.has_tls else {}
    settings = [*overrides, *asked]
    config = load_config(request.source, settings)
    run = request.run or re.sub(r"[^a-z0-9-]+", "-", config.name.lower()).strip("-")
    space = check_namespace(request.namespace or f"surreal-{run}", "--namespace" if request.namespace else "--run")
    # Processes that only a launcher starts.
    for key, count in (("rlx.clients", config.rlx.clients), ("environment.n_environments", config.environment.count)):
        if count:
            warn(f"{key} is {count}: environments that connect run elsewhere, none is rendered")

    if request.s3_endpoint is not None:
        variables |= use_s3(manifests, request.s3_endpoint)
    path = Path(request.source).expanduser()
    text = (path if path.is_file() else preset_path(request.source)).read_text(encoding="utf-8")
    variables |= {"SURREAL_RUN": run, "SURREAL_REDIS": address, **found}
    manifests = [*_counted(manifests, config), config_map(APP, {"app.yaml": text}), config_map(RUN, variables)]
    if request.namespace is not None:
        manifests = [each for each in manifests if each["kind"] != "Namespace"]
    manifests.sort(key=lambda each: _FIRST.get(each["kind"], len(_FIRST)))
    checksum = hashlib.sha256("\0".join([text, *variables.values()]).encode()).hexdigest()[:16]
    for manifest in manifests:
        _label(manifest, space, run, checksum)
        _set_containers(manifest, request, settings)
        _fit_to_cluster(manifest, request)
        if manifest["kind"] == "ScaledObject":
            most = request.agents if pod_name(manifest) == "agent" else None
            scale(manifest, space, run, most=most, prometheus=request.prometheus)
        if manifest["kind"] == "StatefulSet" and pod_name(manifest) == "redis":
            set_redis_memory(manifest, config.own_redis_bytes)
    if request.has_jobs:
        make_jobs(manifests)
    return manifests


def _label(manifest: Manifest, namespace: str, run: str, checksum: str) -> None:
    """Label a manifest and its pods with their run; pods restart when the checksum changes."""
    metadata = manifest["metadata"]
    metadata["name" if manifest["kind"] == "Namespace" else "namespace"] = namespace
    metadata.setdefault("labels", {})[RUN_LABEL] = run
    if (template := pod_template(manifest)) is not None:
        template["metadata"].setdefault("labels", {})[RUN_LABEL] = run
        template["metadata"].setdefault("annotations", {})[CHECKSUM] = checksum


def _set_containers(manifest: Manifest, request: Request, settings: Sequence[str]) -> None:
    """Set the image of the containers, and override settings where the configuration is read."""
    for container in containers(manifest):
        if container["image"].startswith(_IMAGE):
            has_gpu = _GPU in container.get("resources", {}).get("limits", {})
            container["image"] = (has_gpu and request.gpu_image) or request.image
        if CONFIG_PATH in container.get("args", ()):
            container["args"] += [f"--set={setting}" for setting in settings]


def _fit_to_cluster(manifest: Manifest, request: Request) -> None:
    """Name the priority, the registry's secrets and the storage of a cluster."""
    spec = manifest.get("spec", {})
    if (template := pod_template(manifest)) is not None:
        if request.priority_class is not None and pod_name(manifest) != AGENT.name:
            template["spec"]["priorityClassName"] = request.priority_class
        if request.pull_secrets:
            template["spec"]["imagePullSecrets"] = [{"name": name} for name in request.pull_secrets]
    claims = [manifest] if manifest["kind"] == "PersistentVolumeClaim" else spec.get("volumeClaimTemplates", [])
    if request.storage_class is not None:
        for claim in claims:
            claim["spec"]["storageClassName"] = request.storage_class


def _counted(manifests: list[Manifest], config: Config) -> list[Manifest]:
    """Set the number of processes of each kind, and remove manifests of kinds without processes.

    A ScaledObject sets the number of the pods that it scales.
    """
    scaled = {each["spec"]["scaleTargetRef"]["name"] for each in manifests if each["kind"] == "ScaledObject"}
    counts = {name: role.count(config) for name, role in _ROLES.items()}
    made = (find(manifests, "ConfigMap", APP), find(manifests, "ConfigMap", RUN))
    kept = [each for each in manifests if counts.get(pod_name(each), 1) and each not in made]
    for each in kept:
        name = pod_name(each)
        if name not in counts or pod_template(each) is None:
            continue
        if each["metadata"]["name"] in scaled:
            each["spec"].pop("replicas", None)
        else:
            each["spec"]["replicas"] = counts[name]
        set_argument(each, "--shard", f"$(POD)/{counts[name]}")
    return kept


def make_jobs(manifests: list[Manifest]) -> None:
    """Turn the Deployments of processes that end with the run into Jobs.

    A pod that its node or a signal has ended is made again. A learner that fails fails its Job. PodDisruptionBudgets of
    these pods are removed: `maxUnavailable` needs a controller that can be scaled, so it would forbid every eviction.
    """
    for manifest in manifests:
        if manifest["kind"] == "ScaledObject":
            raise ConfigError("--jobs does not work with an overlay that scales Deployments", key="--jobs")
        roles = {container.get("args", [""])[0] for container in containers(manifest)}
        if PARAMETER_SERVER.name in roles:
            raise ConfigError("--jobs does not work with parameter servers (learner.gradients: agents)", key="--jobs")
        if manifest["kind"] == "Deployment" and roles & _ENDS_WITH_THE_RUN:
            _make_job(manifest)
    names = {pod_name(manifest) for manifest in manifests if manifest["kind"] == "Job"}
    manifests[:] = [each for each in manifests if each["kind"] != "PodDisruptionBudget" or pod_name(each) not in names]


def _make_job(manifest: Manifest) -> None:
    count, template = manifest["spec"]["replicas"], manifest["spec"]["template"]
    template["spec"]["restartPolicy"] = "Never"
    lost_node = {"type": "DisruptionTarget", "status": "True"}
    rules: list[dict[str, Any]] = [{"action": "Ignore", "onPodConditions": [lost_node]}]
    for container in containers(manifest):
        container["args"] = ["--once" if word == "--stay" else word for word in container["args"]]
        if container["args"][0] == LEARNER.name:
            codes = [int(ExitCode.FAILED), int(ExitCode.USAGE)]
            named = {"containerName": container["name"], "operator": "In", "values": codes}
            rules.append({"action": "FailJob", "onExitCodes": named})
    manifest["apiVersion"], manifest["kind"] = "batch/v1", "Job"
    manifest["spec"] = {
        "completions": count,
        "parallelism": count,
        "backoffLimit": _BACKOFF_LIMIT,
        "podFailurePolicy": {"rules": rules},
        "template": template,
    }
