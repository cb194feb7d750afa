"""Build the objects of an RLX server from a configuration."""

from __future__ import annotations

import ssl
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import surreal
from surreal.base.errors import ConfigError
from surreal.config import Config
from surreal.distributed.connection.client import RedisClient
from surreal.envs import make_env
from surreal.rlx.client.options import find_token
from surreal.rlx.pool.pool import RlxEnvPool
from surreal.rlx.pool.states import RewardReader, StateReader
from surreal.rlx.server.admission import Admission
from surreal.rlx.server.metrics import MetricSink
from surreal.rlx.server.settings import ServerSettings, load_tls, message_limits
from surreal.rlx.server.tokens import ClientTokens
from surreal.run.build.environments import EnvSpaces, client_specs, explicit_spaces, remote_wrappers, value_limits


@dataclass(frozen=True)
class ServerOptions:
    """Options of one process in addition to the configuration."""

    is_exploiting: bool = False
    reuses_port: bool = False
    owner: str = ""  #: whose server it is; those of one owner share a port


def port_owner(client: RedisClient) -> str:
    """Name a run so that no other on this machine is called the same."""
    return f"run {client.run} (Redis at {client.address})"


def client_spaces(config: Config) -> EnvSpaces:
    """Return the spaces as clients know them: with the wrappers that they apply, frames not stacked."""
    if (given := explicit_spaces(config.env)) is not None:
        return given
    with closing(make_env(config.env.id, kwargs=config.env.kwargs, wrappers=client_specs(config))) as env:
        return EnvSpaces(env.observation_space, env.action_space)


def build_rlx_pool(config: Config, options: ServerOptions) -> RlxEnvPool:
    """Make the pool whose environments are sessions."""
    spaces, learns = client_spaces(config), not options.is_exploiting
    return RlxEnvPool(
        spaces.action,
        spaces.observation,
        wrappers=remote_wrappers(config, spaces, training=learns),
        frame_stack=config.env.frame_stack,
        gather_window_s=config.rlx.gather_window_s,
        max_wait_s=None if config.rlx.max_wait_ms is None else config.rlx.max_wait_ms / 1000,
        gather_max=config.rlx.gather_max,
        limits=value_limits(config),
        explore=learns,
        record=learns,
        interventions=config.env.has_interventions,
    )


def build_server_settings(
    config: Config, options: ServerOptions, on_metric: MetricSink | None, reader: StateReader | None = None
) -> ServerSettings:
    """Collect the server's settings."""
    rlx = config.rlx
    return ServerSettings(
        host=rlx.host,
        port=rlx.port,
        reuses_port=options.reuses_port or rlx.servers > 1,
        owner=options.owner,
        timeout_s=rlx.timeout_s,
        idle_timeout_s=rlx.idle_timeout_s,
        token=find_token(rlx.token_file, "rlx.token_file", source=config.source_of("rlx.token_file")),
        tokens=_load_tokens(config),
        origins=tuple(rlx.origins),
        limits=message_limits(reader, rlx.max_message, rlx.max_items, rlx.max_depth),
        admission=Admission(rlx.max_sessions, rlx.memory_reserve),
        max_connection_sessions=rlx.max_connection_sessions,
        rewards=RewardReader(rlx.reward_weights, rlx.largest_reward),
        is_exploiting=options.is_exploiting,
        max_amend_s=rlx.max_amend_s,
        tls=_load_tls(config),
        static_dir=demo_folder() if rlx.demo or rlx.pages else None,
        pages_dir=pages_folder(config),
        on_metric=on_metric,
    )


def _load_tokens(config: Config) -> ClientTokens | None:
    try:
        return None if config.rlx.tokens is None else ClientTokens(Path(config.rlx.tokens))
    except ValueError as error:
        raise config.refusal("rlx.tokens", str(error)) from error


def _load_tls(config: Config) -> ssl.SSLContext | None:
    rlx = config.rlx
    if rlx.tls_cert is None:
        return None
    authority = None if rlx.tls_ca is None else Path(rlx.tls_ca)
    return load_tls(Path(rlx.tls_cert), Path(rlx.tls_key or rlx.tls_cert), authority)


def pages_folder(config: Config) -> Path | None:
    """Return the folder of the user's pages."""
    if config.rlx.pages is None:
        return None
    folder = Path(config.rlx.pages)
    if not (folder / "index.html").is_file():
        raise config.refusal("rlx.pages", f"rlx.pages is {folder}, which has no index.html")
    return folder


def demo_folder() -> Path:
    """Find the JavaScript client and its example: inside the package, or next to it in a checkout."""
    package = Path(surreal.__file__).resolve().parent
    for folder in (package / "rlx" / "demo", package.parent / "clients" / "js"):
        if (folder / "example" / "index.html").exists():
            return folder
    raise ConfigError("the example page was not installed; it is in clients/js of the source", key="rlx.demo")
