/** The session with callbacks: each is called once per event, in order. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { CallbackAgent } from "../callbacks.mjs";
import { tcpTransport } from "../surreal-rlx-node.mjs";
import { ConnectionLostError, ReplyError } from "../surreal-rlx.mjs";
import { OK, answerAll, peer } from "./peer.mjs";

const NAMES = ["connected", "ready", "action", "resetdone", "amended", "error", "disconnected"];

/** An agent that records its callbacks; `next()` waits for the next one. */
function noting(address, options = {}) {
  const agent = new CallbackAgent(address, { transport: tcpTransport(), ...options });
  const told = [];
  const waiting = [];
  for (const name of NAMES) {
    agent[`on${name}`] = (...values) => {
      const note = [name, ...values];
      if (waiting.length) waiting.shift()(note);
      else told.push(note);
    };
  }
  const next = () => (told.length ? Promise.resolve(told.shift()) : new Promise((resolve) => waiting.push(resolve)));
  return { agent, next, told };
}

test("a session from its beginning to its end", async (t) => {
  const { address, seen } = await peer(t, (request) =>
    request.command === "update" ? { response: "action", data: request.terminal ? null : 2 } : answerAll(request),
  );
  const { agent, next, told } = noting(address, { token: "s3cret" });
  agent.connect();
  assert.deepEqual(told, [], "nothing is told inside the call");
  assert.deepEqual(await next(), ["connected"]);
  assert.ok(agent.isConnected);
  agent.init(true);
  assert.deepEqual(await next(), ["ready"]);
  agent.update(null, []);
  assert.deepEqual(await next(), ["action", 2]);
  agent.update(1, [], true);
  assert.deepEqual(await next(), ["action", null]);
  agent.metrics.scalar("score", 3);
  agent.reset();
  assert.deepEqual(await next(), ["resetdone"]);
  agent.disconnect();
  assert.deepEqual(told, []);
  assert.deepEqual(await next(), ["disconnected", null]);
  assert.equal(agent.isConnected, false);
  assert.deepEqual(JSON.parse(JSON.stringify(seen[0])), { command: "init", exploit: true, token: "s3cret" });
  assert.deepEqual(
    seen.map(({ command }) => command),
    ["init", "update", "update", "update_metrics", "reset"],
  );
});

test("an intervention, and a reward that becomes known later", async (t) => {
  const { address, seen } = await peer(t, (request) => {
    if (request.command === "amend") return { response: "done", is_amended: request.reward === 2.5 };
    return request.amend_within_s ? { response: "action", data: 1, step_id: 7 } : answerAll(request);
  });
  const { agent, next } = noting(address);
  agent.connect();
  await next();
  agent.update(null, [0]);
  assert.deepEqual([await next(), agent.stepId], [["action", 1], null]);
  agent.update(0, [0], false, false, 3, 30);
  assert.deepEqual([await next(), agent.stepId], [["action", 1], 7]);
  agent.amend(7, 2.5);
  agent.amend(7, 3);
  assert.deepEqual([await next(), await next()], [["amended", true], ["amended", false]]);
  agent.disconnect();
  assert.deepEqual(
    seen.map(({ executed_action, amend_within_s, step_id }) => [executed_action, amend_within_s, step_id]),
    [
      [undefined, undefined, undefined],
      [3, 30, undefined],
      [undefined, undefined, 7],
      [undefined, undefined, 7],
    ],
  );
});

test("a request that is refused is an error, and the connection stays", async (t) => {
  const { address } = await peer(t, (_, count) => (count === 1 ? { response: "error", message: "no" } : OK.reset));
  const { agent, next } = noting(address);
  agent.connect();
  await next();
  agent.update(null, [0]);
  const [name, error] = await next();
  assert.equal(name, "error");
  assert.ok(error instanceof ReplyError && error.message === "no");
  agent.update(null, () => 1);
  assert.match((await next())[1].message, /cannot be sent/);
  agent.reset();
  assert.deepEqual(await next(), ["resetdone"]);
  agent.disconnect();
});

test("a connection that is lost is told once, whatever was waiting, and can be made again", async (t) => {
  let isRude = true;
  const { address } = await peer(t, (request, count) => {
    if (!isRude) return answerAll(request);
    return count === 3 ? "close" : null;
  });
  const { agent, next, told } = noting(address);
  agent.connect();
  await next();
  for (let i = 0; i < 3; i += 1) agent.update(null, [i]);
  const [name, error] = await next();
  assert.equal(name, "disconnected");
  assert.ok(error instanceof ConnectionLostError);
  await new Promise((resolve) => setTimeout(resolve, 20));
  assert.deepEqual(told, []);
  isRude = false;
  agent.connect();
  assert.deepEqual(await next(), ["connected"]);
  agent.init();
  assert.deepEqual(await next(), ["ready"]);
  agent.disconnect();
});

test("nobody there, and a request before there is a connection", async () => {
  const { agent, next } = noting("127.0.0.1:1");
  agent.connect(1);
  const [name, error] = await next();
  assert.equal(name, "disconnected");
  assert.ok(error instanceof ConnectionLostError);
  agent.init();
  const [second, refusal] = await next();
  assert.equal(second, "error");
  assert.match(refusal.message, /not connected/);
});

test("an error that nobody listens to goes to the console", async (t) => {
  const { address } = await peer(t, () => ({ response: "error", message: "unheard" }));
  const { agent, next } = noting(address);
  agent.connect();
  await next();
  agent.onerror = null;
  const heard = await new Promise((resolve) => {
    t.mock.method(console, "error", resolve);
    agent.reset();
  });
  assert.equal(heard.message, "unheard");
  agent.disconnect();
});
