"""The documents say what the code says."""

from __future__ import annotations

import ast
import re
import shlex
from functools import cache
from pathlib import Path
from typing import Any, cast

import pytest
import typer

import surreal.learner
from surreal.cli.program import app
from surreal.config import preset_names
from surreal.config.yaml_tree import parse as parse_yaml
from surreal.distributed.connection import keys
from surreal.plugins.sweep.definition import check_settings, load_definition
from surreal.run.process.arguments import parse
from surreal.run.process.roles import AGENT, EVAL, LEARNER, PARAMETER_SERVER, ROLES
from tests.pages import Kind, load_script, read_page

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("commands", "| `--seed VALUE` | The same as --set seed=N. |  |"),
        ("configuration", "| `batch_size` | integer >= 1, <= 1000000 | `64` | Batch size of each rank: transitions"),
        ("doctor", "### Installation"),
        ("many-runs", "### a range of grid or search.space"),
        ("options", "### `surreal.learner.DQNLearner`"),
        ("redis-keys", "`R` is the run's id"),
    ],
)
def test_what_pages_have_from_the_code_is_what_the_code_says(name: str, line: str) -> None:
    reference_pages = load_script("reference_pages")
    path = ROOT / "docs" / f"{name}.md"
    page = path.read_text()
    assert path in reference_pages.PAGES
    assert page == reference_pages.fill(page), f"docs/{name}.md is not what the code says; run: make docs"
    assert line in page.partition("<!-- written by make docs")[2]


def test_every_environment_variable_is_on_its_page() -> None:
    text = "\n".join(path.read_text() for path in (ROOT / "surreal").rglob("*.py"))
    named = set(re.findall(r"[\"$`'](SURREAL_[A-Z_]+[A-Z])\b", text)) - {"SURREAL_RUN_SEED"}
    page = (ROOT / "docs" / "environment-variables.md").read_text()
    assert len(named) > 10 and {name for name in named if f"`{name}`" not in page} == set()


def test_every_learner_has_a_page_with_its_equations_and_presets() -> None:
    pages = {path.stem: path.read_text() for path in (ROOT / "docs" / "algorithms").glob("*.md")}
    shared = {"README", "off-policy", "on-policy"}
    for name, text in pages.items():
        if name not in shared:
            headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
            assert set(headings) >= {"Presets and results"} and "**Use" in text and "```" in text, name
            assert headings[-1].startswith("Differences from the paper"), name
    choice = pages["README"]
    learners = [name for name in vars(surreal.learner) if name.endswith("Learner")]
    bases = {"Learner", "GradientLearner", "ActorCriticLearner", "RemoteLearner"}
    assert len(learners) > 10 and [name for name in learners if name not in bases and f"`{name}`" not in choice] == []
    text = " ".join(pages.values())
    on_task = [name for name in preset_names() if not name.endswith("-rlx")]
    assert [name for name in on_task if f"`{name}`" not in text] == []


def test_the_page_of_sweeps_has_their_settings_and_examples() -> None:
    page = ROOT / "docs" / "many-runs.md"
    for block, name in zip(blocks(page, "yaml"), ("learning-rate", "search"), strict=True):
        example = ROOT / "examples" / "sweeps" / f"{name}.yaml"
        assert check_settings(load_definition(example))
        shown, there = parse_yaml(block, "")[0], parse_yaml(example.read_text(), "")[0]
        assert shown == {key: there[key] for key in shown}


def test_the_page_of_examples_has_each_of_them_and_each_is_short() -> None:
    page = (ROOT / "docs" / "examples.md").read_text()
    programs = sorted((ROOT / "examples").glob("*.py"))
    assert len(programs) == 11
    for program in programs:
        text = program.read_text()
        assert len(text.splitlines()) <= 60, program.name
        assert f"\n    python examples/{program.name}  " in (ast.get_docstring(ast.parse(text)) or ""), program.name
        assert f"](../examples/{program.name})" in page


def test_every_metric_of_the_code_is_on_its_page_and_named_by_its_scheme() -> None:
    groups = "agent|env|sender|gradients|listener|broadcast|learner|replay|eval|rlx|self_play|telemetry|collector"
    listed = set(re.findall(rf"`((?:{groups})/[a-z_]+)`", (ROOT / "docs" / "metrics.md").read_text()))
    source = "\n".join(path.read_text() for path in (ROOT / "surreal").rglob("*.py"))
    made = {key or rate for key, rate in re.findall(rf'"((?:{groups})/[a-z_]+)":|RateMeter\("([a-z_/]+)"', source)}
    assert made > {"agent/env_steps_per_s", "replay/fill_ratio", "telemetry/errors_total"}
    assert made <= listed, f"docs/metrics.md does not know {sorted(made - listed)}"


def test_every_name_that_keys_py_makes_is_in_its_table() -> None:
    run, shard, policy = keys.RunKeys("R"), keys.ShardKeys("R", 0), keys.PolicyKeys("R", "P")
    made = [
        keys.RUNS,
        run.config,
        run.processes,
        run.log,
        run.stop,
        run.attributes,
        run.claim("NAME"),
        run.scores,
        run.best,
    ]
    made += [run.ballast(1), run.durable_stream, run.durable_meta]
    made += [run.durable_rows("ID"), run.durable_staged("ID")]
    made += [
        shard.stream,
        shard.meta,
        shard.lease,
        shard.credit,
        shard.block("ID"),
        shard.staged("ID"),
        shard.seq("SENDER"),
    ]
    made += [policy.params, policy.lease, policy.contract, policy.notice, policy.part("ID", 1)]
    made += [policy.calls, policy.asked("ID"), policy.answer("ID"), policy.league, policy.games]
    gradients = shard.gradients("P")
    made += [gradients.state, gradients.offers, gradients.queue(1), gradients.block("ID", 1, 2)]
    made += [gradients.staged("ID", 1, 2), gradients.last("SENDER"), gradients.gather("F", 1)]
    listed = set(re.findall(r"`(surreal:[^`]+)`", keys.__doc__ or ""))
    normal = {name if ":gradients:" in name else name.replace(":s0}", ":sS}") for name in made}
    normal = {re.sub(r":part:ID:1$", ":part:ID:I", name) for name in normal}
    normal = {re.sub(r":(queue|block:ID|staged:ID|ballast):1", r":\1:I", name) for name in normal}
    normal = {re.sub(r":I:2$", ":I:J", re.sub(r":F:1$", ":F:N", name)) for name in normal}
    assert normal == listed


def test_the_architecture_page_names_every_package() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    packages = [path.parent.name for path in (ROOT / "surreal").glob("*/__init__.py")]
    assert packages and [name for name in packages if f"`{name}/`" not in page] == []


def test_the_files_that_the_architecture_page_names_are_there() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    named = re.findall(r"`(surreal/[\w/]+(?:\.py)?)/?`", page.partition("## Where to find things")[2])
    assert len(named) >= 10
    assert [name for name in named if not (ROOT / name).exists()] == []


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)


def printed_commands() -> list[str]:
    """In blocks, whether tests run them or not."""
    blocks = [block for page in PAGES for block in read_page(page) if block.kind is Kind.COMMANDS]
    lines = {line.partition(" >")[0] for block in blocks for line in block.commands()}
    return sorted(line for line in lines if line.startswith("surreal "))


@cache
def commands() -> dict[str, Any]:
    return dict(cast(Any, typer.main.get_command(app)).commands)


@pytest.mark.parametrize("line", printed_commands())
def test_commands_in_the_pages_have_these_arguments(line: str) -> None:
    _, name, *arguments = shlex.split(line)
    # Parsed, not carried out; wrong ones would raise or exit.
    role = next((role for role in (AGENT, LEARNER, EVAL, PARAMETER_SERVER) if role.name == name), None)
    if role is not None:
        parse(role, arguments)
    else:
        commands()[name].make_context(name, arguments)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_in_sentences_have_these_options(page: Path) -> None:
    """Sentences name them without values."""
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    for name, rest in re.findall(r"`surreal ([a-z][\w-]*)([^`]*)`", prose):
        command = commands()[name]
        words = rest.split()
        if words and words[0] in getattr(command, "commands", {}):
            command = command.commands[words[0]]
        known = {option for parameter in command.params for option in parameter.opts}
        if name not in [role.name for role in ROLES]:  # these have parsers of their own
            assert {word for word in words if re.match(r"--?[a-z]", word)} <= known, f"surreal {name}{rest}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"
