"""Command-line arguments of role processes, one definition for all roles, and the place of a learner's rank."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from surreal.base.errors import ConfigError
from surreal.base.system.files import ADDRESS_VARIABLE
from surreal.run.process.roles import AGENT, LEARNER, PARAMETER_SERVER, RLX_SERVER, Role

#: Environment variable with the address of Redis: unlike an argument, `ps` does not show a password in it.
REDIS_VARIABLE = ADDRESS_VARIABLE

DEFAULT_REDIS = "127.0.0.1:6379"

SHOWN_BY_PS = (
    "a password on the command line is shown by `ps` to every user of this machine; put it into a file, and name that "
    "in $SURREAL_REDIS_PASSWORD_FILE"
)
_PASSWORD = re.compile(r"//[^/@]*:[^/@]+@|[?&]password=")


@dataclass(frozen=True)
class RoleArguments:
    """Arguments of a role process; None leaves the choice to the configuration.

    Attributes:
        index: None: the first that no living process of the role has.
        stay: stay when the run has ended, until a signal comes or the run continues.
        once: end immediately in a run that has ended, instead of resuming it.
        place: among a learner's ranks; None if torchrun did not start this process.
        argv: all arguments, as given.
    """

    config: str | None = None
    overrides: tuple[str, ...] = ()
    run: str | None = None
    redis: str | None = None
    run_dir: Path | None = None
    offline: Path | None = None
    index: int | None = 0
    seed: int | None = None
    device: str | None = None
    resume: bool = False
    stay: bool = False
    once: bool = False
    supervised: bool = False
    connect_timeout_s: float = 10.0
    log_level: str | None = None
    debug: bool = False
    place: RankPlace | None = None
    argv: tuple[str, ...] = ()


def shows_password(address: str | None) -> bool:
    """Whether a Redis address contains a password."""
    return address is not None and _PASSWORD.search(address) is not None


def local_folder(text: str) -> Path:
    """Parse the path of a run's folder, which is on this machine.

    Raises:
        argparse.ArgumentTypeError: it is a URL.
    """
    if "://" in text:
        raise argparse.ArgumentTypeError(
            f"{text!r} is a URL, but a run's folder is on this machine; checkpoint.restore and `surreal play` take URLs"
        )
    return Path(text)


def shard_of(text: str) -> tuple[int, int]:
    """Parse number and count of a shard, such as `0/2`; the number may end a name, such as `ps-0/2`.

    Raises:
        argparse.ArgumentTypeError: it is not such a pair.
    """
    name, _, total = text.partition("/")
    number = name.rpartition("-")[2]
    if not (number.isdigit() and total.isdigit() and int(number) < int(total)):
        raise argparse.ArgumentTypeError(f"{text!r} is not I/N with 0 <= I < N, such as 0/2")
    return int(number), int(total)


def index_of(text: str) -> int | None:
    """Parse the number of a process among those of its role; None for `auto`.

    Raises:
        argparse.ArgumentTypeError: it is neither.
    """
    if text == "auto":
        return None
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a number nor auto") from None


def parse(role: Role, argv: Sequence[str], description: str) -> RoleArguments:
    """Parse the arguments of a role process; wrong ones end the process with exit code 2."""
    parser = _parser(role, description)
    parsed = parser.parse_args(argv)
    try:
        place = read_place(os.environ) if role is LEARNER else None
    except ConfigError as error:
        parser.error(str(error))
    if shows_password(parsed.redis):
        sys.stderr.write(f"warning: {SHOWN_BY_PS}\n")
    overrides = list(parsed.set)
    if (ranks := getattr(parsed, "ranks", None) if place is None else place.count) is not None:
        overrides.append(f"learner.ranks={ranks}")
    for key in ("seed", "device", "log_level"):
        if getattr(parsed, key) is not None:
            overrides.append(f"{key}={getattr(parsed, key)}")
    index, shard = parsed.index, getattr(parsed, "shard", None)
    if shard is not None:
        index, servers = shard
        overrides.append(f"parameter_server.servers={servers}")
    return RoleArguments(
        config=parsed.config or parsed.preset,
        overrides=tuple(overrides),
        run=parsed.run,
        redis=parsed.redis or os.environ.get(REDIS_VARIABLE),
        run_dir=parsed.run_dir,
        offline=getattr(parsed, "offline", None),
        index=index,
        seed=parsed.seed,
        device=parsed.device,
        resume=parsed.resume or (place is not None and place.restarts > 0),
        stay=parsed.stay,
        once=parsed.once,
        supervised=parsed.supervised,
        connect_timeout_s=parsed.connect_timeout,
        log_level=parsed.log_level,
        debug=parsed.debug,
        place=place,
        argv=tuple(argv),
    )


def _parser(role: Role, description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"surreal {role.name}", description=description, allow_abbrev=False)
    add = parser.add_argument
    add("preset", nargs="?", metavar="PRESET_OR_FILE", help="configuration; without it, the run's own, from Redis")
    add("--config", metavar="PRESET_OR_FILE", help="the same as PRESET_OR_FILE")
    add("--set", action="append", default=[], metavar="A.B=C", help="override one setting; may be repeated")
    add("--run", help="the run's id, the same for all its processes (default: the configuration's name)")
    add("--redis", help=f"host:port, redis://, rediss:// or unix:// (default: ${REDIS_VARIABLE}, else {DEFAULT_REDIS})")
    add("--run-dir", type=local_folder, help="the run's folder (default: runs/RUN)")
    if role is PARAMETER_SERVER:
        add("--shard", type=shard_of, metavar="I/N", help="be number I, from 0, of N servers that split the model")
    if role is LEARNER:
        add("--ranks", type=int, metavar="N", help="the same as --set learner.ranks=N: N processes that learn together")
        add("--offline", type=Path, metavar="PATH", help="learn from an exported replay, without agents")
    index_help = "number of this process among those of its role, for its name and seed"
    if role in (AGENT, RLX_SERVER):
        add("--index", type=index_of, default=0, metavar="N|auto", help=f"{index_help}; auto: the first that is free")
    else:
        add("--index", type=int, default=0, help=index_help)
    add("--seed", type=int, help="the same as --set seed=N")
    add("--device", choices=("auto", "cpu", "cuda"), help="the same as --set device=...")
    add("--resume", action="store_true", help="continue an existing run")
    add("--stay", action="store_true", help="when the run has ended, stay idle until a signal comes or it continues")
    add("--once", action="store_true", help="end immediately if the run has ended, instead of resuming it")
    add("--connect-timeout", type=float, default=10.0, metavar="S", help="longest wait for Redis at the start, s")
    levels = ("debug", "info", "warning", "error", "critical")
    add("--log-level", type=str.lower, choices=levels, help="the same as --set log_level=...")
    add("--debug", action="store_true", help="show tracebacks")
    add("--supervised", action="store_true", help=argparse.SUPPRESS)
    return parser


#: Address at which ranks on one machine meet.
LOOPBACK = "127.0.0.1"
_NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True)
class RankPlace:
    """The place of a process among a learner's ranks, from torchrun's environment variables."""

    rank: int  #: 0 .. count - 1
    count: int
    local_rank: int = 0  #: among those of this machine; selects the GPU
    restarts: int = 0  #: how often all ranks were restarted

    def variables(self, port: int) -> dict[str, str]:
        """Return the environment variables of a process with this place; ranks meet at a port of this machine."""
        return {
            "RANK": str(self.rank),
            "WORLD_SIZE": str(self.count),
            "LOCAL_RANK": str(self.local_rank),
            "MASTER_ADDR": LOOPBACK,
            "MASTER_PORT": str(port),
        }


def read_place(variables: Mapping[str, str]) -> RankPlace | None:
    """Read the place of this process; None if there are no other ranks.

    Raises:
        ConfigError: a variable is missing or not a number.
    """
    if "RANK" not in variables or variables.get("WORLD_SIZE", "1") == "1":
        return None
    missing = [name for name in _NEEDED if not variables.get(name)]
    if missing:
        raise ConfigError(f"$RANK is set, but not ${missing[0]}; torchrun sets both")
    try:
        place = RankPlace(
            int(variables["RANK"]),
            int(variables["WORLD_SIZE"]),
            int(variables.get("LOCAL_RANK", "0")),
            int(variables.get("TORCHELASTIC_RESTART_COUNT", "0")),
        )
    except ValueError as error:
        raise ConfigError(f"$RANK, $WORLD_SIZE and $LOCAL_RANK must be whole numbers: {error}") from error
    if not 0 <= place.rank < place.count:
        raise ConfigError(f"$RANK is {place.rank}; it must be 0 .. {place.count - 1}, as $WORLD_SIZE is {place.count}")
    return place
