"""Command-line arguments of role processes, one definition for all roles, and the place of a learner's rank."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import typer

from surreal.base.errors import ConfigError
from surreal.base.system.command_line import read_command_line
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


def warn_of_password(address: str | None) -> str | None:
    """Warn about a password that other users of this machine can read in the command line."""
    if address is not None and _PASSWORD.search(address) is not None:
        typer.echo(f"warning: {SHOWN_BY_PS}", err=True)
    return address


def complete_settings(incomplete: str) -> list[tuple[str, str]]:
    """Complete settings in a shell, with their meanings."""
    from surreal.config.reference import setting_names

    return [(f"{name}=", meaning) for name, meaning in setting_names() if name.startswith(incomplete)]


def _local_folder(text: str) -> Path:
    if "://" in text:
        raise typer.BadParameter(
            f"{text!r} is a URL, but a run's folder is on this machine; checkpoint.restore and `surreal play` take URLs"
        )
    return Path(text)


class Shard(NamedTuple):
    """One of the servers that split a model."""

    number: int  #: 0 .. total - 1
    total: int


def _shard(text: str) -> Shard:
    """Parse `0/2`; the number may end a name, such as `ps-0/2`."""
    name, _, total = text.partition("/")
    number = name.rpartition("-")[2]
    if not (number.isdigit() and total.isdigit() and int(number) < int(total)):
        raise typer.BadParameter(f"{text!r} is not I/N with 0 <= I < N, such as 0/2")
    return Shard(int(number), int(total))


def server_address(text: str) -> str:
    """Check the address of an RLX server."""
    from surreal.rlx.client.transport import parse_address

    try:
        parse_address(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    return text


def _index(text: str) -> int | None:
    if text == "auto":
        return None
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is neither a number nor auto") from None


def option(metavar: str | None, text: str, *flags: str, **more: Any) -> Any:
    """Make an option from what its value is called, its help, and its flags if they are not its field's name."""
    return typer.Option(*flags, metavar=metavar, help=text, **more)


# Options that commands share.
SET = option("A.B=C", "Override one setting; may be repeated.", "--set", autocompletion=complete_settings)
RUN_DIR = option("DIR", "The run's folder; default: runs/RUN.", "--run-dir", parser=_local_folder)
OFFLINE = option("PATH", "Learn from an archive or a dataset (a folder, or minari:ID), without agents.", "--offline")
Seed = Annotated[int | None, typer.Option(help="The same as --set seed=N.")]
Device = Annotated[str | None, typer.Option(metavar="DEVICE", help="The same as --set device=...")]
Level = Literal["debug", "info", "warning", "error", "critical"]
LogLevel = Annotated[Level | None, typer.Option(case_sensitive=False, help="The same as --set log_level=...")]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]
_RUN_HELP = "The run's id, the same for all its processes; default: the configuration's name."
_REDIS_HELP = f"host:port, redis://, rediss:// or unix://; default: ${REDIS_VARIABLE}, else {DEFAULT_REDIS}."
_SHARD_HELP = "Number I, from 0, of N servers that split the model."
_RANKS_HELP = "The same as --set learner.ranks=N: N processes that learn together."
_INDEX_HELP = (
    "Number of this process among those of its role, for its name and seed; an agent or RLX server takes auto: the "
    "first that is free."
)
_STAY_HELP = "When the run has ended, stay idle until a signal comes or it continues."
_ONCE_HELP = "End immediately if the run has ended, instead of resuming it."
_CONNECT_HELP = "Longest wait for Redis at the start, s."
#: Options of some roles only.
_ONLY = {"shard": (PARAMETER_SERVER,), "ranks": (LEARNER,), "offline": (LEARNER,)}


@dataclass(frozen=True)
class RoleArguments:
    """Arguments of a role process; None leaves the choice to the configuration."""

    preset: Annotated[
        str | None, typer.Argument(metavar="PRESET_OR_FILE", help="Configuration; default: the run's own, from Redis.")
    ] = None
    config: Annotated[str | None, option("PRESET_OR_FILE", "The same as PRESET_OR_FILE.")] = None
    overrides: Annotated[tuple[str, ...], SET] = ()
    run: Annotated[str | None, option("RUN", _RUN_HELP)] = None
    redis: Annotated[str | None, option("URL", _REDIS_HELP, callback=warn_of_password)] = None
    run_dir: Annotated[Path | None, RUN_DIR] = None
    shard: Annotated[Shard | None, option("I/N", _SHARD_HELP, parser=_shard)] = None
    ranks: Annotated[int | None, option("N", _RANKS_HELP)] = None
    offline: Annotated[str | None, OFFLINE] = None
    #: None: the first that no living process of the role has
    index: Annotated[int | None, option("N", _INDEX_HELP, parser=_index)] = 0
    seed: Seed = None
    device: Device = None
    resume: Annotated[bool, option(None, "Continue an existing run.", "--resume")] = False
    #: stay when the run has ended, until a signal comes or the run continues
    stay: Annotated[bool, option(None, _STAY_HELP, "--stay")] = False
    #: end immediately in a run that has ended, instead of resuming it
    once: Annotated[bool, option(None, _ONCE_HELP, "--once")] = False
    connect_timeout_s: Annotated[float, option("S", _CONNECT_HELP, "--connect-timeout")] = 10.0
    log_level: LogLevel = None
    debug: Debug = False
    supervised: Annotated[bool, typer.Option("--supervised", hidden=True)] = False
    place: RankPlace | None = None  #: among a learner's ranks; None if torchrun did not start this process
    argv: tuple[str, ...] = ()  #: all arguments, as given


T = TypeVar("T", bound=RoleArguments)


def parse(role: Role, argv: Sequence[str] | None) -> RoleArguments:
    """Parse the arguments of a role process; wrong ones end the process with exit code 2."""
    return parse_into(RoleArguments, role, argv)


def parse_into(kind: type[T], role: Role, argv: Sequence[str] | None) -> T:
    """Parse like `parse`, into a subclass for a role with more options."""
    given = tuple(sys.argv[1:] if argv is None else argv)

    def finish(arguments: T) -> T:
        return _with_settings(role, replace(arguments, argv=given))

    return read_command_line(
        kind, given, name=f"surreal {role.name}", text=role.summary, left_out=left_out(role), finish=finish
    )


def left_out(role: Role) -> list[str]:
    """Return the fields of `RoleArguments` that a role does not have."""
    return [name for name, roles in _ONLY.items() if role not in roles]


def _with_settings(role: Role, given: T) -> T:
    """Turn options that set a setting into overrides, and add those of environment variables."""
    try:
        place = read_place(os.environ) if role is LEARNER else None
    except ConfigError as error:
        raise typer.BadParameter(str(error), param_hint="torchrun") from error
    if given.index is None and role not in (AGENT, RLX_SERVER):
        raise typer.BadParameter(f"auto is for agents and RLX servers, not for {role.name}", param_hint="'--index'")
    settings = {
        "learner.ranks": given.ranks if place is None else place.count,
        "seed": given.seed,
        "device": given.device,
        "log_level": given.log_level,
        "parameter_server.servers": None if given.shard is None else given.shard.total,
    }
    overrides = [f"{key}={value}" for key, value in settings.items() if value is not None]
    return replace(
        given,
        config=given.config or given.preset,
        overrides=(*given.overrides, *overrides),
        redis=given.redis or os.environ.get(REDIS_VARIABLE),
        index=given.index if given.shard is None else given.shard.number,
        resume=given.resume or (place is not None and place.restarts > 0),
        place=place,
    )


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
    """Read the place of this process; None if there are no other ranks."""
    if "RANK" not in variables or variables.get("WORLD_SIZE", "1") == "1":
        return None
    if missing := [name for name in _NEEDED if not variables.get(name)]:
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
