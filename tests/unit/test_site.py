"""docs/ as a site: what it shows is what there is, and nothing in it comes from elsewhere."""

from __future__ import annotations

import importlib
import importlib.util
import os
import posixpath
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import surreal
from tests.browser import Browser

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(path.relative_to(ROOT) for path in [*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
#: Parts of the package whose public names are documented.
PARTS = (
    "agent",
    "distributed",
    "envs",
    "learner",
    "model",
    "replay",
    "replay.archive",
    "rlx",
    "run.evaluation",
    "run.observers",
)


def items(page: Path) -> list[str]:
    """What the items of a list of pages link to, by their paths in the repository."""
    links = re.findall(r"^- \[[^\]]+\]\(([^)#]+)\)", (ROOT / page).read_text(), re.MULTILINE)
    return [posixpath.normpath(posixpath.join(page.parent, link)) for link in links]


def test_the_list_of_pages_is_the_navigation_and_has_each_page_once() -> None:
    listed: list[str] = []
    for item in items(Path("docs/README.md")):
        folder = ROOT / item
        if not folder.is_dir():
            listed.append(item)
        elif (folder / "README.md").exists():
            listed += [f"{item}/README.md", *items(Path(item) / "README.md")]
        else:
            listed += [str(path.relative_to(ROOT)) for path in folder.glob("*.md")]
    assert [page for page, count in Counter(listed).items() if count > 1] == []
    assert set(listed) == {str(page) for page in PAGES} - {"docs/README.md"}


def test_the_site_is_strict_and_fetches_nothing() -> None:
    text = (ROOT / "mkdocs.yml").read_text()
    assert re.search(r"^strict: true$", text, re.MULTILINE)
    assert re.search(r"^  font: false$", text, re.MULTILINE)
    assert re.search(r"^hooks: \[scripts/site_hooks.py\]$", text, re.MULTILINE)
    levels = dict(re.findall(r"^    (\w+): (warn|info|ignore)$", text, re.MULTILINE))
    assert set(levels.values()) == {"warn"}, "what --strict is to end at must be a warning"
    assert {"omitted_files", "not_found", "absolute_links", "anchors", "unrecognized_links"} == set(levels)


def slugs(page: Path) -> set[str]:
    """Anchors of a page's headings, as forges make them."""
    text = re.sub(r"^```.*?^```", "", (ROOT / page).read_text(), flags=re.DOTALL | re.MULTILINE)
    found: Counter[str] = Counter()
    anchors = set()
    for heading in re.findall(r"^#+ (.+?) *$", text, re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        anchors.add(f"{slug}-{found[slug]}" if found[slug] else slug)
        found[slug] += 1
    return anchors


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_links_to_headings_meet_one(page: Path) -> None:
    for path, anchor in re.findall(r"\]\(([^)#:\s]*)#([^)\s]+)\)", (ROOT / page).read_text()):
        target = Path(posixpath.normpath(posixpath.join(page.parent, path))) if path else page
        assert anchor in slugs(target), f"{page} links to {target}#{anchor}"


def test_every_public_name_is_in_the_reference_once() -> None:
    text = "\n".join(page.read_text() for page in (DOCS / "api").glob("*.md"))
    names = re.findall(r"^- `(surreal(?:\.\w+)+)`$", text, re.MULTILINE)
    assert [name for name, count in Counter(names).items() if count > 1] == []
    listed = [resolve(name) for name in names]
    for part in ("surreal", *(f"surreal.{part}" for part in PARTS)):
        module = importlib.import_module(part)
        missing = [name for name in public_names(module) if not is_among(getattr(module, name), listed)]
        assert missing == [], f"docs/api has none of these names of {part}"
    assert is_among(surreal.train, listed)


def resolve(name: str) -> Any:
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[length:]:
            found = getattr(found, attribute)
        return found
    raise AssertionError(f"there is no {name}")


def public_names(module: Any) -> list[str]:
    named = getattr(module, "__all__", None)
    if named is not None:
        return list(named)
    return [name for name, value in vars(module).items() if isinstance(value, type)]


def is_among(value: Any, listed: list[Any]) -> bool:
    return any(value is each for each in listed)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("mkdocs") is None, reason="the extra `docs` is not installed: make site")
def test_the_site_is_built_of_what_comes_with_it(tmp_path: Path, require_tool: Callable[..., str]) -> None:
    """Strict: a link or a heading that is not there ends it. About 30 s of a core."""
    site = tmp_path / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)]
    # A warning of the theme about the next mkdocs, and none of ours.
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONWARNINGS": ""}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=280)
    assert built.returncode == 0, built.stderr
    pages = list(site.rglob("*.html"))
    assert len(pages) > len(PAGES)
    for page in pages:
        text = page.read_text()
        fetched = re.findall(r"<(?:script|img|iframe|source)[^>]+src=\"?([^\"\s>]+)", text)
        fetched += re.findall(r"<link[^>]+rel=\"?(?:stylesheet|icon|preconnect)[^>]+href=\"?([^\"\s>]+)", text)
        assert [url for url in fetched if "://" in url or url.startswith("//")] == [], page
    reference = (site / "api" / "agents.html").read_text()
    assert 'id="surreal.agent.Agent"' in reference and "surreal.agent.Agent._act" in reference
    assert "url=algorithms/index.html" in (site / "algorithms.html").read_text()
    for page in pages:
        assert "\\|" not in re.sub(r"<pre.*?</pre>", "", page.read_text(), flags=re.DOTALL), page

    program = require_tool("chromium", "chromium-browser", "google-chrome")
    with Browser(program, tmp_path / "profile") as browser:
        for width in (400, 1400):
            browser.resize(width)
            for name in ("index", "commands", "speed", "algorithms/ppo", "api/agents"):
                browser.open(f"file://{site}/{name}.html")
                browser.wait("document.readyState === 'complete' && document.querySelector('article')")
                assert browser.evaluate("document.documentElement.scrollWidth") <= width, name
                titles = "document.querySelector('h1').firstChild.textContent.trim()"
                shown = "document.querySelector('.md-nav__link--active .md-ellipsis')?.textContent.trim()"
                assert browser.evaluate(titles) == browser.evaluate(shown), name
                for scheme in ("default", "slate"):
                    browser.evaluate(f"document.body.dataset.mdColorScheme = '{scheme}'; 0")
                    assert browser.faint_texts("article") == [], (name, scheme)
