"""Hooks that turn docs/ into a site. mkdocs.yml names this file, and mkdocs calls the functions `on_...`.

- docs/README.md defines the navigation: its headings are the sections, and its items the pages. An item that is a
  folder becomes a section with that folder's pages, in the order of its README.md, or else by name.
- Pages link to files outside of docs/ by relative paths, which work on a code forge. These files become pages below
  `files/`: Markdown is rendered, source is shown as text, and a folder as a list. README.md is the home page.
- In docs/api/, an item that is a name of the package becomes the documentation of that name.
- Cells of tables carry the titles of their columns, below which they stack on a narrow screen (site.css).
- Pages that have moved leave a redirect at their former address.
- With $SURREAL_REPOSITORY, the address of a repository on a forge, the site links to it and pages to their sources.
"""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
_LIST = "docs/README.md"
#: Pages whose path on the site differs from that of their file.
_PLACES = {"README.md": "index.md", _LIST: "pages.md"}
_ELSEWHERE = "files/"
#: Former address on the site -> address now.
_MOVED = {"algorithms.html": "algorithms/index.html"}
_REDIRECT = '<!doctype html><meta http-equiv="refresh" content="0; url={0}"><a href="{0}">{0}</a>\n'
_LANGUAGES = {".cpp": "cpp", ".hpp": "cpp", ".html": "html", ".mjs": "js", ".py": "python", ".yaml": "yaml"}
#: A relative link: the end of its text, the path, and the anchor with the closing parenthesis.
_LINK = re.compile(r"(\]\()([^)#:\s]+)((?:#[^)\s]*)?\))")
_ITEM = re.compile(r"^- \[([^\]]+)\]\(([^)#]+)\)", re.MULTILINE)
_TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
#: In a code span of a table's row, where Markdown of forges needs a backslash and the site shows it.
_BAR = re.compile(r"`[^`\n]*\\\|[^`\n]*`")
_NAME = re.compile(r"^- `(surreal(?:\.\w+)+)`$", re.MULTILINE)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Set the navigation, the version, and links to the repository."""
    version = re.search(r'^__version__ = "(.+)"$', (ROOT / "surreal/__init__.py").read_text(), re.MULTILINE)
    config.site_name = f"Surreal {version[1] if version else ''}".strip()
    if repository := os.environ.get("SURREAL_REPOSITORY"):
        config.repo_url, config.edit_uri = repository, "edit/main/docs/"
        config.theme["features"].append("content.action.edit")
    sections = re.split(r"^## ", (ROOT / _LIST).read_text(), flags=re.MULTILINE)[1:]
    config.nav = [{section.partition("\n")[0]: _items(section, _LIST)} for section in sections]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files outside of docs/ that pages link to, directly or through other files."""
    files.remove(files.src_uris["README.md"])
    linked = {"README.md", _LIST}
    for file in files.documentation_pages():
        linked |= _linked(file.content_string, _source(file.src_uri))
    while linked:
        path = linked.pop()
        content = _content(path)
        files.append(File.generated(config, _place(path), content=content))
        if path.endswith(".md"):
            linked |= {found for found in _linked(content, path) if _place(found) not in files.src_uris}
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Rewrite links to the pages' paths on the site, and replace names of the package by their documentation."""
    here = page.file.src_uri

    def replaced(link: re.Match[str]) -> str:
        target = _place(_target(link[2], _source(here)))
        return link[1] + posixpath.relpath(target, posixpath.dirname(here)) + link[3]

    markdown = _BAR.sub(lambda span: span[0].replace("\\|", "|"), markdown)
    if here.startswith("api/"):
        markdown = _NAME.sub(r"::: \1", markdown)
    return _LINK.sub(replaced, markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Name the column in each cell of a table."""
    return _TABLE.sub(_with_columns, html)


def on_post_build(config: MkDocsConfig) -> None:
    """Write the redirects."""
    for former, now in _MOVED.items():
        (Path(config.site_dir) / former).write_text(_REDIRECT.format(now))


def _with_columns(table: re.Match[str]) -> str:
    names = [re.sub(r"<[^>]+>", "", head).strip() for head in re.findall(r"<th[^>]*>(.*?)</th>", table[0], re.DOTALL)]
    rows = table[0].split("<tr>")
    for number, row in enumerate(rows):
        labels = iter(names)
        rows[number] = re.sub(r"<td", lambda _, labels=labels: f'<td data-column="{next(labels, "")}"', row)  # type: ignore[misc]
    return "<tr>".join(rows)


def _items(text: str, source: str) -> list[Any]:
    """Return the navigation entries of a list of pages."""
    items: list[Any] = []
    for title, link in _ITEM.findall(text):
        path = _target(link, source)
        # A page has the title of its heading.
        is_folder = (ROOT / path).is_dir()
        items.append({title.replace("`", ""): _folder_items(path)} if is_folder else _place(path))
    return items


def _folder_items(folder: str) -> list[Any]:
    readme = f"{folder}/README.md"
    if (ROOT / readme).exists():
        return [_place(readme), *_items((ROOT / readme).read_text(), readme)]
    return [_place(f"{folder}/{page.name}") for page in sorted((ROOT / folder).glob("*.md"))]


def _linked(text: str, source: str) -> set[str]:
    """Return the files outside of docs/ that a text links to, as paths in the repository."""
    targets = {_target(link, source) for _, link, _ in _LINK.findall(text)}
    return {path for path in targets if not path.startswith("docs/") and path != "docs" and (ROOT / path).exists()}


def _target(link: str, source: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), link))


def _place(path: str) -> str:
    """Return the path on the site of a file of the repository."""
    if path.startswith("docs/") and (ROOT / path).is_dir():
        return _first(_folder_items(path))
    if path in _PLACES:
        return _PLACES[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return f"{_ELSEWHERE}{path}" if path.endswith(".md") else f"{_ELSEWHERE}{path}.md"


def _source(place: str) -> str:
    """Return the file of the repository that a page is made from."""
    for path, its_place in _PLACES.items():
        if place == its_place:
            return path
    if not place.startswith(_ELSEWHERE):
        return f"docs/{place}"
    path = place.removeprefix(_ELSEWHERE)
    return path if (ROOT / path).exists() else path.removesuffix(".md")


def _first(items: list[Any]) -> str:
    return items[0] if isinstance(items[0], str) else next(iter(items[0].values()))


def _content(path: str) -> str:
    """Return a file or folder of the repository as Markdown."""
    file = ROOT / path
    if path.endswith(".md"):
        return file.read_text()
    head = f"---\nsearch: {{exclude: true}}\n---\n# {path}\n\n"
    if file.is_dir():
        names = sorted(entry.name for entry in file.iterdir() if not entry.name.startswith(("_", ".")))
        return head + "\n".join(f"- {name}" for name in names) + "\n"
    # More backticks in a row than in any file.
    return f"{head}``````{_LANGUAGES.get(file.suffix, 'text')}\n{file.read_text().rstrip()}\n``````\n"
