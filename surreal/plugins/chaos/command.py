"""`disturb`: the whole test, from finding the run to the report."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
from redis.exceptions import RedisError

from surreal.base.errors import ConfigError, SurrealError
from surreal.config import preset_names
from surreal.plugins.chaos.audit import judge_blocks, judge_keys
from surreal.plugins.chaos.campaign import Campaign
from surreal.plugins.chaos.disturbances.processes import Guard, Kind
from surreal.plugins.chaos.plan import ChaosOptions
from surreal.plugins.chaos.report import Report
from surreal.plugins.chaos.starting import StartedRun
from surreal.plugins.chaos.subject import Keeps, Subject, join
from surreal.plugins.chaos.verdicts import Verdict, judge_scores
from surreal.run.build.checkpoints import round_lines
from surreal.run.process import registry
from surreal.run.process.ending import ExitCode

_TURN_S = 0.1
#: Time limit for a run to drain, that of its roles, s.
_DRAIN_S = 150.0
#: Time limit for killed or drained processes to be gone, s.
_GONE_S = 20.0


@dataclass(frozen=True)
class Call:
    """Arguments of the command, and the console."""

    target: str | None  #: a preset, a file, or a run; None: the run in progress on this machine
    options: ChaosOptions
    say: Callable[[str], object]  #: shows a line
    stop: threading.Event  #: ends the test when it is set
    signals: Sequence[int] = ()  #: signals so far
    overrides: Sequence[str] = ()
    address: str | None = None  #: address of a run's Redis
    run_dir: Path | None = None
    words: str = "surreal chaos"  #: text of the command, for the report


def is_configuration(target: str | None) -> bool:
    """Whether a target is a preset or a file, not a run."""
    return target is not None and (target in preset_names() or target.endswith((".yaml", ".yml")))


def disturb(call: Call) -> Report:
    """Start or join a run, disturb it, and check the invariants.

    Raises:
        SurrealError: it is not possible; a run that was started is ended, another one is left unchanged.
    """
    with ExitStack() as stack:
        guard = stack.enter_context(Guard())
        if is_configuration(call.target):
            run = StartedRun(str(call.target), call.overrides, call.run_dir, guard, call.options.kinds)
            return _disturb_started(stack.enter_context(run), call, guard)
        if call.overrides:
            raise ConfigError("--set changes a configuration; name a preset or a file", key="--set")
        subject = join(call.target, address=call.address, run_dir=call.run_dir, stack=stack)
        return _disturb_joined(subject, call, guard)


def _disturb_started(run: StartedRun, call: Call, guard: Guard) -> Report:
    """Disturb a run that was started for the test: it is ended afterwards, and must leave nothing behind."""
    call.say(f"{run.subject.title} in {run.folder}")
    campaign = _campaign(run.subject, call, guard, lambda: "" if run.exit_code is None else run.last_words)
    campaign.wait_until_whole()
    campaign.audit.processes.note(run.process)
    scores = _disturb(campaign, run.subject, call)
    call.say(f"{campaign.now_s:7.1f} s       the run is asked to end")
    ended = _end(run, campaign, call)
    left = [campaign.audit.processes.judge(within_s=_GONE_S), judge_keys([run.subject.client])]
    return _report(run.subject, call, campaign, [*scores, ended, *left], f"results are in {run.folder}")


def _disturb_joined(subject: Subject, call: Call, guard: Guard) -> Report:
    """Disturb a run that was joined: it continues afterwards."""
    call = replace(call, options=only_possible(subject, call.options, call.say))
    call.say(f"{subject.title}; it continues afterwards")
    campaign = _campaign(subject, call, guard, lambda: registry.stop_reason(subject.client))
    campaign.wait_until_whole()
    scores = _disturb(campaign, subject, call)
    spared = {life.pid for life in campaign.audit.standing.alive().values() if life.is_here}
    for pid in tuple(spared):  # with all their descendants
        with suppress(psutil.Error):
            spared |= {child.pid for child in psutil.Process(pid).children(recursive=True)}
    left = campaign.audit.processes.judge(spared=spared, within_s=_GONE_S)
    blocks = judge_blocks(subject.replay.streams())
    reason = registry.stop_reason(subject.client)
    ending = f"the run has ended meanwhile: {reason}" if reason else "the run continues"
    return _report(subject, call, campaign, [*scores, left, blocks], ending)


def only_possible(subject: Subject, options: ChaosOptions, say: Callable[[str], object]) -> ChaosOptions:
    """Leave out kinds of disturbance that are impossible with a joined run."""
    kinds = []
    for kind in options.kinds:
        refusals = subject.refusals(kind)
        if options.is_default and kind is Kind.RESTART and any(each.keeps is Keeps.NOTHING for each in subject.servers):
            refusals = refusals or ["Redis has no append-only file, and would come back empty"]
        if refusals and not options.is_default:
            raise ConfigError(f"{subject.title} cannot be disturbed by {kind}: {refusals[0]}")
        if refusals:
            say(f"without {kind}: {refusals[0]}")
        else:
            kinds.append(kind)
    if not kinds:
        raise ConfigError(f"{subject.title} cannot be disturbed")
    return replace(options, kinds=tuple(kinds))


def _campaign(subject: Subject, call: Call, guard: Guard, is_over: Callable[[], str]) -> Campaign:
    def why_over() -> str:
        try:
            return is_over()
        except (RedisError, SurrealError):
            return ""

    return Campaign(subject, call.options, guard, say=call.say, stop=call.stop, is_over=why_over)


def _disturb(campaign: Campaign, subject: Subject, call: Call) -> list[Verdict]:
    """Disturb a whole run, and return the verdict on its evaluation if its scores are on this machine."""

    def rounds() -> list[dict[str, Any]]:
        path = None if subject.folder is None else subject.folder / "eval" / "scores.jsonl"
        return [] if path is None else list(round_lines(path, warns=False))

    before = len(rounds())
    call.say(f"    0.0 s       the run is whole: {', '.join(sorted(campaign.expected))}")
    campaign.disturb()
    if subject.folder is None or not subject.config.eval.enabled:
        return []
    last_at = len(rounds())
    campaign.wait_for(lambda: len(rounds()) > last_at)
    found = rounds()
    if call.stop.is_set():
        last_at = min(last_at, len(found) - 1)  # there was no time for another one
    return [judge_scores(found, before=before, last_at=last_at, may_go_back=campaign.audit.was_emptied)]


def _end(run: StartedRun, campaign: Campaign, call: Call) -> Verdict:
    """Ask the started run to end, watch it, and return the verdict on its end."""
    exit_code = run.exit_code
    violations = []
    if exit_code is None:
        with suppress(RedisError):
            registry.request_stop(run.subject.client, "surreal chaos")
        deadline_s, has_hurried = time.monotonic() + _DRAIN_S, False
        while (exit_code := run.exit_code) is None and time.monotonic() < deadline_s:
            campaign.audit.look()
            if len(call.signals) > 1 and not has_hurried:
                has_hurried = True
                run.hurry()
            time.sleep(_TURN_S)
    result = run.result()
    if exit_code is None:
        violations.append(f"it did not end within {_DRAIN_S:.0f} s")
    elif exit_code and not call.signals:
        violations.append(f"it ended with exit code {exit_code}: {run.last_words}")
    kills = sum(recovery.killed != "" for recovery in campaign.recoveries)
    evidence = (
        f"exit code {exit_code}, {result.get('reason')}; result.json has {result.get('env_steps', 0):,} env steps and "
        f"{result.get('restarts', 0)} restarts after {kills} kills"
    )
    return Verdict("the run ends in order", evidence, tuple(violations))


def _report(subject: Subject, call: Call, campaign: Campaign, verdicts: list[Verdict], ending: str) -> Report:
    return Report(
        title=subject.title,
        command=call.words,
        seed=call.options.seed,
        time_s=campaign.now_s,
        recoveries=campaign.recoveries,
        verdicts=[*campaign.audit.verdicts(), campaign.verdict(), *verdicts],
        ending=ending,
        interrupted=ExitCode(128 + call.signals[0]) if call.signals else None,
    )
