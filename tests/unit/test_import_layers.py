"""The layers of the package and the rooms of its parts: imports go downwards only.

Imports inside functions and under TYPE_CHECKING count.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "surreal"

#: From the bottom to the top. Parts of one layer do not import each other, except in the lowest.
LAYERS: list[set[str]] = [
    {"base"},
    {"config"},
    {"model", "envs", "distributed"},
    {"agent", "replay", "rlx"},
    {"learner"},
    {"run"},
    {"api"},
    {"cli"},
    {"plugins"},
]
#: The rooms of a part, from the bottom to the top; "." are the files beside the rooms. A room imports those below it.
ROOMS: dict[str, list[set[str]]] = {
    "agent": [{"forward", "slots"}, {"noise", "sampler"}, {"."}, {"exported"}],
    "config": [{"yaml_tree"}, {"schema"}, {"."}],
    "distributed": [
        {"connection"},
        {"calls", "experience", "gradients", "parameters", "telemetry", "server"},
        {"durable"},
    ],
    "envs": [
        {"actions", "atari", "terminal", "window"},
        {"wrappers", "examples"},
        {"."},
        {"players"},
        {"plain", "pools"},
    ],
    "learner": [{"stepping"}, {"."}, {"off_policy", "on_policy", "parameter_server"}],
    "run": [
        {"evaluation", "self_play"},
        {"observers"},
        {"process"},
        {"build"},
        {"session"},
        {"lockstep"},
        {"roles", "view"},
        {"launch"},
        {"."},
    ],
    "model": [{"."}, {"off_policy"}, {"in_numpy"}],
    "replay": [{"store"}, {"stream", "trajectories"}, {"archive"}, {"."}],
    "rlx": [{"protocol"}, {"client", "pool"}, {"server"}],
}
#: The part of plugins/ that the other plugins may import: it has no commands.
SHARED_PLUGIN = "recorded"
#: A folder shows at most so many files and folders at one sight, its docstring not counted.
MAX_ENTRIES = 16
#: The bare vocabulary imports nothing but itself.
VOCABULARY = {f"base.{name}" for name in ("types", "tree", "values", "errors", "specs", "contracts")}
#: What a part must never import although its layer would allow it: other packages, and parts that would bring them in.
FORBIDDEN: dict[str, set[str]] = {
    "agent": {"redis", "surreal.distributed"},
    "rlx": {"torch", "surreal.model", "surreal.base.pytorch"},
    "envs": {"torch", "redis"},
    "model": {"redis"},
    "config": {"torch", "redis", "gymnasium"},
    "base.types": {"torch", "redis", "gymnasium"},
    "base.tree": {"torch", "redis", "gymnasium"},
    "base.specs": {"torch", "redis"},
    "base.contracts": {"torch", "redis"},
    "base.errors": {"torch", "redis", "gymnasium"},
}


def level_of(part: str) -> int:
    return next(level for level, parts in enumerate(LAYERS) if part in parts)


def part_of(path: Path) -> str:
    """The part a file belongs to: `agent` for surreal/agent/loop.py, `api` for surreal/api.py, "" for surreal."""
    relative = path.relative_to(PACKAGE)
    return relative.parts[0] if len(relative.parts) > 1 else ("" if relative.stem == "__init__" else relative.stem)


def statements_of(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield all statements of a file, at any depth; walking their expressions too would take seven times as long."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            waiting += getattr(node, name, [])


def imports_of(tree: ast.Module, module: str, is_package: bool) -> Iterator[tuple[int, str]]:
    """Yield line and full dotted name of everything imported, wherever in the file."""
    package = module if is_package else module.rpartition(".")[0]
    for node in statements_of(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                anchor = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*anchor, *([base] if base else [])])
            for alias in node.names:
                yield node.lineno, f"{base}.{alias.name}"


def is_allowed(part: str, target: str) -> bool:
    """Whether a part of surreal may import another."""
    if target in ("", "__version__") or part == target:
        return True
    if part == "":  # the public names, imported when they are used
        return target not in ("cli", "plugins")
    return level_of(target) < level_of(part)


def violations(path: Path, source: ast.Module) -> list[str]:
    part = part_of(path)
    module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")
    found = []
    for line, name in imports_of(source, f"surreal.{module}", path.stem == "__init__"):
        top, *rest = name.split(".")
        where = f"{path.relative_to(ROOT)}:{line}: {part or 'surreal'} imports {name}"
        if top == "surreal":
            target = rest[0] if rest else ""
            if target not in set().union(*LAYERS, {"", "__version__"}):
                found.append(f"{where}: {target} stands in no layer")
            elif not is_allowed(part, target):
                found.append(where)
            elif module in VOCABULARY and ".".join(rest[:2]) not in VOCABULARY:
                found.append(f"{where}: the vocabulary imports only itself")
            elif part == "plugins" == target and rest[1:2] not in (module.split(".")[1:2], [SHARED_PLUGIN]):
                found.append(f"{where}: a plugin imports no other plugin")
        forbidden = FORBIDDEN.get(part, set()) | FORBIDDEN.get(module, set())
        if any(f"{name}.".startswith(f"{each}.") for each in forbidden):
            found.append(where)
    return found


def room_of(part: str, names: tuple[str, ...]) -> str:
    """The room that a file or a module is in: `connection` for ("connection", "client"), "." beside all rooms."""
    known = set().union(*ROOMS[part])
    return names[0] if names and names[0] in known else "."


def room_violations(path: Path, source: ast.Module) -> list[str]:
    relative = path.relative_to(PACKAGE)
    part, *inner = relative.with_suffix("").parts
    if part not in ROOMS or relative.parts[1:] == ("__init__.py",):  # the public names come from every room
        return []
    room = room_of(part, tuple(inner))
    levels = ROOMS[part]
    level = next(number for number, rooms in enumerate(levels) if room in rooms)
    module = ".".join(["surreal", part, *inner]).removesuffix(".__init__")
    found = []
    for line, name in imports_of(source, module, path.stem == "__init__"):
        top, target_part, *names = [*name.split("."), ""]
        if top != "surreal" or target_part != part:
            continue
        target = room_of(part, tuple(names))
        if target != room and not any(target in rooms for rooms in levels[:level]):
            found.append(f"{path.relative_to(ROOT)}:{line}: {part}/{room} imports {name}")
    return found


#: Templates of apps are no modules of the package.
FILES = sorted(path for path in PACKAGE.rglob("*.py") if "templates" not in path.parts)


def test_every_part_stands_in_a_layer() -> None:
    parts = {part_of(path) for path in FILES} - {""}
    assert parts <= set().union(*LAYERS)


def test_imports_go_downwards_only_and_in_no_circle() -> None:
    found: list[str] = []
    modules = {".".join(path.relative_to(ROOT).with_suffix("").parts) for path in FILES}
    needs: dict[str, set[str]] = {}
    for path in FILES:
        source = ast.parse(path.read_text(encoding="utf-8"))
        found += [*violations(path, source), *room_violations(path, source)]
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        names = {name for _, name in imports_of(source, module, False)}
        needs[module] = {m for name in names for m in (name, name.rpartition(".")[0]) if m in modules} - {module}
    assert not found, "\n".join(found)
    while free := {module for module, needed in needs.items() if not needed & needs.keys()}:
        for module in free:
            del needs[module]
    assert not needs, f"each of these is in a circle of imports, or needs one that is: {sorted(needs)}"


def test_every_folder_of_a_part_with_rooms_is_one() -> None:
    for part, levels in ROOMS.items():
        folders = {path.parent.name for path in (PACKAGE / part).glob("*/__init__.py")}
        assert folders <= set().union(*levels), part


def test_every_folder_says_what_it_is_for_and_can_be_seen_at_once() -> None:
    for folder in {path.parent for path in FILES}:
        docstring = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8")))
        assert docstring, f"{folder.relative_to(ROOT)} does not say what it is for"
        entries = [path.name for path in folder.iterdir() if not path.name.startswith("__")]
        assert len(entries) <= MAX_ENTRIES, f"{folder} has {len(entries)} entries"
    assert len([path for path in PACKAGE.iterdir() if path.name != "__pycache__"]) <= 15


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("distributed/parameters/listener.py", "from surreal.distributed.telemetry import records"),
        ("distributed/connection/client.py", "import surreal.distributed.experience.stream"),
        ("replay/store/ring.py", "from surreal.replay.base import Replay"),
        ("replay/stream/owner.py", "from surreal.replay.turn import take_turn"),
        ("rlx/client/transport.py", "from surreal.rlx import server"),
        ("run/process/role.py", "def f():\n    from surreal.run.build.acting import build_agent"),
        ("config/schema/fields.py", "from ..loading import load_config"),
    ],
)
def test_import_against_the_order_of_rooms_is_found(file: str, source: str) -> None:
    assert room_violations(PACKAGE / file, ast.parse(source))


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("agent/loop.py", "import redis"),
        ("agent/loop.py", "from surreal.distributed.experience.sender import ExpSender"),
        ("agent/loop.py", "def f():\n    from surreal import learner"),
        ("distributed/client.py", "from surreal.learner import Learner"),
        ("rlx/server.py", "import torch.nn"),
        ("rlx/server.py", "from ..agent import Agent"),
        ("replay/base.py", "from surreal.replay import base\nfrom surreal.agent import Agent"),
        ("base/errors.py", "from surreal.config import Config"),
        ("base/errors.py", "from surreal.base.system import files"),
        ("run/roles/agent.py", "from surreal.plugins.chaos import plan"),
        ("plugins/chaos/plan.py", "from surreal.plugins.doctor import report"),
        ("base/system/threads.py", "import surreal.model"),
        ("learner/base.py", "from surreal.run.roles import agent"),
        ("base/types.py", "from surreal.nowhere import x"),
    ],
)
def test_upward_or_sideways_import_is_found(file: str, source: str) -> None:
    assert violations(PACKAGE / file, ast.parse(source))


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("distributed/client.py", "import redis\nfrom . import keys\nfrom ..base.errors import SurrealError"),
        ("learner/dqn.py", "from surreal.replay.base import Replay\nfrom .base import Learner"),
        ("agent/__init__.py", "from .base import Agent\nfrom surreal.model import Model"),
        ("cli.py", "from surreal import __version__\nimport surreal.run.launch.launcher"),
    ],
)
def test_downward_import_is_allowed(file: str, source: str) -> None:
    assert violations(PACKAGE / file, ast.parse(source)) == []


def test_no_two_classes_of_the_core_share_a_name() -> None:
    places: dict[str, list[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        if "plugins" not in path.relative_to(PACKAGE).parts:
            for name in re.findall(r"^class (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE):
                places.setdefault(name, []).append(str(path.relative_to(ROOT)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_programs_run_when_all_of_their_module_is_defined() -> None:
    """What stands behind `if __name__ == "__main__"` is missing where the module is started with `python -m`."""
    for path in PACKAGE.rglob("*.py"):
        body = ast.parse(path.read_text(encoding="utf-8")).body
        starts = [i for i, each in enumerate(body) if isinstance(each, ast.If) and "__main__" in ast.dump(each.test)]
        assert starts in ([], [len(body) - 1]), f"{path.relative_to(ROOT)} defines something behind its start"
