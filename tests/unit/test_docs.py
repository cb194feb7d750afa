"""The documents say what the code says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from surreal.config.reference import render
from surreal.distributed import keys

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def test_the_page_of_redis_keys_is_the_table_in_keys_py() -> None:
    page = (ROOT / "docs" / "redis-keys.md").read_text()
    assert keys.__doc__ is not None
    text = keys.__doc__.partition("\n\n")[2].strip()
    assert text in page, "docs/redis-keys.md is not what the docstring of surreal/distributed/keys.py says"


def test_the_page_of_settings_is_what_the_schema_says() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text()
    assert page == render(), "docs/configuration.md is not what the schema says; run: make docs"
    assert "| `batch_size` | whole number >= 1, <= 1000000 | `64` | Transitions of one update" in page


def test_every_name_that_keys_py_makes_is_in_its_table() -> None:
    run, shard, policy = keys.RunKeys("R"), keys.ShardKeys("R", 0), keys.PolicyKeys("R", "P")
    made = [keys.RUNS, run.config, run.processes, run.log, run.stop]
    made += [shard.stream, shard.meta, shard.lease, shard.credit, shard.block("ID"), shard.seq("SENDER")]
    made += [policy.params, policy.lease, policy.contract, policy.notice, policy.part("ID", 1)]
    listed = set(re.findall(r"`(surreal:[^`]+)`", keys.__doc__ or ""))
    normal = {name.replace(":s0}", ":sS}").replace(":pP}", ":pP}") for name in made}
    normal = {re.sub(r":part:ID:1$", ":part:ID:I", name) for name in normal}
    assert normal == listed


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"
