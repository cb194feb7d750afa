"""The tables of docs/speed.md, from what benchmarks reported: benchmarks/speed.jsonl.

    python -m benchmarks.throughput cartpole-ppo | python -m benchmarks.speed   keep what it reports, and write the page
    python -m benchmarks.speed < /dev/null                                      only write the page

A row shows the newest report of its name. A benchmark may report more names than the page has rows for.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.learning import PRESETS

_PAGE = Path(__file__).parents[1] / "docs" / "speed.md"
_RECORDS = Path(__file__).with_name("speed.jsonl")
_TABLE = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)

Reports = Mapping[str, Mapping[str, Any]]


class Row(NamedTuple):
    """A line of a table."""

    what: str
    report: str  #: its name
    command: str = ""  #: module in `benchmarks`, and arguments; "": there is none


def _solved(preset: str) -> Iterable[Row]:
    for name, what in (("seconds", "time"), ("env_steps", "env steps")):
        yield Row(f"`{preset}`, {what}", f"{preset} solved over Stable-Baselines3, {name}", f"learning {preset}")


def _learning(preset: str, peer: str) -> Row:
    return Row(f"`{preset}`: {peer}", f"{preset} over {peer}", f"throughput {preset}")


def _limit(preset: str) -> Row:
    return Row(f"`{preset}`: limit of these cores", f"{preset}, share of the limit", f"throughput {preset}")


def _compiled(what: str) -> Row:
    return Row(what, f"compiled over eager, {what}", f"updates '{what}'")


def _recorded(kind: str) -> Row:
    name = f"pendulum-{kind}"
    return Row(f"`{name}`", f"{name} over d3rlpy", f"offline datasets/pendulum-medium {kind}")


def _sampled(peer: str) -> Row:
    return Row(peer, f"mirrored against {peer}, 4 float32, batch 256", "replay --stored 10000")


def _durable(what: str, rows: int = 1024) -> Row:
    return Row(f"{what}; {rows:,} rows a call", f"durable, {rows} rows a call: {what}", f"durable --rows {rows}")


def _memory(what: str) -> Row:
    return Row(what, f"memory of cartpole-ppo, {what}", "memory")


SBX, SB3 = "sbx-rl", "Stable-Baselines3"
TABLES = {
    "learning": [
        *(_learning(preset, SB3) for preset in ("cartpole-ppo", "halfcheetah-ppo", "pendulum-sac", "halfcheetah-sac")),
        *(_learning(preset, SBX) for preset in ("halfcheetah-sac", "cartpole-ppo", "cartpole-dqn", "halfcheetah-tqc")),
        *(_learning(preset, "Sample Factory") for preset in ("atari-vtrace", "atari-ppo")),
        _learning("atari-ppo", SB3),
        *map(_limit, ("atari-vtrace", "atari-ppo")),
    ],
    "solved": [row for preset in PRESETS for row in _solved(preset)],
    "compiled": [
        _compiled("PPO, minibatch of 256, 2 x 64"),
        _compiled("SAC, 2 x 64"),
        _compiled("SAC, 2 x 256"),
        _compiled("TD3, 2 x 256"),
        _compiled("DQN, 2 x 64"),
        _compiled("quantile DQN, 2 x 64"),
    ],
    "recorded": list(map(_recorded, ("bc", "td3bc", "iql", "cql"))),
    "sampling": list(
        map(
            _sampled,
            ("TorchRL LazyTensorStorage", "TorchRL LazyTensorStorage, prefetching", SB3, "cpprb", "rlox"),
        )
    ),
    "durable": [
        _durable("put over ExpSender"),
        _durable("put over ExpSender", 16384),
        _durable("put over ExpSender with as many rows a chunk"),
        _durable("sample over UniformReplay"),
        _durable("put over a Redis list"),
        _durable("put and consume over a Redis list"),
        _durable("put over TorchRL in Redis"),
        _durable("sample over TorchRL in Redis"),
    ],
    "memory": list(map(_memory, ("learner", "agent", "evaluation", "100 agents"))),
}


def main() -> None:
    """Keep the reports of standard input, and write the page."""
    reports = read_reports()
    for line in sys.stdin:
        sys.stdout.write(line)
        if line.startswith("{") and "skipped" not in (found := json.loads(line)):
            reports[found["name"]] = found
    _RECORDS.write_text("".join(json.dumps(found) + "\n" for _, found in sorted(reports.items())), encoding="utf-8")
    _PAGE.write_text(fill(_PAGE.read_text(encoding="utf-8"), reports), encoding="utf-8")


def read_reports() -> dict[str, Mapping[str, Any]]:
    """Read what is kept, by name."""
    lines = _RECORDS.read_text(encoding="utf-8").splitlines() if _RECORDS.exists() else []
    return {found["name"]: found for found in map(json.loads, lines)}


def fill(page: str, reports: Reports) -> str:
    """Put the tables into their places on the page."""
    return _TABLE.sub(lambda found: "\n".join((found[1], *table(TABLES[found[2]], reports), "", found[3])), page)


def table(rows: Iterable[Row], reports: Reports) -> Iterable[str]:
    """Yield the lines of a table."""
    yield "| | ratio | Surreal | other | rounds | command |"
    yield "|---|---|---|---|---|---|"
    for row in rows:
        cells = _cells(reports.get(row.report))
        command = f"`{row.command}`" if row.command else ""
        yield f"| {row.what} | {' | '.join((*cells, command))} |"


def _cells(found: Mapping[str, Any] | None) -> tuple[str, str, str, str]:
    if found is None:
        return "not measured", "", "", ""
    low, high = found.get("ratio_range") or (found["ratio"], found["ratio"])
    if "ratio" not in found:
        ratio = f"{low:.2f} to {high:.2f}"
    else:
        ratio = f"{found['ratio']:.2f}" + (f" [{low:.2f}, {high:.2f}]" if low < high else "")
    unit = found.get("unit", "")
    ours, theirs = (f"{_number(found[key])} {unit}" if key in found else "" for key in ("value", "baseline"))
    threads = found.get("peer_threads")
    theirs += "" if threads is None else f", {threads} thread{'s' * (threads > 1)}"
    return ratio, ours, theirs, str(found.get("rounds", "earlier"))


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


if __name__ == "__main__":
    main()
