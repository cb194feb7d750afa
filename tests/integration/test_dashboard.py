"""`surreal dashboard` on a socket: a run in a real Redis, and the page in a real browser, headless Chromium."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from surreal.base.errors import SurrealError
from surreal.config import load_config
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.telemetry.heartbeats import Heartbeat
from surreal.plugins.dashboard.commands import serve
from surreal.plugins.dashboard.sources.live import LiveRun
from surreal.run.process import registry
from surreal.run.process.registry import Registrant
from surreal.run.process.run_folder import RunFolder
from tests.browser import Browser
from tests.recorded import append, record_run, write_metrics
from tests.servers import RedisProcess

CONFIG = load_config("cartpole-dqn", ["run.max_env_steps=680"])
#: What a process may call itself, to run a script in the page of whoever looks.
HOSTILE = "<img src=x onerror='window.hacked = 1'>"

#: How often the page has been answered whether a run stops.
ANSWERS = "performance.getEntriesByType('resource').filter((each) => each.name.includes('/stop/')).length"


@pytest.fixture
def run(redis_server: RedisProcess, run_id: str) -> Iterator[RedisClient]:
    """A run with two processes that say that they are alive."""
    with RedisClient(redis_server.address, run=run_id) as client:
        registry.register(client, CONFIG, Registrant("learner", leads=True))
        now = client.server_time_s()
        for name in ("agent-0", HOSTILE):
            metrics = {"agent/env_steps_per_s": 12.5}
            beat = Heartbeat(f"id of {name}", "agent", name, 17, "host", now, now + 60, 5, 340, metrics)
            client.redis.hset(client.run_keys.processes, beat.id, beat.encode())
        yield client


@pytest.fixture
def folder(tmp_path: Path, run: RedisClient) -> Iterator[Path]:
    """Folders of two runs that are over and one that goes on, the newest."""
    for name, overrides in (("first", []), ("second", ["learner.batch_size=32"])):
        record_run(tmp_path / "runs" / name, overrides=overrides)
    folder = RunFolder(tmp_path / "runs" / "going-on")
    folder.claim()
    folder.begin(CONFIG, run.run, 1_800_000_000.0)
    folder.write_address(run.address, run.run)
    yield tmp_path / "runs"
    folder.release()


@pytest.fixture
def page_and_token(folder: Path) -> Iterator[tuple[str, str]]:
    ready, stop, found = threading.Event(), threading.Event(), list[tuple[str, str]]()

    def on_ready(page: str, token: str) -> None:
        found.append((page, token))
        ready.set()

    options: Any = {"redis": None, "host": "127.0.0.1", "port": 0, "token_file": None}
    thread = threading.Thread(target=serve, args=([folder],), kwargs={**options, "on_ready": on_ready, "stop": stop})
    thread.start()
    assert ready.wait(60)
    yield found[0]
    stop.set()
    thread.join(60)
    assert not thread.is_alive()


def test_a_run_in_redis_is_looked_at_and_stopped(run: RedisClient) -> None:
    opened = LiveRun(run.address, run.run, title="cartpole-dqn", started=0.0, folder=None)
    live = opened.look()
    assert (live.view.state, live.view.steps_per_s) == ("over", 0.0)  # from the future: proves nothing
    assert [beat.name for beat in live.view.processes] == [HOSTILE, "agent-0"]
    assert live.config is not None
    assert live.config.run.max_env_steps == 680
    assert live.shards == ()
    assert opened.stop("a test")
    assert not opened.stop("again")
    assert registry.stop_reason(run) == "a test"
    opened.close()


def test_a_server_that_is_away_is_said(tmp_path: Path) -> None:
    opened = LiveRun(f"unix://{tmp_path}/none.sock", "demo", title="", started=0.0, folder=None)
    with pytest.raises(SurrealError, match=r"none\.sock"):
        opened.look()
    opened.close()


def test_the_page_shows_curves_settings_and_processes_and_stops_a_run(
    page_and_token: tuple[str, str], run: RedisClient, require_tool: Callable[..., str], tmp_path: Path
) -> None:
    page, token = page_and_token
    program = require_tool("chromium", "chromium-browser", "google-chrome")
    with Browser(program, tmp_path / "profile") as browser:
        browser.open(page)
        # A curve of each of the two configurations.
        browser.wait("document.querySelectorAll('.chart')[0]?.querySelectorAll('path.js-line').length === 2")
        shown = browser.evaluate("[...document.querySelectorAll('.chart h3')].map((title) => title.textContent)")
        assert shown == ["Evaluation returnmean return of a round", "Loss", "Speed of actingenv steps per second"]
        line = browser.evaluate("document.querySelector('.chart path.js-line').getAttribute('d')")
        first, last = (float(y) for y in re.findall(r",([\d.]+)", line))  # the return rises evenly: a straight line
        assert first > last
        assert browser.evaluate("document.querySelectorAll('.legend-item').length") >= 2

        click(browser, ".tab", "Settings")
        browser.wait("document.querySelector('#settings tr.differs')")
        rows = browser.evaluate(
            "[...document.querySelectorAll('#settings tr.differs')]"
            ".map((row) => [...row.children].map((cell) => cell.textContent))"
        )
        assert ["learner.batch_size", "128", "32", "128"] in rows

        click(browser, ".tab", "Run")
        browser.wait("document.querySelector('#run-facts table')")
        text = browser.evaluate("document.getElementById('run-facts').textContent")
        assert "340 of 680 env steps (50%)" in text
        assert HOSTILE in text  # as text, and nothing else
        assert browser.evaluate("[window.hacked, document.querySelectorAll('#run-facts img').length]") == [None, 0]

        # Stopping asks first, and is refused without the token and with another one.
        browser.wait("!document.getElementById('stop-area').hidden")
        for wrong, answer in ((None, "needs the token"), ("another", "needs the token")):
            assert answer in stop(browser, wrong)
            assert registry.stop_reason(run) == ""
        assert "was asked to stop" in stop(browser, token)
        assert registry.stop_reason(run) == "surreal dashboard"
        browser.wait("document.getElementById('run-facts').textContent.includes('surreal dashboard')")

        # Opened with the token, it needs to be asked for no more.
        browser.open(f"{page}?token={token}")
        browser.wait("document.getElementById('token')")
        assert browser.evaluate("[location.search, document.getElementById('token').closest('[hidden]') !== null]") == [
            "",
            True,
        ]
        refused = r"Failed to load resource: .* 403 .*/stop/\w+"
        assert [text for text in browser.complaints if not re.fullmatch(refused, text)] == []


#: A pane, and when it is drawn.
DRAWN = {
    "Curves": "document.querySelectorAll('.environment .chart .main-svg').length",
    "Settings": "document.querySelector('#settings tr.differs')",
    "Run": "document.querySelector('#run-charts .main-svg') && document.querySelector('#run-facts td')"
    " && document.querySelector('#run-profiles pre')",
    "Sweeps": "document.querySelector('#sweep-charts .main-svg') && document.querySelector('#sweeps td')",
    "Logs": "document.getElementById('logs').textContent",
    "Videos": "document.getElementById('videos').textContent",
}
EMPTY = """[...document.querySelectorAll(".chart")].filter((chart) => chart.offsetParent
    && !chart.querySelector(".trace path")).map((chart) => chart.textContent)"""


@pytest.mark.slow
def test_each_pane_fits_a_phone_and_a_desk_and_can_be_read(
    sweep: Path, page_and_token: tuple[str, str], require_tool: Callable[..., str], tmp_path: Path
) -> None:
    program = require_tool("chromium", "chromium-browser", "google-chrome")
    with Browser(program, tmp_path / "profile") as browser:
        for width in (400, 1400):
            browser.resize(width)
            browser.open(page_and_token[0])
            for pane, is_drawn in DRAWN.items():
                browser.wait("document.querySelector('.tab')")
                click(browser, ".tab", pane)
                browser.wait(is_drawn)
                browser.wait(f"{EMPTY}.length === 0")
                assert browser.evaluate("document.documentElement.scrollWidth") <= width, pane
                for theme in ("dark", "light"):
                    browser.evaluate(f"document.documentElement.dataset.theme = '{theme}'; 0")
                    assert browser.faint_texts("body") == [], (pane, width, theme)
            if width == 400:  # charts come before controls
                click(browser, ".tab", "Curves")
                top = "document.querySelector('{}').getBoundingClientRect().top"
                assert browser.evaluate(f"{top.format('.chart')} < {top.format('.pane-curves .controls')}")
        assert browser.complaints == []


@pytest.fixture
def sweep(folder: Path) -> Path:
    """Make the runs those of a sweep; the newest has a profile."""
    trials: list[dict[str, Any]] = [
        {"kind": "trial", "trial": i, "settings": {"learner.batch_size": size, "model": name}}
        for i, (size, name) in enumerate([(32, "small"), (4096, "large"), (64, "large")])
    ]
    ends: list[dict[str, Any]] = [
        {"kind": "end", "trial": i, "status": "finished", "score": 9.0 + i, "scores": {"0": 9.0}, "reason": ""}
        for i in range(2)
    ]
    append(folder.parent / "trials.jsonl", *trials, *ends)
    newest = folder / "going-on"
    (newest / "profile.json.gz").write_bytes(b"x" * 2048)
    (newest / "profile-shares.txt").write_text("process  update  waiting")
    write_metrics(newest, "learner", 10, {"learner/policy_lag_versions": 2.0})
    return folder.parent


def click(browser: Browser, selector: str, text: str) -> None:
    """Click what has this text."""
    browser.evaluate(
        f"[...document.querySelectorAll('{selector}')].find((each) => each.textContent === '{text}').click()"
    )


def stop(browser: Browser, token: str | None) -> str:
    """Stop the run as a person would; returns what the page says then."""
    answers = browser.evaluate(ANSWERS)
    browser.evaluate("document.getElementById('stop').click()")
    browser.wait("!document.getElementById('stop-question').hidden")
    if token is not None:
        browser.type("token", token)
    browser.evaluate("document.getElementById('stop-yes').click()")
    browser.wait(f"{ANSWERS} > {answers} && document.getElementById('stop-question').hidden")
    return str(browser.evaluate("document.getElementById('stop-answer').textContent"))
