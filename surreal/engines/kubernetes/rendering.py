"""`render`: all manifests of a run, from its configuration: `surreal k8s render`.

The manifests are those of k8s/. What a run changes in them are counts, the image, names, memory of Redis, and what its
processes are told; nothing else is made up here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from surreal.config import Config, load_config, preset_path
from surreal.engines.kubernetes.jobs import make_jobs
from surreal.engines.kubernetes.manifest import (
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
)
from surreal.engines.kubernetes.source import Manifest, read_base, read_overlay
from surreal.errors import ConfigError
from surreal.main.process.roles import AGENT, EVAL, LEARNER, PARAMETER_SERVER, RLX_SERVER

#: The ConfigMaps, made anew: the configuration, and what all processes have in their environment.
APP, RUN = "app", "run"
#: Names of pods, and the roles of their processes.
_ROLES = {
    "learner": LEARNER,
    "parameter-server": PARAMETER_SERVER,
    "agent": AGENT,
    "rlx-server": RLX_SERVER,
    "eval": EVAL,
}
_REDIS_PORT = 6379
#: What others are in, or read when they start.
_FIRST = {"Namespace": 0, "ConfigMap": 1}


@dataclass(frozen=True)
class Request:
    """What is to be rendered.

    Attributes:
        source: YAML file or preset.
        overrides: settings that win over it.
        image: of all containers.
        gpu_image: of those that have GPUs; None: the same.
        run: the run's id; None: the configuration's name.
        namespace: one that exists; None: `surreal-RUN`, which comes along.
        agents: how many; None: as the configuration says.
        overlay: of kustomize; None: the base, which needs no kubectl.
        redis: address of a server that is there; None: the run has its own.
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
    address = request.redis or config.redis.address
    if address is None:
        asked += _shards(manifests, config)
    else:
        manifests = _without_redis(manifests, address)
    settings = [*request.overrides, *asked]
    config = load_config(request.source, settings)
    run = request.run or re.sub(r"[^a-z0-9-]+", "-", config.name.lower()).strip("-")
    space = check_namespace(request.namespace or f"surreal-{run}", "--namespace" if request.namespace else "--run")
    for sentence in _missing(config):
        warn(sentence)

    text, variables = _text_of(request.source), _variables(manifests, run, address)
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
            scale(manifest, run, request.agents if pod_name(manifest) == "agent" else None)
        if manifest["kind"] == "StatefulSet" and pod_name(manifest) == "redis":
            set_redis_memory(manifest, config.own_redis_bytes)
    if request.has_jobs:
        make_jobs(manifests)
    return manifests


def _text_of(source: str) -> str:
    """The configuration as its author wrote it."""
    path = Path(source).expanduser()
    return (path if path.is_file() else preset_path(source)).read_text(encoding="utf-8")


def _variables(manifests: list[Manifest], run: str, address: str | None) -> dict[str, str]:
    """The ConfigMap with the environment of all processes: what an overlay has put into it, and this run's."""
    given = find(manifests, "ConfigMap", RUN)
    # The base's own comes out of kustomize; its address is that of the first server of the StatefulSet.
    address = address or f"redis://redis-0.redis:{_REDIS_PORT}"
    return {**({} if given is None else given["data"]), "SURREAL_RUN": run, "SURREAL_REDIS": address}


def _shards(manifests: list[Manifest], config: Config) -> list[str]:
    """Settings that spread the experience over all Redis servers of a run."""
    servers = find(manifests, "StatefulSet", "redis")
    count = 1 if servers is None else int(servers["spec"]["replicas"])
    if count == 1 or config.has_parameter_servers or config.redis.replay_address is not None:
        return []
    return [f"redis.replay_address=[{', '.join(f'redis-{number}.redis:{_REDIS_PORT}' for number in range(count))}]"]


def _without_redis(manifests: list[Manifest], address: str) -> list[Manifest]:
    """Leave out the run's own server, and let its processes reach another one."""
    parts = urlsplit(address if "://" in address else f"redis://{address}")
    if parts.scheme == "unix":
        raise ConfigError(f"--redis is {address}: a pod cannot reach a socket of this machine", key="--redis")
    if "@" in parts.netloc:
        raise ConfigError("--redis holds a user or password; they belong in the Secret surreal-redis", key="--redis")
    if (policy := find(manifests, "NetworkPolicy", "from-run-to-redis")) is not None:
        given = {server.rpartition(":")[2] for server in parts.netloc.split(",") if ":" in server}
        ports = sorted(int(port) for port in given if port.isdigit()) or [_REDIS_PORT]
        policy["spec"]["egress"] = [{"ports": [{"protocol": "TCP", "port": port} for port in ports]}]
    return [each for each in manifests if pod_name(each) != "redis"]


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
