"""What is asked for is read, and what is drawn can be drawn again."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from surreal.base.errors import ConfigError
from surreal.plugins.chaos.command import is_configuration
from surreal.plugins.chaos.disturbances.processes import Kind
from surreal.plugins.chaos.observing import Standing
from surreal.plugins.chaos.plan import Plan, Planned, pick, read_kinds, role_of
from surreal.plugins.chaos.report import Report, check_path
from surreal.plugins.chaos.verdicts import Downtime, Recovery, Verdict
from surreal.run.process.ending import ExitCode


def draw(seed: int, number: int = 200) -> list[Planned]:
    plan = Plan(np.random.default_rng(seed), [Kind.KILL, Kind.CUT, Kind.FULL], every_s=5.0)
    found, now_s = [], 0.0
    for _ in range(number):
        found.append(plan.next(now_s))
        now_s = found[-1].at_s
    return found


def test_the_same_seed_gives_the_same_plan_and_another_one_another() -> None:
    assert draw(3) == draw(3) != draw(4)


def test_plan_has_all_kinds_and_gaps_around_their_mean() -> None:
    planned = draw(0)
    assert {each.kind for each in planned} == {Kind.KILL, Kind.CUT, Kind.FULL}
    gaps = np.diff([each.at_s for each in planned])
    assert gaps.min() > 0.99  # a fifth of the mean
    assert gaps.max() < 15.01
    assert 4.0 < gaps.mean() < 6.0
    assert all(0.2 <= each.hold <= 1.0 for each in planned)
    assert [pick("abc", draw) for draw in (0.0, 0.4, 0.99, 1.0)] == ["a", "b", "c", "c"]


def test_words_of_the_command_line() -> None:
    kinds, kill, pause = read_kinds(["agent,learner"], [], ["full", "restart"], cuts=True)
    assert kinds == (Kind.KILL, Kind.CUT, Kind.RESTART, Kind.FULL)
    assert (kill, pause) == ({"agent", "learner"}, frozenset())
    kinds, _, _ = read_kinds([], [], ["failover,shrink"], ["disk", "clock"], cuts=False)
    assert kinds == (Kind.SHRINK, Kind.FAILOVER, Kind.CLOCK, Kind.DISK)
    kinds, kill, pause = read_kinds([], [], [], cuts=False)
    assert kinds == (Kind.KILL, Kind.PAUSE, Kind.CUT, Kind.RESTART)  # nothing that loses experience
    assert kill == pause > {"learner", "agent", "eval"}
    assert [role_of(name) for name in ("agent-3", "learner", "learner-rank-1", "ps-1", "launcher")] == [
        "agent", "learner", "learner", "ps", "",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("kill", "redis", "wrong"),
    [
        ("actor", "restart", "--kill is 'actor'; it must be learner, ps, agent, rlx-server, eval or all"),
        ("all", "stop", "--redis is 'stop'; it must be restart, flush, full, shrink or failover"),
    ],
)
def test_words_that_are_unknown_are_refused(kill: str, redis: str, wrong: str) -> None:
    with pytest.raises(ConfigError, match=wrong):
        read_kinds([kill], [], [redis], cuts=False)


def test_preset_or_file_is_started_and_a_run_is_joined() -> None:
    assert [is_configuration(target) for target in ("cartpole-dqn", "my/app.yaml", "runs-1", None)] == [
        True, True, False, False,
    ]  # fmt: skip


def report(*violations: str, interrupted: ExitCode | None = None) -> Report:
    recovery = Recovery(1, "pause", "agent-0", began_s=2.0, held_s=1.5, detail="process 7")
    recovery.end(3.5, Standing(0, 0))
    recovery.recovered_s = 4.5
    verdicts = [Verdict("nothing is doubled", "5 chunks", violations, ("one was sent again",))]
    return Report("run x", "surreal chaos x", 3, 60.0, [recovery], verdicts, "the run goes on", interrupted)


def test_report_says_what_was_done_how_long_it_took_and_what_held(tmp_path: Path) -> None:
    good = report()
    good.write(tmp_path / "deep" / "report.json")
    plain = json.loads((tmp_path / "deep" / "report.json").read_text())
    assert plain["holds"] is True
    assert plain["disturbances"][0]["recovery_s"] == 1.0
    assert plain["invariants"][0]["evidence"] == "5 chunks"
    good.write(tmp_path / "report.md")
    page = (tmp_path / "report.md").read_text()
    assert "| nothing is doubled | held | 5 chunks<br>not promised: one was sent again |" in page
    assert "| pause agent-0 | 1 | 1.5 .. 1.5 | 1.0, 1.0 |" in page
    assert (
        "1 disturbance in 60 s with seed 3, recovered after 1.0 s (median), 1.0 at most; all invariants held."
        in (good.lines()[0])
    )


def test_tests_are_appended_to_a_table_with_their_kills_and_violations(tmp_path: Path) -> None:
    recoveries = [
        Recovery(number, "kill", "agent-0", began_s=0.0, ended_s=1.0, recovered_s=1.0 + took_s, killed="a life")
        for number, took_s in enumerate([0.5, 4.0, 2.0])
    ]
    lost = Verdict("nothing acknowledged is lost", "7 chunks")
    bad = replace(report("chunk a-1 came again"), recoveries=[*recoveries, Recovery(3, "cut", "redis", began_s=0.0)])
    bad = replace(bad, verdicts=[lost, *bad.verdicts])
    path = tmp_path / "deep" / "kills.csv"
    bad.append(path)
    replace(bad, seed=4, recoveries=[], verdicts=[lost, Verdict("nothing is doubled", "")]).append(path)
    first, second = csv.DictReader(path.read_text().splitlines())
    assert [first[name] for name in ("seed", "kills", "lost", "doubled", "median_s", "longest_s", "holds")] == [
        "3", "3", "0", "1", "2.0", "4.0", "False",
    ]  # fmt: skip
    assert (second["seed"], second["kills"], second["median_s"], second["holds"]) == ("4", "0", "", "True")
    assert first["command"] == "surreal chaos x"


def test_report_splits_the_downtime_of_each_role() -> None:
    recoveries = []
    for number, (target, took_s) in enumerate([("agent-0", 1.0), ("agent-1", 3.0), ("learner", 2.0), ("eval", 9.0)]):
        recovery = Recovery(number, "kill", target, began_s=0.0, ended_s=0.0, recovered_s=took_s, killed="1")
        recovery.downtime = None if target == "eval" else Downtime(0.1 * took_s, 0.0, 0.5, 0.2)
        recoveries.append(recovery)
    page = replace(report(), recoveries=recoveries).to_markdown()
    assert "| killed | how often | the run | the process | backoff | lease | restore | first step |" in page
    assert "| agent | 2 | 2.0, 2.9 | 0.9, 1.0 | 0.2, 0.3 | 0.0, 0.0 | 0.5, 0.5 | 0.2, 0.2 |" in page
    assert "| learner | 1 | 2.0, 2.0 | 0.9, 0.9 | 0.2, 0.2 | 0.0, 0.0 | 0.5, 0.5 | 0.2, 0.2 |" in page
    assert "| eval |" not in page


def test_exit_code_tells_a_broken_invariant_from_a_signal() -> None:
    assert report().exit_code is ExitCode.OK
    assert report(interrupted=ExitCode.INTERRUPTED).exit_code is ExitCode.INTERRUPTED
    bad = report("chunk a-1 came again", interrupted=ExitCode.INTERRUPTED)
    assert bad.exit_code is ExitCode.BROKEN == 5
    assert "  BROKEN  nothing is doubled: 5 chunks" in bad.lines()
    assert "          chunk a-1 came again" in bad.lines()
    assert "interrupted by SIGINT, all healed" in bad.lines()[-1]


def test_report_of_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"--report is report.txt; it must end with .md or .json"):
        check_path(Path("report.txt"))
    with pytest.raises(ConfigError, match=r"--append is kills.md; it must end with .csv"):
        check_path(Path("kills.md"), "--append", (".csv",))
