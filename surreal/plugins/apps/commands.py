"""`surreal new`, `generate`, `config` and `model`: apps and their settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from surreal.base.errors import ConfigError
from surreal.cli.options import Overrides, Panel, flag
from surreal.run.process.arguments import option

if TYPE_CHECKING:
    from surreal.plugins.apps.creating import Change

config_app = typer.Typer(
    name="config", help="An app's settings: list, explain, show, set and import them.", invoke_without_command=True
)

ConfigFile = Annotated[Path, option("FILE", "The app's settings.", "--config", "-c")]
AlgorithmOption = Annotated[str | None, option("NAME", "pg, a2c, ppo, trpo, dqn, sac, ...", "--algorithm", "-a")]
_OwnFile = Annotated[Path | None, option("FILE", "The app's settings.", "--config", "-c")]
_ENVIRONMENT_HELP = "bandit, gymnasium, an id such as CartPole-v1, ..."
_APP = Path("app.yaml")


def add_to(app: typer.Typer) -> None:
    """Add these commands to the `surreal` command."""
    app.command(rich_help_panel=Panel.TRAIN)(new)
    app.command(rich_help_panel=Panel.TRAIN)(generate)
    app.add_typer(config_app, rich_help_panel=Panel.TRAIN)
    app.command(rich_help_panel=Panel.TRAIN)(model)


def new(
    name: Annotated[Path, typer.Argument(metavar="NAME", help="The app's folder; it must not exist.")],
    algorithm: AlgorithmOption = None,
    environment: Annotated[str, option("NAME", _ENVIRONMENT_HELP, "--environment", "-e")] = "bandit",
) -> None:
    """Make an app that runs at once: a folder with settings and an environment program."""
    from surreal.plugins.apps.creating import new_app

    change = new_app(name, environment, algorithm)
    typer.echo(f"made {name}: {_described(change)}")
    _say_needs(change)
    typer.echo(f"next: cd {name} && surreal run")


def generate(
    algorithm: AlgorithmOption = None,
    environment: Annotated[str | None, option("NAME", _ENVIRONMENT_HELP, "--environment", "-e")] = None,
    config: ConfigFile = _APP,
) -> None:
    """Change an app's environment, or copy its algorithm's files to edit; replaced files are kept."""
    from surreal.plugins.apps.creating import switch_algorithm
    from surreal.plugins.apps.local_copy import copy_algorithm

    if algorithm is None and environment is None:
        raise ConfigError("name what to generate: -a ALGORITHM, -e ENVIRONMENT, or both")
    _import_from(config)
    if environment is not None:
        _switch_environment(config, environment, has_files=True)
    if algorithm is not None:
        change = switch_algorithm(config, algorithm, keeps_settings=True)
        _say_warning(change)
        copied, kept = copy_algorithm(config, is_kept=bool(change.kept))
        for path, module in copied.items():
            typer.echo(f"{path}   copy of {module}")
        typer.echo(f"{config} uses them; {config.parent / 'algorithm' / 'README.md'} explains when each is called")
        _say_kept([*change.kept, *kept])


@config_app.callback()
def config(
    context: typer.Context,
    config: ConfigFile = _APP,
    algorithm: Annotated[
        str | None, option("NAME", "Use this algorithm, or these listed settings.", "--algorithm", "-a")
    ] = None,
    environment: Annotated[
        str | None, option("NAME", "Use this environment's sections.", "--environment", "-e")
    ] = None,
    local_algorithm: Annotated[
        str | None, option("BOOL", "Whether to use the files in algorithm/.", "--local-algorithm", "-l")
    ] = None,
) -> None:
    """Without options, show the app and list the available settings of algorithms, by environment."""
    context.obj = config
    if context.invoked_subcommand is not None:
        return
    if algorithm is None and environment is None and local_algorithm is None:
        _list(config)
        return
    from surreal.plugins.apps.creating import switch_algorithm, switch_local

    _import_from(config)
    if environment is not None:
        _switch_environment(config, environment, has_files=False)
    if algorithm is not None:
        change = switch_algorithm(config, algorithm)
        typer.echo(f"the algorithm's settings are {change.configuration.name}" if change.configuration else "")
        _say_warning(change)
        _say_kept(change.kept)
    if local_algorithm is not None:
        to_local = flag(local_algorithm)
        change = switch_local(config, to_local=to_local)
        typer.echo(f"the algorithm is {'the copy in algorithm/' if to_local else 'the one of Surreal'}")
        _say_kept(change.kept)


@config_app.command()
def explain(
    context: typer.Context,
    key: Annotated[str, typer.Argument(metavar="KEY", help="A setting, such as learner.gamma or learner.clip_range.")],
    config: _OwnFile = None,
) -> None:
    """Explain a setting: its type, default, unit, meaning, and its value in the app."""
    from surreal.plugins.apps.document import read_document
    from surreal.plugins.apps.explaining import explain as find_out

    path = config or context.obj
    _import_from(path)
    for line in find_out(key, read_document(path) if path.exists() or path != _APP else {}).lines():
        typer.echo(line)


@config_app.command(name="set")
def set_(
    context: typer.Context,
    settings: Annotated[
        list[str], typer.Argument(metavar="KEY VALUE ...", help="Settings and YAML values, such as learner.gamma 0.5.")
    ],
    config: _OwnFile = None,
) -> None:
    """Change settings, all or none of them; comments stay, and the earlier file is kept."""
    from surreal.plugins.apps.creating import set_settings

    if len(settings) % 2:
        raise ConfigError(
            f"{settings[-1]} has no value; each key needs one: surreal config set KEY VALUE [KEY VALUE ...]"
        )
    _say_kept(set_settings(config or context.obj, dict(zip(settings[::2], settings[1::2], strict=True))).kept)


@config_app.command()
def show(
    context: typer.Context,
    section: Annotated[str | None, typer.Argument(metavar="SECTION", help="Show only this section or setting.")] = None,
    config: _OwnFile = None,
    overrides: Overrides = None,
) -> None:
    """Show all settings, defaults included."""
    from ruamel.yaml.comments import CommentedMap

    from surreal.config import load_config, to_yaml
    from surreal.plugins.apps.document import get_value, parse_document, to_text

    document = parse_document(
        to_yaml(load_config(config or context.obj, overrides or ()), hide_passwords=True), "app.yaml"
    )
    if section is None:
        typer.echo(to_text(document), nl=False)
        return
    found = get_value(document, section)
    if found is None:
        raise ConfigError(f"{section} is neither a section nor a setting with a value; sections: {', '.join(document)}")
    is_section = isinstance(found, CommentedMap)
    typer.echo(to_text(found) if is_section else found, nl=not is_section)


@config_app.command(name="import")
def import_(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="An app.yaml of RELAAX 1.1.0 or of 2017.")],
    config: _OwnFile = None,
) -> None:
    """Convert an app.yaml of RELAAX; obsolete keys are listed with the reason."""
    from surreal.plugins.apps.importing import import_file

    path = config or context.obj
    result = import_file(file, path)
    typer.echo(f"made {path} with {result.settings} settings of {file}")
    for key, reason in result.left_out:
        typer.echo(f"  {key}: {reason}")
    _say_kept(result.kept)


def model(
    source: Annotated[
        str, typer.Argument(metavar="PRESET_OR_FILE", help="Configuration of the model; default: the app's.")
    ] = "app.yaml",
) -> None:
    """Show the layers of a model and their parameters."""
    from rich.console import Console

    from surreal.plugins.apps.explaining import model_table

    Console(soft_wrap=True).print(model_table(source), highlight=False)


def _list(config: Path) -> None:
    from surreal.plugins.apps.configurations import configurations
    from surreal.plugins.apps.creating import fitting_families
    from surreal.plugins.apps.document import get_value, read_document

    fitting: list[str] = []
    if config.exists() or config != _APP:
        document = read_document(config)
        fitting = fitting_families(document)
        names = {part: get_value(document, key) for part, key in _SHOWN.items()}
        typer.echo(f"{config}: " + ", ".join(f"{part} {name}" for part, name in names.items() if name is not None))
    typer.echo("settings of algorithms, for `surreal config -a NAME`" + (" (* suits this app):" if fitting else ":"))
    for each in configurations():
        mark = "*" if each.family in fitting and each.algorithm else " "
        typer.echo(f"{mark} {each.name:28} {each.title()}")


def _switch_environment(config: Path, environment: str, *, has_files: bool) -> None:
    from surreal.plugins.apps.creating import switch_environment

    change = switch_environment(config, environment, has_files=has_files)
    typer.echo(f"the environment is {_described(change)}")
    if not has_files:
        typer.echo("the program in environment/ is unchanged; `surreal generate -e` also replaces it")
    _say_needs(change)
    _say_kept(change.kept)


#: Summary of an app: the keys of its parts.
_SHOWN = {
    "environment": "env.id",
    "learner": "learner.class",
    "agent": "agent.class",
    "model": "model.class",
    "replay": "replay.class",
}


def _described(change: Change) -> str:
    template, configuration = change.template, change.configuration
    environment = "" if template is None else template.values.get("id") or template.name
    settings = f", with the settings of {configuration.name}" if configuration is not None else ""
    return f"{environment}{settings}"


def _say_needs(change: Change) -> None:
    if change.template is not None and (needs := change.template.needs()):
        typer.echo(f"it needs: {needs}")


def _say_warning(change: Change) -> None:
    if change.warning:
        typer.echo(f"warning: {change.warning}", err=True)


def _say_kept(kept: list[Path]) -> None:
    for path in kept:
        typer.echo(f"kept: {path}")


def _import_from(config: Path) -> None:
    """Make an app's classes importable from its folder."""
    from surreal.config import add_python_path

    add_python_path([str(config.resolve().parent)])
