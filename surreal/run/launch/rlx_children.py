"""The arguments of a run's RLX servers, RLX clients and environment programs, and the port that they share."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from surreal.base.errors import ConfigError
from surreal.config import Config
from surreal.rlx.protocol.errors import RlxServerError
from surreal.rlx.server.port_claim import PortClaim
from surreal.run.build.environments import client_specs
from surreal.run.process.roles import ENVIRONMENT, RLX_CLIENT, RLX_SERVER, Role


def rlx_arguments(
    config: Config,
    common: Sequence[str],
    stack: ExitStack,
    say: Callable[[str], object],
    *,
    owner: str,
    config_path: Path,
) -> Mapping[Role, Callable[[int], list[str]]]:
    """Take a port, and make the arguments of RLX servers, clients and environment programs by their numbers."""
    port = _reserve_port(config, stack, owner)
    url = server_url(config, port)
    say(f"environments connect to {url}")
    if config.rlx.demo:
        say(f"example page at http{url.removeprefix('rlx')}/example/")
    if config.rlx.pages is not None:
        say(f"page at http{url.removeprefix('rlx')}/app/")

    def server(number: int) -> list[str]:
        return [*common, "--index", str(config.agent.count + number), "--port", str(port), "--reuse-port"]

    return {
        RLX_SERVER: server,
        RLX_CLIENT: lambda number: _client_arguments(config, url, number),
        ENVIRONMENT: lambda number: environment_arguments(config, str(config_path), url, number),
    }


def environment_arguments(config: Config, config_path: str, url: str, number: int) -> list[str]:
    """Make the arguments of environment program `number`; only the first may exploit and show itself."""
    program = config.environment
    arguments = ["--command", str(program.run), "--folder", str(program.folder), "--config", config_path]
    arguments += ["--rlx-server", url]
    if number == 0:
        arguments += ["--exploit"] * program.exploit + ["--show-ui"] * program.show_ui
    if config.rlx.token_file is not None:
        arguments += ["--token-file", config.rlx.token_file]
    return arguments


def _client_arguments(config: Config, url: str, number: int) -> list[str]:
    arguments = [config.env.id, "--server", url, "--envs", str(config.rlx.client_envs)]
    arguments += ["--seed", str(config.seed + number * config.rlx.client_envs)]
    arguments += [part for key, value in config.env.kwargs.items() for part in ("--arg", f"{key}={json.dumps(value)}")]
    arguments += [part for folder in config.python_path for part in ("--python-path", folder)]
    for spec in client_specs(config):
        settings = {"name": spec.name, "args": dict(spec.args), "training_only": spec.training_only}
        arguments += ["--wrapper", json.dumps(settings)]
    if config.rlx.tls_cert is not None:
        arguments += ["--tls-ca", config.rlx.tls_cert]
    if config.rlx.token_file is not None:
        arguments += ["--token-file", config.rlx.token_file]
    return arguments


def _reserve_port(config: Config, stack: ExitStack, owner: str) -> int:
    """Bind the port without listening, so that this run keeps it; the servers share it, also after restarts."""
    host, port = config.rlx.host, config.rlx.port
    try:
        if port:
            stack.enter_context(PortClaim(host, port, owner))
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        holder = socket.socket(family, kind, protocol)
        stack.callback(holder.close)
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind(address)
        bound = int(holder.getsockname()[1])
        if not port:
            stack.enter_context(PortClaim(host, bound, owner, is_bound=True))
    except (OSError, RlxServerError) as error:
        source = config.source_of("rlx.port")
        raise ConfigError(f"rlx.port {port} of {host} cannot be had: {error}", key="rlx.port", source=source) from error
    return bound


def server_url(config: Config, port: int) -> str:
    """Return the address at which programs on this machine find the servers of a run."""
    own = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - it is compared with
    host = own.get(config.rlx.host, config.rlx.host)
    scheme = "rlx" if config.rlx.tls_cert is None else "rlxs"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
