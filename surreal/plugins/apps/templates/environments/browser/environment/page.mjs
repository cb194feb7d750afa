/**
 * The page: an agent elsewhere pulls the arms, and the page shows which. `?server=ws://host:port` names another server.
 *
 * `window.shown` has the shown values, for tests.
 */

import { CallbackAgent } from "../callbacks.mjs";
import { ARMS, Bandit } from "./bandit.mjs";

const EPISODE_PULLS = 100;
const RECENT_PULLS = 200;
const RETRY_MS = 1000;

const scheme = location.protocol === "https:" ? "wss:" : "ws:";
const server = new URLSearchParams(location.search).get("server") ?? `${scheme}//${location.host}/`;
const element = (id) => document.getElementById(id);

const shown = { pulls: 0, episodes: 0, recent: [], lastTotal: null, isConnected: false, isPaused: false, error: null };
window.shown = shown;

const agent = new CallbackAgent(server);
const bandit = new Bandit();
let episode = { pulls: 0, total: 0 };
/** An action that waits for the end of a pause. */
let waiting = null;
/** Whether the episode was reset: an action that still arrives does not belong to the next one. */
let isResetting = false;

agent.onconnected = () => agent.init();

agent.onready = () => {
  Object.assign(shown, { isConnected: true, error: null });
  begin();
};

agent.onaction = (action) => {
  if (isResetting) return;
  if (action === null) begin();
  else if (shown.isPaused) waiting = action;
  else pull(Number(action));
};

agent.onresetdone = () => {
  isResetting = false;
  begin();
};

agent.onerror = (error) => {
  shown.error = error.message;
};

agent.ondisconnected = (error) => {
  Object.assign(shown, { isConnected: false, error: error?.message ?? null });
  waiting = null;
  isResetting = false;
  setTimeout(() => agent.connect(1), RETRY_MS);
};

/** There is nothing to see: a state is []. The first update of an episode has no reward. */
function begin() {
  episode = { pulls: 0, total: 0 };
  agent.update(null, []);
}

function pull(arm) {
  const reward = bandit.pull(arm);
  episode.pulls += 1;
  episode.total += reward;
  shown.pulls += 1;
  shown.recent.push({ arm, reward });
  if (shown.recent.length > RECENT_PULLS) shown.recent.shift();
  const isOver = episode.pulls === EPISODE_PULLS;
  if (isOver) {
    shown.episodes += 1;
    shown.lastTotal = episode.total;
    agent.metrics.scalar("episode_reward", episode.total);
  }
  // A limit, not an end: the bandit would continue forever.
  agent.update(reward, [], false, isOver);
}

const bars = ARMS.map((_, arm) => {
  const row = element("arm").content.firstElementChild.cloneNode(true);
  row.querySelector("b").textContent = `arm ${arm}`;
  element("arms").append(row);
  return row;
});

function draw() {
  const { recent } = shown;
  bars.forEach((row, arm) => {
    const pulls = recent.filter((each) => each.arm === arm);
    const share = recent.length ? pulls.length / recent.length : 0;
    const mean = pulls.length ? pulls.reduce((sum, { reward }) => sum + reward, 0) / pulls.length : null;
    row.querySelector("i").style.width = `${100 * share}%`;
    row.querySelector("span").textContent = `${(100 * share).toFixed(0)} %`;
    row.querySelector("em").textContent = mean === null ? "–" : `pays ${mean.toFixed(2)}`;
  });
  element("pulls").textContent = shown.pulls.toLocaleString("en");
  element("episodes").textContent = shown.episodes.toLocaleString("en");
  element("total").textContent = shown.lastTotal ?? "–";
  const status = element("status");
  status.className = shown.error ? "bad" : shown.isConnected ? "good" : "";
  const trouble = shown.error ? `${shown.error}${shown.isConnected ? "" : ", trying again"}` : `connecting to ${server}`;
  status.textContent = shown.isConnected && !shown.error ? `connected to ${server}` : trouble;
  requestAnimationFrame(draw);
}

element("pause").addEventListener("click", (event) => {
  shown.isPaused = !shown.isPaused;
  event.target.textContent = shown.isPaused ? "Continue" : "Pause";
  if (shown.isPaused || waiting === null) return;
  const arm = Number(waiting);
  waiting = null;
  pull(arm);
});
element("reset").addEventListener("click", () => {
  if (isResetting || !shown.isConnected) return;
  isResetting = true;
  waiting = null;
  agent.reset();
});

agent.connect(1);
requestAnimationFrame(draw);
