"""The process of `surreal rlx-client`: gymnasium environments that an RLX server's agent drives. No torch, no Redis.

    surreal rlx-client CartPole-v1 --server localhost:7001 --envs 4

It belongs to no run: all it knows of one is the server's address. The token comes from a file or $SURREAL_RLX_TOKEN.
`kill -USR1 PID` opens a window for the first environment, or closes it.
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Sequence
from typing import Any

import gymnasium
import yaml

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
from surreal.rlx.client.transport import parse_address
from surreal.run.process.ending import print_error
from surreal.run.process.interrupts import set_at_signals
from surreal.run.process.liveness.lifeline import follow_parent


def main(argv: Sequence[str] | None = None) -> int:
    """Run environments until their episodes are played or a signal comes; returns the exit code."""
    arguments = _parser().parse_args(argv)
    stop = threading.Event()
    set_at_signals(stop)
    follow_parent()
    setup_logging(arguments.log_level, "rlx-client")
    add_python_path(arguments.python_path)

    def make(render_mode: str | None = "human" if arguments.show else None) -> gymnasium.Env[Any, Any]:
        return make_env(
            arguments.env_id,
            kwargs=dict(arguments.arg),
            wrappers=arguments.wrapper,
            training=not arguments.exploit,
            render_mode=render_mode,
        )

    shown = _Switch(arguments.show)

    def make_first() -> gymnasium.Env[Any, Any]:
        if "rgb_array" not in render_modes(arguments.env_id):
            return make()
        return ShownEnv(make("rgb_array"), lambda: shown.is_on, is_required=arguments.show)

    try:
        options = _options(arguments)
        makers = [make_first, *[make] * (arguments.envs - 1)]
        with at_show_signal(shown.toggle):
            counts = run_envs(makers, options, stop=stop, on_episode=_show if arguments.verbose else None)
        if counts.episodes or not counts.failures:
            _say(_summary(counts))
        for failure in counts.failures[:1]:
            raise failure
    except Exception as error:
        if arguments.debug:
            raise
        print_error(error)
        return 1
    return 0


class _Switch:
    """Return whether the first environment is shown."""

    def __init__(self, is_on: bool) -> None:
        self.is_on = is_on

    def toggle(self) -> None:
        self.is_on = not self.is_on


def _options(arguments: argparse.Namespace) -> DriverOptions:
    return DriverOptions(
        server=arguments.server,
        episodes=arguments.episodes,
        exploit=arguments.exploit,
        seed=arguments.seed,
        attempts=arguments.attempts,
        timeout_s=arguments.timeout,
        token=find_token(arguments.token_file, "--token-file"),
        tls_ca=arguments.tls_ca,
        tls_cert=arguments.tls_cert,
        tls_key=arguments.tls_key,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="surreal rlx-client",
        description="Run gymnasium environments that the agent of an RLX server drives.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("env_id", metavar="ENV_ID", help="registered id, module:id, or module:Class")
    add("--server", type=_address, required=True, metavar="HOST:PORT", help="or rlx://, rlxs:// (TLS), ws://, wss://")
    add("--envs", type=_positive, default=1, metavar="N", help="environments, each with a connection and a thread")
    add("--exploit", action="store_true", help="act as well as the agent can, and learn nothing")
    add("--episodes", type=_positive, metavar="N", help="how many in all; default: until stopped")
    add("--seed", type=int, help="repeatable first episodes; default: new ones each time")
    add("--arg", type=_setting, action="append", default=[], metavar="K=V", help="argument of the environment")
    add("--wrapper", type=_wrapper, action="append", default=[], metavar="W",
        help="wrapper that the server leaves to clients: {name: N, args: {...}}; the innermost first")  # fmt: skip
    add("--python-path", action="append", default=[], metavar="DIR", help="further folder to find environments in")
    add("--show", action="store_true", help="open a window for each environment")
    add("--timeout", type=_seconds, default=60.0, metavar="S", help="longest wait for one answer, s")
    add("--attempts", type=_positive, default=40, metavar="N", help="how often to try to connect before giving up")
    add("--token-file", metavar="FILE", help=f"where the server's token is; default: ${TOKEN_VARIABLE}")
    add("--tls-ca", metavar="FILE", help="check the server's certificate against these; turns TLS on")
    add("--tls-cert", metavar="FILE", help="certificate to show to the server, where it asks for one")
    add("--tls-key", metavar="FILE", help="its private key, if it is in another file")
    add("--verbose", "-v", action="store_true", help="print every episode")
    add("--log-level", type=str.lower, choices=("debug", "info", "warning", "error", "critical"), default="warning")
    add("--debug", action="store_true", help="show tracebacks")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not >= 1")
    return number


def _seconds(text: str) -> float:
    number = float(text)
    if not number > 0:
        raise argparse.ArgumentTypeError(f"{number:g} is not > 0")
    return number


def _address(text: str) -> str:
    try:
        parse_address(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


def _setting(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE, got {text!r}")
    return key, yaml.safe_load(value)


def _wrapper(text: str) -> WrapperSpec:
    try:
        settings = yaml.safe_load(text)
        wrapper = WrapperConfig.model_validate({"name": settings} if isinstance(settings, str) else settings)
    except (yaml.YAMLError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a wrapper: {error}") from error
    return WrapperSpec(wrapper.name or wrapper.class_path or "", wrapper.args, wrapper.training_only)


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
    _say(f"env {end.env_index}: return {end.episode_return:g}, {end.length} steps")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
