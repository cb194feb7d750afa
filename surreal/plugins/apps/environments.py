"""The templates of environments, each a folder in `templates/environments`.

A template is plain files, and adding one needs no code:

    template.yaml      title (its first line), base, aliases, algorithm, configurations, extra, client, pattern, values
    app.yaml           the environment's sections of app.yaml: env, environment, rlx, eval
    app.FAMILY.yaml    overrides of these sections if the algorithm's settings are of this family; may be missing
    README.md          the beginning of the app's README.md
    environment/       the program, a test of it, and the files of clients/CLIENT, if there is a `client`
    ...                all other files are copied unchanged

In all of them `{{app}}` is the app's name, and `{{NAME}}` a value of the template: `values` has the defaults, and
groups of `pattern` find others in the name that the user gave. If the user gave only the template's name, the ids in
`other_ids` replace the default `id` for algorithms that do not suit it. A template with a `base`, the name of another
template, overrides the files and the app.yaml of that one. `configurations` are families of settings (the first part of
the names that `surreal config` lists) in order of preference; without it, they follow from the spaces of `env.id`.
`extra` is the extra of Surreal that it needs, and `packages` are further packages for pip.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ruamel.yaml.comments import CommentedMap

from surreal.base.errors import ConfigError
from surreal.base.system.program import install_command
from surreal.config.problems import nearest
from surreal.config.yaml_tree import parse
from surreal.plugins.apps.document import merge, parse_document

TEMPLATES = Path(__file__).resolve().parent / "templates"
_SECTIONS, _METADATA = "app.yaml", "template.yaml"


@dataclass(frozen=True)
class Template:
    """A template and its values; see above for the meaning of its fields."""

    name: str
    title: str
    algorithm: str
    base: str | None = None
    aliases: tuple[str, ...] = ()
    configurations: tuple[str, ...] = ()
    extra: str | None = None
    client: str | None = None
    packages: tuple[str, ...] = ()
    pattern: str | None = None
    values: Mapping[str, str] = field(default_factory=dict)
    other_ids: tuple[str, ...] = ()

    def variants(self) -> list[Template]:
        return [self, *(_with_values(self, {"id": env_id}) for env_id in self.other_ids)]

    @property
    def folders(self) -> list[Path]:
        """Folders with its files, that of its base first."""
        return [TEMPLATES / "environments" / name for name in (self.base, self.name) if name is not None]

    def sections(self, app: str, family: str) -> CommentedMap:
        files = [*(folder / _SECTIONS for folder in self.folders), self.folders[-1] / f"app.{family}.yaml"]
        first, *others = (
            parse_document(self.filled(file.read_text(encoding="utf-8"), app), f"{file.parent.name}/{file.name}")
            for file in files
            if file.exists()
        )
        for other in others:
            merge(first, other)
        return first

    def files(self, app: str) -> Iterator[tuple[Path, bytes]]:
        """Yield the files of an app: path in its folder, and content. `surreal generate -e` replaces them all."""
        files = {path.relative_to(folder): path for folder in self.folders for path in folder.rglob("*")}
        if self.client is not None:
            package = TEMPLATES.parents[2]
            client = package / "rlx" / self.client
            client = client if client.is_dir() else package.parent / "clients" / self.client  # in a checkout
            files |= {"environment" / path.relative_to(client): path for path in client.rglob("*")}
        for inside, path in sorted(files.items()):
            is_metadata = len(inside.parts) == 1 and (inside.name == _METADATA or inside.match("app*.yaml"))
            if not path.is_file() or is_metadata or "__pycache__" in inside.parts:
                continue
            content = path.read_bytes()
            if inside.name == "README.md":
                content += (TEMPLATES / "common" / "README.md").read_bytes()
            with suppress(UnicodeDecodeError):  # an image, a sound
                content = self.filled(content.decode(), app).encode()
            yield inside, content

    def filled(self, text: str, app: str) -> str:
        for name, value in {**self.values, "app": app}.items():
            text = text.replace("{{" + name + "}}", value)
        return text

    def needs(self) -> str:
        """Return the command that installs its packages, "" if it needs none."""
        from surreal.envs.ids import extra_of  # imports gymnasium

        extra = self.extra or extra_of(self.values.get("id", ""))
        packages = " ".join(f"'{name}'" for name in self.packages)
        if extra is None:
            return f"pip install {packages}" if packages else ""
        return f"{install_command(extra)} {packages}".rstrip()


def templates() -> list[Template]:
    """List all templates by name."""
    found = []
    for path in sorted(TEMPLATES.glob(f"environments/*/{_METADATA}")):
        text, folder = path.read_text(encoding="utf-8"), path.parent.name
        data, _ = parse(text, f"{folder}/{_METADATA}")
        for name in ("aliases", "configurations", "packages", "other_ids"):
            data[name] = tuple(data.get(name, ()))
        found.append(Template(folder, text.partition("\n")[0].removeprefix("#").strip(), **data))
    return found


def find_template(name: str) -> Template:
    """Find a template by its name, an alias or its pattern."""
    known = templates()
    wanted = name.lower().replace("_", "-")
    for template in known:
        if wanted in (template.name, *template.aliases):
            return template
    for template in known:
        found = re.fullmatch(template.pattern, name) if template.pattern else None
        if found is not None:
            given = {key: value for key, value in found.groupdict().items() if value is not None}
            return replace(_with_values(template, given), other_ids=())
    names = [each for template in known for each in (template.name, *template.aliases)]
    similar = nearest(wanted, names)
    advice = f"did you mean {similar}?" if similar else f"use {', '.join(names)}, or an id such as CartPole-v1"
    raise ConfigError(f"{name} is not an environment; {advice}", key="-e")


def template_of(document: Mapping[str, Any]) -> Template | None:
    """Find the template from which an app's environment was made, None if it was not made from one."""
    name = (document.get("environment") or {}).get("template")
    template = next((each for each in templates() if each.name == name), None)
    return None if template is None else _with_values(template, {"id": str(document["env"]["id"])})


def _with_values(template: Template, given: Mapping[str, str]) -> Template:
    return replace(template, values={**template.values, **given})
