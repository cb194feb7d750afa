"""The JavaScript client and its example page in a real browser: headless Chromium."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from tests.browser import Browser

ROOT = Path(__file__).parents[4]
PAGES = ROOT / "clients" / "js"
BANDIT = ROOT / "surreal" / "plugins" / "apps" / "templates" / "environments" / "browser" / "environment"
VECTORS = ROOT / "tests" / "golden" / "rlx_vectors.json"

COUNT_COLOURS = """(canvas) => {
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    const seen = new Set();
    for (let i = 0; i < data.length; i += 4) seen.add((data[i] << 16) | (data[i + 1] << 8) | data[i + 2]);
    return seen.size;
}"""

#: The names of the golden vectors that are written in another way than RELAAX's encoder did.
FIND_DIFFERENCES = """async (vectors) => {
    const { encode, decode, RlxImage } = await import("/codec.mjs");
    const payload = (hex) => {
        const bytes = Uint8Array.from(hex.match(/../g), (pair) => parseInt(pair, 16));
        return bytes.subarray(bytes.indexOf(58) + 1, bytes.length - 1);
    };
    const hex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
    const own = {
        img_L: { s: new RlxImage("L", 3, 2, Uint8Array.of(0, 1, 2, 3, 4, 5)) },
        img_1: { s: new RlxImage("1", 8, 1, Uint8Array.of(0xa5)) },
        action_i64: { response: "action", data: 2n },
    };
    return Object.entries(vectors).filter(([name, text]) => {
        const bytes = payload(text);
        return hex(encode(own[name] ?? decode(bytes))) !== hex(bytes);
    }).map(([name]) => name);
}"""

#: A picture on a canvas, written and read.
SEND_PICTURE = """(async () => {
    const { encode, decode } = await import("/codec.mjs");
    const canvas = document.createElement("canvas");
    canvas.width = 3;
    canvas.height = 2;
    const context = canvas.getContext("2d");
    context.fillStyle = "rgb(255, 0, 51)";
    context.fillRect(0, 0, 3, 2);
    const array = decode(encode({ s: context.getImageData(0, 0, 3, 2) })).s;
    return [array.shape, array.dtype, Array.from(array.data.subarray(0, 4))];
})()"""


STATE = spaces.Box(-2, 2, (5,), np.float32)


def follow(obs: Any, _: int) -> Any:
    """Move the paddle below the ball."""
    return np.sign(np.round((obs[:, 0] - obs[:, 4]) / 0.12)).astype(np.int64) + 1


def assert_games_are_won(browser: Any, served: Any) -> None:
    """A policy that follows the ball catches it: return 20, and the limit ends the game."""
    shown = browser.evaluate("JSON.parse(JSON.stringify(demo))")
    assert shown["error"] is None
    assert np.mean(shown["returns"]) > 15
    served.wait(lambda: len(served.ended("truncated")) >= 5)
    for episode in served.ended("truncated"):
        assert sum(episode.rewards) == 20
        assert len(episode.states) == len(episode.rewards) + 1


@pytest.fixture
def browser(require_tool: Any, tmp_path: Path) -> Iterator[Any]:
    program = require_tool("chromium", "chromium-browser", "google-chrome")
    with Browser(program, tmp_path / "profile") as started:
        yield started


def test_the_example_page_plays_learns_and_shows_it(browser: Any, serve: Any, tmp_path: Path) -> None:
    can_act = threading.Event()
    can_act.set()

    def act(obs: Any, rows: int) -> Any:
        can_act.wait(60)
        return follow(obs, rows)

    status = {"run": "demo-run", "version": 1234, "exploration": 0.25}
    served = serve(spaces.Discrete(3), STATE, act, static_dir=PAGES, status=lambda: status)
    browser.open(f"http://{served.address}/?never=mind")
    browser.wait("location.pathname === '/example/' && window.demo")  # the first page leads there
    browser.open(f"http://{served.address}/example/?games=4")
    browser.wait("window.demo && demo.connected === 5")
    browser.wait("demo.episodes >= 8 && demo.exploited + (demo.steps > 2000) >= 1")
    assert_games_are_won(browser, served)
    assert any(episode.is_exploiting for episode in served.episodes)
    served.wait(lambda: sum(not episode.is_exploiting for episode in served.episodes) >= 8)
    served.wait(lambda: [name for _, name, _, _ in served.metrics].count("client/episode_reward") >= 8)

    # The numbers and the pictures are there.
    browser.wait("document.getElementById('median').textContent.endsWith('ms')")
    assert f"5 sessions with ws://{served.address}/" in browser.evaluate(
        "document.getElementById('status').textContent"
    )
    for name in ("main-game", "returns", "latency"):
        colours = browser.evaluate(f"({COUNT_COLOURS})(document.getElementById('{name}'))")
        assert colours > 3, f"nothing is drawn in {name}"
    for name, text in (("run", "demo-run"), ("version", "1,234"), ("exploration", "25 %")):
        browser.wait(f"document.getElementById('{name}').textContent === '{text}'")
    browser.screenshot(tmp_path / "page.png")

    # An agent that hangs is seen, and so is its return.
    can_act.clear()
    browser.wait("document.getElementById('status').className === 'bad'")
    assert "no answer" in browser.evaluate("document.getElementById('status').textContent")
    can_act.set()
    browser.wait("document.getElementById('status').className === 'good'")

    # A pause stops all games, and they go on.
    browser.evaluate("document.getElementById('pause').click()")
    browser.wait("demo.isPaused")
    browser.wait("(demo.last === demo.steps) || void (demo.last = demo.steps)")
    browser.evaluate("document.getElementById('pause').click()")
    browser.wait("demo.steps > demo.last + 20")

    # The server goes away and comes back: the page takes it up again by itself.
    browser.evaluate("null")  # what was complained of before is noted
    assert browser.complaints == []
    served.restart()
    browser.wait("demo.connected < 5 || demo.error === null")
    before = browser.evaluate("demo.episodes")
    browser.wait(f"demo.connected === 5 && demo.episodes > {before} + 4")
    of_its_absence = (
        rf"Failed to load resource: net::ERR_\w+ http://{re.escape(served.address)}/status\.json",
        "WebSocket connection to .*",
    )
    assert [text for text in browser.complaints if not re.fullmatch("|".join(of_its_absence), text)] == []
    away = len(browser.complaints)
    browser.wait(f"demo.episodes > {before} + 8 && document.getElementById('run').textContent === 'demo-run'")
    assert browser.complaints[away:] == []


def test_the_example_page_plays_with_messages_in_json(browser: Any, serve: Any) -> None:
    served = serve(spaces.Discrete(3), STATE, follow, static_dir=PAGES, status=dict)
    browser.open(f"http://{served.address}/example/?form=json&games=2")
    browser.wait("window.demo && demo.connected === 3 && demo.episodes >= 5")
    assert_games_are_won(browser, served)
    assert browser.complaints == []


def test_the_codec_in_a_browser_makes_the_golden_vectors(browser: Any, serve: Any) -> None:
    served = serve(spaces.Discrete(3), spaces.Box(-1, 1, (5,), np.float32), static_dir=PAGES)
    browser.open(f"http://{served.address}/codec.mjs")
    browser.wait("document.readyState === 'complete'")
    vectors = {name: vector["frame_hex"] for name, vector in json.loads(VECTORS.read_text()).items()}
    assert browser.evaluate(f"({FIND_DIFFERENCES})({json.dumps(vectors)})") == []
    picture = browser.evaluate(SEND_PICTURE)
    assert picture[:2] == [[2, 3, 4], "float32"]
    np.testing.assert_allclose(picture[2], [1.0, 0.0, 0.2, 1.0], rtol=1e-6)


def test_the_bandit_page_pulls_what_the_agent_says(browser: Any, serve: Any, tmp_path: Path) -> None:
    def act(_: Any, rows: int) -> Any:
        return np.full(rows, 3)

    served = serve(spaces.Discrete(4), spaces.Box(-1, 1, (0,), np.float32), act, static_dir=PAGES, pages_dir=BANDIT)
    browser.open(f"http://{served.address}/app/")
    browser.wait("window.shown && shown.episodes >= 2")
    # Each episode is 100 pulls, cut by a limit, and what they paid is told as a metric.
    served.wait(lambda: len(served.ended("truncated")) >= 2)
    first = served.ended("truncated")[0]
    assert len(first.rewards) == 100
    assert set(first.rewards) == {1.0, -1.0}
    served.wait(lambda: served.metrics)
    assert served.metrics[0] == ("scalar", "client/episode_reward", sum(first.rewards), None)
    # It is shown.
    browser.wait("document.querySelectorAll('.arm')[3].querySelector('span').textContent === '100 %'")
    assert browser.evaluate("document.querySelectorAll('.arm')[0].querySelector('em').textContent") == "–"
    assert browser.evaluate("document.getElementById('status').className") == "good"
    browser.screenshot(tmp_path / "bandit.png")

    # A pause stops it, and it goes on where it was; a reset begins the episode anew.
    browser.evaluate("document.getElementById('pause').click()")
    browser.wait("(shown.last === shown.pulls) || void (shown.last = shown.pulls)")
    browser.evaluate("document.getElementById('pause').click()")
    browser.wait("shown.pulls > shown.last + 20")
    browser.evaluate("document.getElementById('reset').click()")
    browser.wait(f"shown.pulls > {browser.evaluate('shown.pulls')} + 120")
    served.wait(lambda: served.ended("closed") or [e for e in served.ended("truncated") if len(e.rewards) < 100])
    assert browser.evaluate("shown.error") is None
    assert browser.complaints == []

    # The server goes away and comes back.
    served.restart()
    browser.wait("!shown.isConnected || shown.pulls > 0")
    before = browser.evaluate("shown.pulls")
    browser.wait(f"shown.isConnected && shown.error === null && shown.pulls > {before} + 50")
    assert [text for text in browser.complaints if "WebSocket connection to" not in text] == []
