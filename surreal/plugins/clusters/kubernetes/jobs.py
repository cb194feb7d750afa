"""Jobs in place of Deployments, for a run that ends: `surreal k8s render --jobs`."""

from __future__ import annotations

from typing import Any

from surreal.base.errors import ConfigError
from surreal.plugins.clusters.kubernetes.manifest import containers, pod_name
from surreal.plugins.clusters.kubernetes.source import Manifest
from surreal.run.process.ending import ExitCode
from surreal.run.process.roles import AGENT, EVAL, LEARNER, PARAMETER_SERVER, RLX_SERVER

#: Pods that fail are made again so often, after 10, 20, 40, ... 360 s.
_BACKOFF_LIMIT = 50
_ENDS_WITH_THE_RUN = {role.name for role in (AGENT, EVAL, LEARNER, RLX_SERVER)}


def make_jobs(manifests: list[Manifest]) -> None:
    """Turn the Deployments of processes that end with the run into Jobs.

    A pod that its node or a signal has ended is made again. A learner that fails fails its Job. PodDisruptionBudgets of
    these pods are removed: `maxUnavailable` needs a controller that can be scaled, so it would forbid every eviction.

    Raises:
        ConfigError: they are scaled, or the run has parameter servers.
    """
    for manifest in manifests:
        if manifest["kind"] == "ScaledObject":
            raise ConfigError("--jobs does not go with an overlay that scales Deployments", key="--jobs")
        roles = {container.get("args", [""])[0] for container in containers(manifest)}
        if PARAMETER_SERVER.name in roles:
            raise ConfigError("--jobs does not go with parameter servers (learner.gradients: agents)", key="--jobs")
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
