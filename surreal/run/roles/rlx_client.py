"""The process of `surreal rlx-client`: gymnasium environments that an RLX server's agent drives. No torch, no Redis.

    surreal rlx-client CartPole-v1 --server localhost:7001 --envs 4

It belongs to no run: all it knows of one is the server's address. The token comes from a file or $SURREAL_RLX_TOKEN.
`kill -USR1 PID` opens a window for the first environment, or closes it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import gymnasium
import typer
import yaml

from surreal.base.system.command_line import read_command_line
from surreal.base.system.logs import setup_logging
from surreal.config.classes import add_python_path
from surreal.config.schema.environment import WrapperConfig
from surreal.envs.ids import render_modes
from surreal.envs.make import make_env
from surreal.envs.window import ShownEnv
from surreal.envs.wrappers.named import WrapperSpec
from surreal.rlx.client.gym_driver import DriverCounts, DriverOptions, EpisodeEnd, run_envs
from surreal.rlx.client.options import TOKEN_VARIABLE, find_token
from surreal.rlx.client.training import at_show_signal
from surreal.run.process.arguments import Debug, Level, option, server_address
from surreal.run.process.ending import print_error
from surreal.run.process.interrupts import follow_parent, stop_at_signals
from surreal.run.process.roles import RLX_CLIENT


def _seconds(text: str) -> float:
    number = float(text)
    if not number > 0:
        raise typer.BadParameter(f"{number:g} is not > 0")
    return number


class EnvArgument(NamedTuple):
    """One argument of the environment."""

    name: str
    value: Any


def _setting(text: str) -> EnvArgument:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise typer.BadParameter(f"expected NAME=VALUE, got {text!r}")
    return EnvArgument(key, yaml.safe_load(value))


def _wrapper(text: str) -> WrapperSpec:
    try:
        settings = yaml.safe_load(text)
        wrapper = WrapperConfig.model_validate({"name": settings} if isinstance(settings, str) else settings)
    except (yaml.YAMLError, ValueError) as error:
        raise typer.BadParameter(f"{text!r} is not a wrapper: {error}") from error
    return WrapperSpec(wrapper.name or wrapper.class_path or "", wrapper.args, wrapper.training_only)


_WRAPPER_HELP = "Wrapper that the server leaves to clients: {name: N, args: {...}}; the innermost first."
_PATH_HELP = "Another folder to find environments in; may be repeated."


@dataclass(frozen=True)
class ClientArguments:
    """Arguments of a client process."""

    env_id: Annotated[str, typer.Argument(metavar="ENV_ID", help="Registered id, module:id, or module:Class.")]
    server: Annotated[str, option("HOST:PORT", "Or rlx://, rlxs:// (TLS), ws://, wss://.", parser=server_address)]
    envs: Annotated[int, option("N", "Environments, each with a connection and a thread.", min=1)] = 1
    exploit: Annotated[bool, option(None, "Act as well as the agent can, and learn nothing.", "--exploit")] = False
    episodes: Annotated[int | None, option("N", "Number of all episodes; default: until stopped.", min=1)] = None
    seed: Annotated[int | None, option(None, "Seed of repeatable first episodes; default: new ones each time.")] = None
    kwargs: Annotated[
        tuple[EnvArgument, ...], option("K=V", "Argument of the environment.", "--arg", parser=_setting)
    ] = ()
    wrappers: Annotated[tuple[WrapperSpec, ...], option("W", _WRAPPER_HELP, "--wrapper", parser=_wrapper)] = ()
    python_path: Annotated[tuple[str, ...], option("DIR", _PATH_HELP, "--python-path")] = ()
    show: Annotated[bool, option(None, "Open a window for each environment.", "--show")] = False
    timeout_s: Annotated[float, option("S", "Longest wait for one answer, s.", "--timeout", parser=_seconds)] = 60.0
    attempts: Annotated[int, option("N", "Number of attempts to connect before giving up.", min=1)] = 40
    token_file: Annotated[str | None, option("FILE", f"File with the server's token; default: ${TOKEN_VARIABLE}.")] = (
        None
    )
    tls_ca: Annotated[str | None, option("FILE", "Check the server's certificate against these; turns TLS on.")] = None
    tls_cert: Annotated[str | None, option("FILE", "Certificate to show to the server, if it asks for one.")] = None
    tls_key: Annotated[str | None, option("FILE", "Its private key, if it is in another file.")] = None
    verbose: Annotated[bool, option(None, "Print every episode.", "--verbose", "-v")] = False
    log_level: Annotated[Level, option(None, "Least severe level that is shown.", case_sensitive=False)] = "warning"
    debug: Debug = False


def main(argv: Sequence[str] | None = None) -> int:
    """Run environments until their episodes are played or a signal comes; returns the exit code."""
    given = sys.argv[1:] if argv is None else argv
    arguments = read_command_line(ClientArguments, given, name="surreal rlx-client", text=RLX_CLIENT.summary)
    stop = stop_at_signals()
    follow_parent()
    setup_logging(arguments.log_level, "rlx-client")
    add_python_path(arguments.python_path)

    def make(render_mode: str | None = "human" if arguments.show else None) -> gymnasium.Env[Any, Any]:
        return make_env(
            arguments.env_id,
            kwargs=dict(arguments.kwargs),
            wrappers=arguments.wrappers,
            training=not arguments.exploit,
            render_mode=render_mode,
        )

    is_shown = arguments.show

    def toggle() -> None:
        nonlocal is_shown
        is_shown = not is_shown

    def make_first() -> gymnasium.Env[Any, Any]:
        if "rgb_array" not in render_modes(arguments.env_id):
            return make()
        return ShownEnv(make("rgb_array"), lambda: is_shown, is_required=arguments.show)

    try:
        options = _options(arguments)
        makers = [make_first, *[make] * (arguments.envs - 1)]
        with at_show_signal(toggle):
            counts = run_envs(makers, options, stop=stop, on_episode=_show if arguments.verbose else None)
        if counts.episodes or not counts.failures:
            typer.echo(_summary(counts))
        for failure in counts.failures[:1]:
            raise failure
    except Exception as error:
        if arguments.debug:
            raise
        print_error(error)
        return 1
    return 0


def _options(arguments: ClientArguments) -> DriverOptions:
    return DriverOptions(
        server=arguments.server,
        episodes=arguments.episodes,
        exploit=arguments.exploit,
        seed=arguments.seed,
        attempts=arguments.attempts,
        timeout_s=arguments.timeout_s,
        token=find_token(arguments.token_file, "--token-file"),
        tls_ca=arguments.tls_ca,
        tls_cert=arguments.tls_cert,
        tls_key=arguments.tls_key,
    )


def _summary(counts: DriverCounts) -> str:
    ends = counts.episodes
    if not ends:
        return f"no whole episode in {counts.duration_s:.1f} s"
    steps = sum(end.length for end in ends)
    last = ends[-100:]
    mean = sum(end.episode_return for end in last) / len(last)
    rate = steps / max(counts.duration_s, 1e-9)
    return f"{len(ends)} episodes, {steps} steps at {rate:.0f}/s, mean return of the last {len(last)}: {mean:g}"


def _show(end: EpisodeEnd) -> None:
    typer.echo(f"env {end.env_index}: return {end.episode_return:g}, {end.length} steps")


if __name__ == "__main__":
    sys.exit(main())
