"""`surreal generate -a`: copies an algorithm's files into an app's folder for editing, and switches to them and back.

The copies are unchanged files of this package. They import shared modules from it, but import each other in place of
the originals, so that an edit in any of them takes effect.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml.comments import CommentedMap

from surreal import __version__
from surreal.base.errors import ConfigError
from surreal.config import import_class
from surreal.plugins.apps.document import back_up, get_value, read_document, save_text, set_value, to_text
from surreal.plugins.apps.environments import TEMPLATES

#: Folder of the copies in an app, which is also their package.
FOLDER = "algorithm"
_PARTS = ("agent", "learner", "model")
#: Loss functions, which learners share and users edit: they are also copied.
_LOSSES = re.compile(r"surreal\.learner\.(?:\w+\.)?\w*losses")
_CLASSES = ("surreal.agent", "surreal.learner", "surreal.model")


def copy_algorithm(config: Path, *, is_kept: bool = False) -> tuple[dict[Path, str], list[Path]]:
    """Copy the files of an app's algorithm into its folder, and make app.yaml use them.

    Returns the copies with the modules that were copied, and the paths of earlier files.
    """
    document = read_document(config)
    use_local(document, config.parent, is_local=False, only_if_there=True)
    modules: dict[str, str] = {}
    for part in _PARTS:
        modules.setdefault(_class_of(document, part).__module__, part)
    for name in list(modules):
        for node in ast.walk(ast.parse(inspect.getsource(sys.modules[name]))):
            if isinstance(node, ast.ImportFrom) and _LOSSES.fullmatch(node.module or ""):
                modules.setdefault(str(node.module), str(node.module).rpartition(".")[2])
    folder = config.parent / FOLDER
    kept = [back_up(folder)]
    folder.mkdir(parents=True, exist_ok=True)
    copied: dict[Path, str] = {}
    for module, name in modules.items():
        source = _redirected(inspect.getsource(importlib.import_module(module)), modules)
        head = f"# Copied from {module} of Surreal {__version__}; edit it freely.\n"
        (folder / f"{name}.py").write_text(head + source, encoding="utf-8")
        copied[folder / f"{name}.py"] = module
    (folder / "__init__.py").write_text(f'"""The algorithm of this app, copied from Surreal {__version__}."""\n')
    (folder / "README.md").write_text(_readme(document, copied), encoding="utf-8")
    use_local(document, config.parent, is_local=True)
    kept.append(save_text(config, to_text(document), is_kept=is_kept))
    return copied, [path for path in kept if path is not None]


def use_local(document: CommentedMap, folder: Path, *, is_local: bool, only_if_there: bool = False) -> None:
    """Make an app.yaml use the copies in the app's folder, or the package's classes.

    With `only_if_there`, a class that cannot be switched stays unchanged.
    """
    for part in _PARTS:
        path = str(get_value(document, f"{part}.class") or "")
        name = path.rpartition(".")[2]
        public = (f"{module}.{name}" for module in _CLASSES if hasattr(importlib.import_module(module), name))
        found = _local_path(folder, name) if is_local else next(public, None)
        if found is None and not only_if_there:
            where = f"{folder / FOLDER} has no class {name}; `surreal generate -a` copies it there"
            raise ConfigError(where if is_local else f"{part}.class is {path}, and Surreal has no class {name}")
        if found is not None:
            set_value(document, f"{part}.class", found)


def is_local(document: CommentedMap) -> bool:
    """Whether an app learns with its own copy."""
    return str(get_value(document, "learner.class")).startswith(f"{FOLDER}.")


def _class_of(document: CommentedMap, part: str) -> type[object]:
    path = str(get_value(document, f"{part}.class") or "")
    cls = import_class(path, object, key=f"{part}.class")
    if not cls.__module__.startswith("surreal."):
        raise ConfigError(f"{part}.class is {path}, which is your class; it was not copied", key=f"{part}.class")
    return cls


def _local_path(folder: Path, name: str) -> str | None:
    for path in sorted((folder / FOLDER).glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
        if any(isinstance(node, ast.ClassDef) and node.name == name for node in tree.body):
            return f"{FOLDER}.{path.stem}.{name}"
    return None


def _redirected(source: str, modules: dict[str, str]) -> str:
    """Make a module import from the copies, also where it uses a package's public name."""
    lines = source.splitlines(keepends=True)
    imports = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)]
    for node in sorted(imports, key=lambda node: -node.lineno):
        if not (node.module or "").startswith("surreal."):
            continue
        names: dict[str, list[str]] = {}
        for alias in node.names:
            names.setdefault(_source_of(str(node.module), alias.name, modules), []).append(ast.unparse(alias))
        if set(names) != {node.module}:
            indent = " " * node.col_offset
            new = [f"{indent}from {origin} import {', '.join(parts)}\n" for origin, parts in names.items()]
            lines[node.lineno - 1 : node.end_lineno] = new
    return "".join(lines)


def _source_of(module: str, name: str, modules: dict[str, str]) -> str:
    """Return the module from which a copy imports a name: a copy, or the original's import."""
    if module not in modules:
        defining = getattr(getattr(importlib.import_module(module), name), "__module__", module)
    else:
        defining = module
    return f"{FOLDER}.{modules[defining]}" if defining in modules else module


def _readme(document: CommentedMap, copied: Mapping[Path, str]) -> str:
    values: dict[str, Any] = {part: str(get_value(document, f"{part}.class")).rpartition(".")[2] for part in _PARTS}
    values["files"] = "\n".join(f"| `{path.name}` | `{module}` |" for path, module in copied.items())
    text = (TEMPLATES / "common" / "algorithm.md").read_text(encoding="utf-8")
    for name, value in values.items():
        text = text.replace("{{" + name + "}}", value)
    return text
