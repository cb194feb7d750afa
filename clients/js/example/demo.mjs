/**
 * The page: several games that train as fast as answers arrive, and one that is played greedily at human speed.
 *
 * `?server=ws://host:port` names another server, `?games=N` the number of games, `?form=json` sends JSON instead of binary messages.
 * `window.demo` holds what is shown, for tests.
 */

import { AgentProxy, runEpisodes } from "../surreal-rlx.mjs";
import { Catch } from "./catch.mjs";
import { drawChart, drawGame, palette } from "./view.mjs";

const query = new URLSearchParams(location.search);
const scheme = location.protocol === "https:" ? "wss:" : "ws:";
const SERVER = query.get("server") ?? `${scheme}//${location.host}/`;
const FORM = query.get("form") === "json" ? "json" : "binary";
/** The server's page about itself, if this page comes from it too. */
const STATUS = new URL(SERVER).host === location.host ? new URL("/status.json", location.href) : null;
const HANGS_AFTER_MS = 2000;
const HUMAN_STEP_MS = 1000 / 30;
const TRAIL = 7;
const MEAN_OF = 50;
const MOST_POINTS = 2000;

const element = (id) => document.getElementById(id);

/** Everything that the page shows. */
const demo = {
  steps: 0,
  episodes: 0,
  exploited: 0,
  best: -Infinity,
  returns: [],
  means: [],
  latencies: [],
  rate: 0,
  connected: 0,
  error: null,
  isPaused: false,
  server: {},
};
window.demo = demo;

/** One game with its session. */
class Player {
  constructor(canvas, exploits) {
    this.canvas = canvas;
    this.exploits = exploits;
    this.game = new Catch();
    this.shown = { trail: [], flash: null };
    this.isConnected = false;
    this.askedAt = null;
    this.controller = new AbortController();
    this.agent = new AgentProxy(SERVER, { form: FORM, timeoutMs: 30_000 });
  }

  /** Play until stopped. */
  async run() {
    try {
      await runEpisodes(this.agent, () => this.#episode(), {
        exploit: this.exploits,
        attempts: Infinity,
        signal: this.controller.signal,
        onEpisode: (_, reward) => this.#note(reward),
        onConnection: (isConnected, error) => this.#connection(isConnected, error),
      });
    } catch (error) {
      demo.error = error.message;
    }
    this.#connection(false, null);
  }

  stop() {
    this.controller.abort();
    this.agent.disconnect();
    this.#connection(false, null);
  }

  async #episode() {
    const { game, shown } = this;
    game.reset();
    shown.trail = [];
    let total = 0;
    let action = await this.#ask(null, false, false);
    for (;;) {
      if (demo.isPaused) await resumed();
      const began = performance.now();
      shown.trail.push([game.x, game.y]);
      if (shown.trail.length > TRAIL) shown.trail.shift();
      const { reward, terminal, truncated } = game.step(Number(action));
      total += reward;
      if (reward !== 0) {
        shown.flash = { isGood: reward > 0, at: performance.now() };
        shown.trail = [];
      }
      action = await this.#ask(reward, terminal, truncated);
      demo.steps += 1;
      if (this.exploits) await pause(HUMAN_STEP_MS * (terminal ? 12 : 1) - (performance.now() - began));
      if (terminal || truncated) return total;
    }
  }

  async #ask(reward, terminal, truncated) {
    const began = performance.now();
    this.askedAt = began;
    let action;
    try {
      action = await this.agent.update(reward, this.game.state(), terminal, truncated);
    } finally {
      this.askedAt = null;
    }
    if (!terminal && !truncated) {
      demo.latencies.push(performance.now() - began);
      if (demo.latencies.length > MOST_POINTS) demo.latencies.splice(0, MOST_POINTS / 2);
    }
    return action;
  }

  #note(reward) {
    if (this.exploits) {
      demo.exploited += 1;
      demo.best = Math.max(demo.best, reward);
      return;
    }
    demo.episodes += 1;
    demo.returns.push(reward);
    const recent = demo.returns.slice(-MEAN_OF);
    demo.means.push(recent.reduce((sum, value) => sum + value, 0) / recent.length);
    if (demo.returns.length > MOST_POINTS) {
      demo.returns.splice(0, MOST_POINTS / 2);
      demo.means.splice(0, MOST_POINTS / 2);
    }
  }

  #connection(isConnected, error) {
    if (isConnected !== this.isConnected) demo.connected += isConnected ? 1 : -1;
    this.isConnected = isConnected;
    if (isConnected) demo.error = null;
    else if (error && !this.controller.signal.aborted) demo.error = error.message;
  }
}

function pause(milliseconds) {
  return new Promise((resolve) => setTimeout(resolve, Math.max(0, milliseconds)));
}

async function resumed() {
  while (demo.isPaused) await pause(100);
}

let players = [];

function start(count) {
  players.forEach((player) => player.stop());
  const grid = element("games");
  grid.style.setProperty("--columns", columnsOf(count));
  grid.replaceChildren(...Array.from({ length: count }, () => document.createElement("canvas")));
  players = [...grid.children].map((canvas) => new Player(canvas, false));
  players.push(new Player(element("main-game"), true));
  players.forEach((player) => player.run());
}

/** Return the number of columns that leaves no gap in the last row, if there is one. */
function columnsOf(count) {
  if (count <= 4) return count;
  const choices = count <= 8 ? [4, 3, 5, 7] : [8, 7, 6, 5];
  return choices.find((columns) => count % columns === 0) ?? choices[0];
}

let counted = { steps: 0, at: performance.now() };

function showNumbers() {
  const now = performance.now();
  demo.rate = ((demo.steps - counted.steps) * 1000) / (now - counted.at);
  counted = { steps: demo.steps, at: now };
  const sorted = demo.latencies.slice(-500).sort((a, b) => a - b);
  const quantile = (part) =>
    sorted.length ? sorted[Math.min(sorted.length - 1, Math.floor(part * sorted.length))] : NaN;
  const milliseconds = (value) => (Number.isNaN(value) ? "–" : `${value.toFixed(value < 10 ? 1 : 0)} ms`);
  element("mean").textContent = demo.means.length ? demo.means.at(-1).toFixed(1) : "–";
  element("episodes").textContent = demo.episodes.toLocaleString("en");
  element("steps").textContent = demo.steps.toLocaleString("en");
  element("rate").textContent = `${Math.round(demo.rate).toLocaleString("en")}/s`;
  element("median").textContent = milliseconds(quantile(0.5));
  element("tail").textContent = milliseconds(quantile(0.99));
  showServer();
  showStatus(now);
}

function showServer() {
  const { exploration, version, run } = demo.server;
  element("exploration").textContent = Number.isFinite(exploration) ? `${(100 * exploration).toFixed(0)} %` : "–";
  element("version").textContent = Number.isFinite(version) ? version.toLocaleString("en") : "–";
  element("run").textContent = run ?? "–";
}

function showStatus(now) {
  const isWhole = demo.connected === players.length;
  const waited = now - Math.min(now, ...players.map((player) => player.askedAt ?? now));
  const hangs = isWhole && waited > HANGS_AFTER_MS;
  const status = element("status");
  status.className = hangs || (!isWhole && demo.error) ? "bad" : isWhole ? "good" : "";
  const trouble = demo.error ? `${demo.error}, trying again` : "connecting";
  if (hangs) status.textContent = `no answer from ${SERVER} for ${Math.floor(waited / 1000)} s`;
  else status.textContent = isWhole ? `${demo.connected} sessions with ${SERVER}` : `${trouble} …`;
}

/** Poll the server's status; what is shown stays if it does not answer. */
async function follow() {
  for (;;) {
    try {
      const reply = await fetch(STATUS, { cache: "no-store", signal: AbortSignal.timeout(HANGS_AFTER_MS) });
      demo.server = await reply.json();
    } catch {
      demo.server = {};
    }
    await pause(1000);
  }
}

/** Reduce the points to one per pixel, each the mean of an interval. */
function thinned(points, most = 300) {
  if (points.length <= most) return points;
  const stretch = points.length / most;
  return Array.from({ length: most }, (_, index) => {
    const part = points.slice(Math.floor(index * stretch), Math.floor((index + 1) * stretch));
    return part.reduce((sum, value) => sum + value, 0) / part.length;
  });
}

function draw() {
  const colours = palette();
  for (const player of players) drawGame(player.canvas, player.game, player.shown, colours);
  element("score").textContent = players.at(-1)?.game.catches ?? 0;
  const lines = [
    { points: thinned(demo.returns), colour: colours.each, width: 1.25 },
    { points: thinned(demo.means), colour: colours.good, width: 2.5 },
  ];
  drawChart(element("returns"), { lines, low: -1, high: 20, format: (value) => value.toFixed(0) }, colours);
  const latencies = thinned(demo.latencies.slice(-600));
  const high = Math.max(1, ...latencies);
  const line = { points: latencies, colour: colours.paddle, width: 1.5 };
  drawChart(
    element("latency"),
    { lines: [line], low: 0, high, format: (value) => `${value.toFixed(high < 10 ? 1 : 0)} ms` },
    colours,
  );
  requestAnimationFrame(draw);
}

element("count").addEventListener("change", (event) => start(Number(event.target.value)));
element("pause").addEventListener("click", (event) => {
  demo.isPaused = !demo.isPaused;
  event.target.textContent = demo.isPaused ? "Go on" : "Pause";
});
const asked = Number(query.get("games"));
const count = Number.isInteger(asked) && asked >= 1 && asked <= 64 ? asked : 8;
const select = element("count");
if (![...select.options].some((option) => Number(option.value) === count)) select.add(new Option(String(count)));
select.value = String(count);
start(count);
setInterval(showNumbers, 500);
if (STATUS) follow();
requestAnimationFrame(draw);
