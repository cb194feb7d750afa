"""`render`: all manifests of a run, from its configuration: `surreal k8s render`.

The manifests are those of k8s/. What a run changes in them are counts, the image, names, memory of Redis, and what its
processes are told; nothing else is made up here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from surreal.base.errors import ConfigError
from surreal.config import Config, load_config, preset_path
from surreal.plugins.clusters.kubernetes.jobs import make_jobs
from surreal.plugins.clusters.kubernetes.manifest import (
    add_settings,
    check_namespace,
    checksum_of,
    config_map,
    find,
    pod_name,
    pod_template,
    put_into,
    scale,
    set_argument,
    set_image,
    set_redis_memory,
    use_s3,
)
from surreal.plugins.clusters.kubernetes.redis import own_address, own_shards, trust_file, use_other, use_tls
from surreal.plugins.clusters.kubernetes.source import Manifest, read_base, read_overlay
from surreal.run.process.roles import AGENT, EVAL, LEARNER, PARAMETER_SERVER, RLX_SERVER

#: The ConfigMaps, made again: the configuration, and what all processes have in their environment.
APP, RUN = "app", "run"
#: Names of pods, and the roles of their processes.
_ROLES = {
    "learner": LEARNER,
    "parameter-server": PARAMETER_SERVER,
    "agent": AGENT,
    "rlx-server": RLX_SERVER,
    "eval": EVAL,
}
#: What others are in, or read when they start.
_FIRST = {"Namespace": 0, "ConfigMap": 1}


@dataclass(frozen=True)
class Request:
    """What is to be rendered.

    Attributes:
        source: YAML file or preset.
        overrides: settings that win over it.
        image: image of all containers.
        gpu_image: image of the containers with GPUs; None: the same.
        run: the run's id; None: the configuration's name.
        namespace: one that exists; None: `surreal-RUN`, which comes along.
        agents: how many; None: as the configuration says.
        overlay: overlay of kustomize; None: the base, which needs no kubectl.
        redis: address of a server that is there; None: the run has its own.
        redis_user: as whom all processes come there; None: each as its own user.
        redis_ca: PEM file with the authority of its certificate; None: one that the image trusts.
        s3_endpoint: URL of an S3 service other than Amazon's; None: Amazon's.
        prometheus: URL of the Prometheus that scaling asks; None: as the overlay says.
        has_tls: whether the run's own Redis encrypts connections.
        has_jobs: whether processes end with the run, as Jobs; otherwise they stay, as Deployments.
    """

    source: str
    image: str
    overrides: tuple[str, ...] = ()
    gpu_image: str | None = None
    run: str | None = None
    namespace: str | None = None
    agents: int | None = None
    overlay: str | None = None
    redis: str | None = None
    redis_user: str | None = None
    redis_ca: Path | None = None
    s3_endpoint: str | None = None
    prometheus: str | None = None
    has_tls: bool = False
    has_jobs: bool = False


def render(request: Request, warn: Callable[[str], object]) -> list[Manifest]:
    """Make the manifests of a run, in the order in which they are to be applied.

    Args:
        request: what is asked for.
        warn: told what the run will not have.

    Raises:
        ConfigError: the configuration, a name or an address makes no sense; or an overlay cannot be built.
    """
    asked = [] if request.agents is None else [f"agent.count={request.agents}"]
    config = load_config(request.source, [*request.overrides, *asked])
    manifests = read_base() if request.overlay is None else read_overlay(request.overlay)
    variables = _variables(manifests)
    if request.redis or config.redis.address:
        manifests, found = _with_other_redis(manifests, request, request.redis or str(config.redis.address))
    else:
        asked += own_shards(manifests, config, has_tls=request.has_tls)
        found = _with_own_redis(manifests, request)
    settings = [*request.overrides, *asked]
    config = load_config(request.source, settings)
    run = request.run or re.sub(r"[^a-z0-9-]+", "-", config.name.lower()).strip("-")
    space = check_namespace(request.namespace or f"surreal-{run}", "--namespace" if request.namespace else "--run")
    for sentence in _missing(config):
        warn(sentence)

    if request.s3_endpoint is not None:
        variables |= use_s3(manifests, request.s3_endpoint)
    text = _text_of(request.source)
    variables |= {"SURREAL_RUN": run, **found}
    manifests = [*_counted(manifests, config), config_map(APP, {"app.yaml": text}), config_map(RUN, variables)]
    if request.namespace is not None:
        manifests = [each for each in manifests if each["kind"] != "Namespace"]
    manifests.sort(key=lambda each: _FIRST.get(each["kind"], len(_FIRST)))
    checksum = checksum_of(text, *variables.values())
    for manifest in manifests:
        put_into(manifest, space, run, checksum)
        set_image(manifest, request.image, request.gpu_image or request.image)
        add_settings(manifest, settings)
        if manifest["kind"] == "ScaledObject":
            most = request.agents if pod_name(manifest) == "agent" else None
            scale(manifest, space, run, most=most, prometheus=request.prometheus)
        if manifest["kind"] == "StatefulSet" and pod_name(manifest) == "redis":
            set_redis_memory(manifest, config.own_redis_bytes)
    if request.has_jobs:
        make_jobs(manifests)
    return manifests


def _with_own_redis(manifests: list[Manifest], request: Request) -> dict[str, str]:
    """Prepare the run's own Redis; returns what processes need in their environment to reach it."""
    if request.redis_user is not None or request.redis_ca is not None:
        raise ConfigError("--redis-user and --redis-ca are for a Redis that exists: name it with --redis")
    found = use_tls(manifests) if request.has_tls else {}
    return {"SURREAL_REDIS": own_address(has_tls=request.has_tls), **found}


def _with_other_redis(
    manifests: list[Manifest], request: Request, address: str
) -> tuple[list[Manifest], dict[str, str]]:
    """Use a Redis that exists; returns the manifests, and what processes need in their environment to reach it."""
    if request.has_tls:
        raise ConfigError("--tls is for the run's own Redis; another one has it with --redis rediss://HOST:PORT")
    manifests = use_other(manifests, address, request.redis_user)
    found = {} if request.redis_ca is None else trust_file(manifests, request.redis_ca, address)
    return manifests, {"SURREAL_REDIS": address, **found}


def _text_of(source: str) -> str:
    """The configuration as its author wrote it."""
    path = Path(source).expanduser()
    return (path if path.is_file() else preset_path(source)).read_text(encoding="utf-8")


def _variables(manifests: list[Manifest]) -> dict[str, str]:
    """What an overlay has put into the environment of all processes."""
    given = find(manifests, "ConfigMap", RUN)
    return {} if given is None else dict(given["data"])


def _counted(manifests: list[Manifest], config: Config) -> list[Manifest]:
    """Have as many processes of each kind as the configuration says, and leave out what there are none of.

    How many there are of what a ScaledObject scales is its business.
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


def _missing(config: Config) -> list[str]:
    """What of a run is only there where a launcher starts it."""
    found = []
    for key, count in (("rlx.clients", config.rlx.clients), ("environment.n_environments", config.environment.count)):
        if count:
            found.append(f"{key} is {count}: environments that connect are elsewhere, none is rendered")
    return found
