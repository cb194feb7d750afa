"""`surreal replay info | export | import | convert`: look at a run's replay, write it into files, and read it back."""

from __future__ import annotations

import json
import os
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from surreal.base.errors import ConfigError
from surreal.cli.options import RunDir, RunName, run_names
from surreal.run.process.arguments import option

if TYPE_CHECKING:
    from surreal.distributed.connection.client import RedisClient
    from surreal.distributed.experience.shards import ReplayShards
    from surreal.replay.stream.info import ReplayInfo

replay_app = typer.Typer(
    name="replay", help="Look at a run's replay, export it to files, and import it.", no_args_is_help=True
)

RedisOption = Annotated[
    str | None,
    option(
        "URL",
        "Replay server, or several in quotes; default: $SURREAL_REDIS, else the address in the run's folder.",
        "--redis",
    ),
]
Shards = Annotated[
    int | None, option(None, "Shards of the replay; default: as in the run, else one for each server.", min=1)
]
Lookahead = Annotated[
    int, option(None, "Steps of a dataset repeated for n-step returns, as sender.lookahead.", min=0, max=1000)
]
Env = Annotated[
    str | None, option("ID", "For minari:ID: the environment with the spaces; default: the run's.", "--env")
]


@replay_app.command()
def info(
    run: RunName = None,
    redis: RedisOption = None,
    run_dir: RunDir = None,
    shards: Shards = None,
    as_json: Annotated[bool, option(None, "Print one JSON object.", "--json")] = False,
) -> None:
    """Show the contents of a run's replay."""
    from surreal.replay.stream.info import replay_info

    with ExitStack() as stack:
        replay = _find(stack, run, redis, run_dir, shards)
        found = [
            stream.client.retry(partial(replay_info, replay, stream.shard), what="look at the replay", timeout_s=5.0)
            for stream in replay.streams()
        ]
    if not any(shard.epoch for shard in found):
        raise ConfigError(f"Redis at {replay.address} holds no replay of run {replay.run!r}", key="RUN")
    for shard in found:
        if as_json:
            typer.echo(json.dumps(shard.to_json()))
        else:
            _print_info(shard, Console())


@replay_app.command(name="export")
def export(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run.", autocompletion=run_names)],
    path: Annotated[Path, typer.Argument(metavar="PATH", help="Folder of the new archive, or minari:ID; it is new.")],
    redis: RedisOption = None,
    run_dir: RunDir = None,
    shards: Shards = None,
    file_format: Annotated[str, option("FORMAT", "arrow (Arrow IPC, fast), or parquet.", "--format")] = "arrow",
    env: Env = None,
) -> None:
    """Write the current content of a run's replay into files; the run may continue."""
    from surreal.replay.archive import export_replay
    from surreal.replay.archive.minari_import import PREFIX
    from surreal.run.process import registry

    with ExitStack() as stack:
        replay = _find(stack, run, redis, run_dir, shards)
        if str(path).startswith(PREFIX):
            if env is None:
                client = replay.clients[0]
                env = client.retry(lambda: registry.stored_config(client, ()), what="look at the run").env.id
            folder = Path(stack.enter_context(TemporaryDirectory())) / "archive"
            export_replay(replay, folder)
            _write_dataset(folder, str(path), _spaces_of(env))
            return
        manifest = export_replay(replay, path, file_format=file_format)
    size = sum(file.bytes for file in manifest.files)
    typer.echo(f"{manifest.steps:,} steps in {manifest.chunks:,} chunks, {size:,} bytes, in {path}")
    if manifest.evicted_chunks or manifest.refused_chunks:
        typer.echo(
            f"left out: {manifest.evicted_chunks} chunks evicted meanwhile, {manifest.refused_chunks} unreadable"
        )


@replay_app.command(name="import")
def import_(
    source: Annotated[
        str, typer.Argument(metavar="PATH", help="Folder of an archive, or of a dataset of Minari; or minari:ID.")
    ],
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run, new or not.")],
    redis: RedisOption = None,
    run_dir: RunDir = None,
    shards: Shards = None,
    timeout: Annotated[float, option("S", "Longest wait for room in a full replay.", min=0.0)] = 60.0,
    lookahead: Lookahead = 0,
) -> None:
    """Import an archive into a run's replay, each chunk once; repeat it to continue after an interruption."""
    from surreal.replay.archive import import_replay
    from surreal.replay.archive.minari_import import open_archive
    from surreal.run.process.arguments import DEFAULT_REDIS
    from surreal.run.process.finding import make_client
    from surreal.run.process.run_folder import RUNS_FOLDER, RunFolder

    with ExitStack() as stack:
        found = RunFolder(run_dir or RUNS_FOLDER / run).read_address()  # the run may not exist yet
        named = _split(redis) or [DEFAULT_REDIS if found is None else found[0]]
        clients = [stack.enter_context(make_client(address, run)) for address in named]
        for client in clients:
            client.check_server(timeout_s=5.0)
        archive = stack.enter_context(open_archive(source, lookahead=lookahead))
        result = import_replay(_shards(stack, clients, shards), archive.path, timeout_s=timeout)
    typer.echo(f"{result.steps:,} steps in {result.chunks:,} chunks went into run {run}")
    if result.known_chunks:
        typer.echo(f"{result.known_chunks:,} chunks were there already")


@replay_app.command()
def convert(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="minari:ID or a dataset's folder; or an archive, with --env.")
    ],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="Folder of the new archive; or a new minari:ID.")],
    env: Env = None,
    lookahead: Lookahead = 0,
) -> None:
    """Make an archive of a dataset of Minari, for --offline, or a dataset of an archive."""
    from surreal.replay.archive.minari_import import convert_dataset, is_dataset

    if is_dataset(source):
        manifest = convert_dataset(source, Path(target), lookahead=lookahead)
        typer.echo(f"{manifest.steps:,} steps in {manifest.chunks:,} chunks, in {target}")
    elif env is None:
        raise ConfigError("an archive does not know its environment's spaces: name it", key="--env")
    else:
        _write_dataset(Path(source), target, _spaces_of(env))


def _write_dataset(archive: Path, target: str, spaces: tuple[Any, Any]) -> None:
    from surreal.plugins.recorded.minari_export import export_dataset
    from surreal.replay.archive import ReplayArchive

    written = export_dataset(ReplayArchive(archive), target, *spaces)
    typer.echo(f"{written.steps:,} steps in {written.episodes:,} episodes, in {written.path}")
    if written.cut:
        typer.echo(f"{written.cut:,} of them end where the recording does, and count as truncated")


def _spaces_of(env_id: str) -> tuple[Any, Any]:
    """Make an environment to ask for its spaces, of observations and of actions."""
    from surreal.envs import make_env

    with closing(make_env(env_id)) as made:
        return made.observation_space, made.action_space


def _find(
    stack: ExitStack, run: str | None, addresses: str | None, run_dir: Path | None, num_shards: int | None
) -> ReplayShards:
    """Find the replay of an existing run, on its server or on the named ones."""
    from surreal.run.process.finding import find_run

    clients: list[RedisClient] = []
    named: list[str | None] = [*_split(addresses)]
    for address in named or [None]:
        client = find_run(run, address=address, run_dir=run_dir, must_be_known=False)
        clients.append(stack.enter_context(client))
        run = client.run
    return _shards(stack, clients, num_shards)


def _shards(stack: ExitStack, clients: list[RedisClient], num_shards: int | None) -> ReplayShards:
    from surreal.distributed.experience.shards import ReplayShards
    from surreal.run.process import registry

    if num_shards is None:
        with suppress(ConfigError):  # a server of experience alone does not know it
            config = clients[0].retry(lambda: registry.stored_config(clients[0], ()), what="look at the run")
            num_shards = max(config.num_shards, len(clients))
    try:
        return stack.enter_context(closing(ReplayShards(clients, num_shards)))
    except ValueError as error:
        raise ConfigError(str(error), key="--shards") from None


def _split(addresses: str | None) -> list[str]:
    from surreal.run.process.arguments import REDIS_VARIABLE

    return (addresses or os.environ.get(REDIS_VARIABLE) or "").split()


def _print_info(info: ReplayInfo, console: Console) -> None:
    console.print(f"{info.run}, shard {info.shard}", markup=False, highlight=False)
    bound = "no bound" if info.max_bytes is None else f"{info.live_bytes / max(info.max_bytes, 1):.0%} of its bound"
    ages = "none" if info.oldest_age_s is None else f"{info.oldest_age_s:.0f} s ago to {info.newest_age_s:.0f} s ago"
    rows = [
        ("env steps", f"{info.steps:,} of the run, {info.live_steps:,} there"),
        ("chunks", f"{info.chunks:,}, from {ages}"),
        ("bytes", f"{info.live_bytes:,} ({bound}), {info.bytes_per_transition:,.1f} per transition"),
        ("samples", f"{info.samples:,}"),
        ("owner", info.owner or "none"),
        ("epoch", info.epoch),
        ("mode", info.mode or "not fixed yet"),
    ]
    contract = info.contract or {}
    for leaf in contract.get("obs", {}).get("leaves", []):
        rows.append((f"obs {leaf['name']}".rstrip(), f"{leaf['shape']} {leaf['dtype']}"))
    if contract:
        action = contract["action"]
        rows.append(("action", f"{action['shape']} {action['dtype']}"))
        rows += [(f"extra {extra['name']}", f"{extra['shape']} {extra['dtype']}") for extra in contract["extras"]]
        options = ", ".join(
            f"{name} {contract[name]}" for name in ("lookahead", "stack", "compression") if contract.get(name)
        )
        rows.append(("stream", options or "single frames, no lookahead"))
    table = Table(show_header=False, box=None)
    for row in rows:
        table.add_row(*row)
    console.print(table, highlight=False)
