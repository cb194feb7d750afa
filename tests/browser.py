"""Headless Chromium, driven through its DevTools protocol."""

from __future__ import annotations

import base64
import json
import subprocess
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from websockets.sync.client import connect

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-port=0",
    "--window-size=1160,900",
)
#: Ten pictures a second do for a test: without a graphics card, drawing them is what costs most.
FEWER_PICTURES = "window.requestAnimationFrame = (draw) => setTimeout(() => draw(performance.now()), 100);"
#: A page made with React only believes what looks like typing.
TYPE = """(id, text) => {
    const field = document.getElementById(id);
    Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value").set.call(field, text);
    field.dispatchEvent(new Event("input", { bubbles: true }));
}"""
#: Texts within an element whose contrast with what is behind them is below 4.5, the least that WCAG 2.1 (AA) allows.
FAINT = """((root) => {
  document.head.insertAdjacentHTML("beforeend", "<style>* { transition: none !important; }</style>");
  const parse = (text) => [...text.match(/[\\d.]+/g).map(Number), 1].slice(0, 4);
  const over = (top, below) => [0, 1, 2].map((i) => top[i] * top[3] + below[i] * (1 - top[3]));
  const luminance = (color) => {
    const [r, g, b] = color.map((c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (node) => {
    const layers = [];
    for (; node; node = node.parentElement) layers.unshift(parse(getComputedStyle(node).backgroundColor));
    return layers.reduce((below, top) => over(top, below), [255, 255, 255]);
  };
  const found = [], texts = document.createTreeWalker(document.querySelector(root), NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const node = texts.currentNode.parentElement, text = texts.currentNode.textContent.trim();
    if (!text || !node.getClientRects().length || node.closest("nav, .md-clipboard, .headerlink")) continue;
    const back = behind(node), values = [luminance(over(parse(getComputedStyle(node).color), back)), luminance(back)];
    const ratio = (Math.max(...values) + 0.05) / (Math.min(...values) + 0.05);
    if (ratio < 4.5) found.push(`${text.slice(0, 40)}: ${ratio.toFixed(2)}`);
  }
  return found;
})"""
_START_TIMEOUT_S = 60.0
_CALL_TIMEOUT_S = 60.0


class ProtocolError(RuntimeError):
    """DevTools refuse a call: among others, one that meets the page as it goes to another."""


class Browser:
    """A browser with one page.

    Args:
        program: Chromium.
        folder: for its profile; must not exist.

    Attributes:
        complaints: errors of the page: exceptions, console errors, what could not be loaded.
    """

    def __init__(self, program: str, folder: Path) -> None:
        self.complaints: list[str] = []
        self._folder = folder
        self._calls = 0
        self._loaded: set[str] = set()
        self._open = ExitStack()
        self._log = (folder.parent / f"{folder.name}.log").open("wb")
        self._process = subprocess.Popen(
            [program, *FLAGS, f"--user-data-dir={folder}", "about:blank"],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
        )
        try:
            self._socket = self._open.enter_context(connect(self._page_url(), max_size=64 << 20, compression=None))
            for domain in ("Page", "Runtime", "Log"):
                self.call(f"{domain}.enable")
            self.call("Page.addScriptToEvaluateOnNewDocument", source=FEWER_PICTURES)
        except BaseException:
            self.close()
            raise

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call the protocol, noting what the page complains of meanwhile."""
        self._calls += 1
        self._socket.send(json.dumps({"id": self._calls, "method": method, "params": params}))
        deadline = time.monotonic() + _CALL_TIMEOUT_S
        while True:
            message = json.loads(self._socket.recv(timeout=max(0.01, deadline - time.monotonic())))
            if message.get("id") == self._calls:
                if "error" in message:
                    raise ProtocolError(f"{method}: {message['error']}")
                return dict(message["result"])
            self._note(message.get("method"), message.get("params", {}))

    def open(self, url: str) -> None:
        """Go to a page, and wait until its document is there in place of the one before."""
        answer = self.call("Page.navigate", url=url)
        assert "errorText" not in answer, f"{url}: {answer['errorText']}"
        deadline = time.monotonic() + _CALL_TIMEOUT_S
        while answer["loaderId"] not in self._loaded:
            assert time.monotonic() < deadline, f"not within {_CALL_TIMEOUT_S} s: {url}"
            time.sleep(0.01)
            self.call("Page.getFrameTree")  # any call: what it meets on its way is noted

    def evaluate(self, expression: str) -> Any:
        """Evaluate JavaScript in the page, awaiting promises; gives its JSON value."""
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression[:200]}: {json.dumps(result['exceptionDetails'])[:2000]}")
        return result["result"].get("value")

    def type(self, field: str, text: str) -> None:
        """Put a text into a field, by its id, as a person types it."""
        self.evaluate(f"({TYPE})({json.dumps(field)}, {json.dumps(text)})")

    def wait(self, expression: str, timeout_s: float = 120.0) -> None:
        """Wait until an expression is true, over as many pages as it takes."""
        deadline = time.monotonic() + timeout_s
        while True:
            refusal = None
            try:
                if self.evaluate(f"Boolean({expression})"):
                    return
            except ProtocolError as error:
                refusal = error
            assert time.monotonic() < deadline, f"not within {timeout_s} s: {expression}; {refusal}; {self.complaints}"
            time.sleep(0.05)

    def resize(self, width: int, height: int = 900) -> None:
        """Give the page another size, in pixels."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def faint_texts(self, root: str) -> list[str]:
        """List the texts with too little contrast inside an element, by its selector."""
        return list(self.evaluate(f"{FAINT}({json.dumps(root)})"))

    def screenshot(self, path: Path) -> None:
        """Save what the page looks like."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def close(self) -> None:
        """End the browser."""
        self._open.close()
        self._process.terminate()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(60)
        self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _page_url(self) -> str:
        """Find where the DevTools of its page listen."""
        ready = self._folder / "DevToolsActivePort"
        deadline = time.monotonic() + _START_TIMEOUT_S
        while True:
            assert self._process.poll() is None, f"{self._process.args[0]} ended; see {self._log.name}"  # type: ignore[index]
            assert time.monotonic() < deadline, f"no DevTools within {_START_TIMEOUT_S} s; see {self._log.name}"
            lines = ready.read_text().splitlines() if ready.exists() else []
            if len(lines) >= 2:
                break
            time.sleep(0.05)
        with urllib.request.urlopen(f"http://127.0.0.1:{lines[0]}/json/list", timeout=60) as answer:
            targets = json.load(answer)
        return str(next(target["webSocketDebuggerUrl"] for target in targets if target["type"] == "page"))

    def _note(self, method: str | None, params: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(params["exceptionDetails"])[:1000])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "assert"):
            self.complaints.append(json.dumps(params["args"])[:1000])
        elif method == "Page.frameNavigated":
            self._loaded.add(params["frame"]["loaderId"])
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.complaints.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
