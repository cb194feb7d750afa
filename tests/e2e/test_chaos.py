"""`surreal chaos` as a person calls it: a run of its own, and one that goes on."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    from tests.e2e.conftest import Workplace

#: Few of everything, and soon.
QUICK = ("--every", "1", "--hold", "1", "--for", "120", "--within", "150")


def test_run_holds_what_is_promised_whatever_is_done_to_it(workplace: Workplace) -> None:
    code, output = workplace.run(
        *("chaos", "cartpole-dqn", "--kill", "agent,learner", "--pause", "all", "--cut", "--redis", "restart,full"),
        *(*QUICK, "--most", "6", "--seed", "2", "--report", "runs/report.json"),
        *("--append", "runs/kills.csv"),
        *(*workplace.one_agent, *workplace.fast_eval),
    )
    assert code == 0, output
    report = json.loads((workplace.folder / "runs" / "report.json").read_text())
    assert report["holds"] is True
    assert len(report["disturbances"]) == 6
    assert len((workplace.folder / "runs" / "kills.csv").read_text().splitlines()) == 2
    assert all(each["recovery_s"] is not None for each in report["disturbances"])
    names = [each["name"] for each in report["invariants"]]
    assert names == [
        "nothing acknowledged is lost",
        "nothing is doubled",
        "the global step is exact",
        "versions rise",
        "learning continues",
        "evaluation continues",
        "the run ends in order",
        "no process is left behind",
        "no key is left behind",
    ]
    result = json.loads((workplace.run_dir() / "result.json").read_text())
    assert (result["status"], result["reason"]) == ("finished", "surreal chaos")
    workplace.assert_nothing_is_left()


def test_run_that_goes_on_is_disturbed_and_healed_however_chaos_ends(workplace: Workplace) -> None:
    command = workplace.start("run", "cartpole-dqn", *workplace.endless, *workplace.one_agent, *workplace.fast_eval)
    run_dir = workplace.run_dir()
    workplace.wait_for(workplace.knows, "the run's first process")

    # Its own Redis has no append-only file: killed, it comes back empty.
    arguments = ("--kill", "agent", "--redis", "restart,flush", *QUICK, "--most", "3", "--report", "runs/report.md")
    code, output = workplace.run("chaos", run_dir.name, *arguments)
    assert code == 0, output
    assert "not promised: Redis was emptied" in output
    assert "the run continues" in output
    assert "| no key is left behind | held |" in (workplace.folder / "runs" / "report.md").read_text()

    for number, exit_code in ((signal.SIGINT, 130), (signal.SIGKILL, -9)):
        chaos = workplace.start("chaos", "--pause", "agent", "--every", "0.2", "--hold", "300", "--for", "300")
        workplace.wait_for(lambda: "pause agent-0" in chaos.output, "a pause")  # noqa: B023
        agent = psutil.Process(workplace.role_pid("agent-0"))
        workplace.wait_for(lambda: agent.status() == psutil.STATUS_STOPPED, "its effect")  # noqa: B023
        os.kill(chaos.pid, number)
        assert chaos.wait() == exit_code, chaos.output
        workplace.wait_for(lambda: agent.status() != psutil.STATUS_STOPPED, "its end")  # noqa: B023

    before = workplace.status()["env_steps"]
    workplace.wait_for(lambda: _steps(workplace.status()) > before, "going on")
    command.interrupt()
    assert command.wait() == 130, command.output
    workplace.assert_nothing_is_left()


def _steps(status: dict[str, Any]) -> int:
    return int(status["env_steps"])
