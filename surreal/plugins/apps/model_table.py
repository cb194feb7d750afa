"""`surreal model`: the layers of the model that a configuration names, and their parameters."""

from __future__ import annotations

from rich.table import Table

from surreal.config import add_python_path, load_config


def model_table(source: str) -> Table:
    """Build the model for the configuration's environment, and list what it consists of.

    Args:
        source: preset or file.

    Raises:
        ConfigError, EnvError: model or environment cannot be made.
    """
    from surreal.model import LazyModel
    from surreal.run.build.acting import build_model
    from surreal.run.build.environments import build_spaces

    config = load_config(source)
    add_python_path(config.python_path)
    spaces = build_spaces(config)
    model = build_model(config, spaces)
    if isinstance(model, LazyModel) and spaces.obs_spec is not None:
        model.materialize(spaces.obs_spec)
    table = Table(title=f"{config.model.class_path} for {config.env.id}", title_justify="left", box=None)
    for title in ("layer", "kind"):
        table.add_column(title)
    table.add_column("parameters")
    table.add_column("numbers", justify="right")
    total = 0
    for name, layer in model.named_modules():
        own = dict(layer.named_parameters(recurse=False))
        if not own:
            continue
        count = sum(parameter.numel() for parameter in own.values())
        total += count
        shapes = ", ".join(f"{each} {list(parameter.shape)}" for each, parameter in own.items())
        table.add_row(name or "(itself)", type(layer).__name__, shapes, f"{count:,}")
    table.add_section()
    table.add_row("all", "", "", f"{total:,}")
    return table
