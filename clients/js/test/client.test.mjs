/** The client against test peers: failures, timeouts, and how it handles them. */

import assert from "node:assert/strict";
import { test } from "node:test";

import {
  AgentProxy,
  AgentProxyError,
  Connection,
  ConnectionLostError,
  ReplyError,
  runEpisodes,
} from "../surreal-rlx.mjs";
import { tcpTransport } from "../surreal-rlx-node.mjs";
import { OK, answerAll, peer } from "./peer.mjs";

const proxy = (address, options = {}) => new AgentProxy(address, { transport: tcpTransport(), ...options });

test("requests are what the protocol says", async (t) => {
  const { address, seen } = await peer(t, answerAll);
  const agent = proxy(address, { token: "s3cret" });
  await agent.connect();
  assert.equal(await agent.init(true), "ready");
  assert.equal(await agent.update(null, [0.5]), 1);
  assert.equal(await agent.update(1, Float32Array.of(1), false, true), 1);
  assert.equal(await agent.reset(), "done");
  await agent.metrics.scalar("a", 2);
  agent.disconnect();
  const plain = JSON.parse(JSON.stringify(seen));
  assert.deepEqual(plain[0], { command: "init", exploit: true, token: "s3cret" });
  assert.deepEqual(plain[1], { command: "update", reward: null, state: [0.5], terminal: false });
  assert.deepEqual([plain[2].terminal, plain[2].truncated, plain[2].state.dtype], [true, true, "float32"]);
  assert.deepEqual(plain[4].data, [{ method: "scalar", name: "a", y: 2, x: null }]);
});

test("answers that come together go to their requests in order", async (t) => {
  const { address } = await peer(t, ({ reward }) => ({ response: "action", data: reward }));
  const agent = proxy(address);
  await agent.connect();
  const answers = await Promise.all([1, 2, 3, 4].map((reward) => agent.update(reward, [0])));
  assert.deepEqual(answers, [1, 2, 3, 4]);
  agent.disconnect();
});

test("an error reply leaves the connection open", async (t) => {
  const { address } = await peer(t, (_, count) => (count === 1 ? { response: "error", message: "no" } : OK.reset));
  const agent = proxy(address);
  await agent.connect();
  await assert.rejects(agent.update(), (error) => error instanceof ReplyError && error.message === "no");
  assert.equal(await agent.reset(), "done");
  agent.disconnect();
});

test("a lost connection fails everything that waits, and is told apart", async (t) => {
  const { address } = await peer(t, (_, count) => (count === 3 ? "close" : null));
  const agent = proxy(address);
  await agent.connect();
  for (const outcome of await Promise.allSettled([agent.update(), agent.update(), agent.update()])) {
    assert.ok(outcome.reason instanceof ConnectionLostError, String(outcome.reason));
  }
  assert.equal(agent.isConnected, false);
  await assert.rejects(agent.update(), ConnectionLostError);
});

test("no answer in time closes the connection: the answer would be taken for another's", async (t) => {
  const { address } = await peer(t, () => null);
  const agent = proxy(address, { timeoutMs: 50 });
  await agent.connect();
  await assert.rejects(agent.init(), /did not answer within 50 ms/);
  assert.equal(agent.isConnected, false);
});

for (const garbage of ["x", "999999999:", "3:abcd", "3:abc,"]) {
  test(`a peer that answers ${garbage}`, async (t) => {
    const { address } = await peer(t, () => Buffer.from(garbage));
    const agent = proxy(address, { timeoutMs: 5000 });
    await agent.connect();
    await assert.rejects(agent.init(), AgentProxyError);
    assert.equal(agent.isConnected, false);
  });
}

test("a state that cannot be sent costs nothing", async (t) => {
  const { address, seen } = await peer(t, answerAll);
  const agent = proxy(address);
  await agent.connect();
  await assert.rejects(
    agent.update(null, () => 1),
    /cannot be sent/,
  );
  assert.equal(await agent.update(null, [1]), 1);
  assert.equal(seen.length, 1);
  agent.disconnect();
});

test("nobody there", async () => {
  const agent = proxy("127.0.0.1:1", { connectTimeoutMs: 2000 });
  await assert.rejects(agent.connect(1), ConnectionLostError);
});

test("several sessions on one connection are told apart in both forms", async (t) => {
  const { address, seen } = await peer(t, ({ sid }) => ({ response: "action", data: sid, sid }));
  const connection = new Connection(address, { transport: tcpTransport() });
  const agents = [new AgentProxy(connection), new AgentProxy(connection)];
  await Promise.all(agents.map((agent) => agent.connect()));
  const answers = await Promise.all([agents[1].update(), agents[0].update(), agents[1].update()]);
  assert.deepEqual(answers, ["s2", "s1", "s2"]);
  agents[0].disconnect();
  assert.equal(await agents[1].update(), "s2");
  assert.deepEqual([seen.at(-2).command, seen.at(-2).sid], ["disconnect", "s1"]);
  connection.close();
});

test("an episode that was cut off is repeated, one that ended is not", async (t) => {
  let updates = 0;
  let metrics = 0;
  const { address } = await peer(t, (request) => {
    if (request.command === "update" && ++updates === 3) return "close";
    if (request.command === "update_metrics" && ++metrics === 2) return "close";
    return answerAll(request);
  });
  const agent = proxy(address);
  const numbers = [];
  const recorded = [];
  await runEpisodes(
    agent,
    async (number) => {
      numbers.push(number);
      await agent.update(null, [0]);
      await agent.update(1, [0], true);
      return number;
    },
    { maxEpisodes: 3, onEpisode: (number, reward) => recorded.push([number, reward]) },
  );
  assert.deepEqual(numbers, [0, 1, 1, 2]);
  assert.deepEqual(recorded, [
    [0, 0],
    [1, 1],
    [2, 2],
  ]);
  assert.equal(metrics, 4);
  assert.equal(agent.isConnected, false);
});

test("an error reply ends the run with it", async (t) => {
  const { address } = await peer(t, ({ command }) =>
    command === "init" ? OK.init : { response: "error", message: "no" },
  );
  const agent = proxy(address);
  await assert.rejects(
    runEpisodes(agent, () => agent.update()),
    ReplyError,
  );
});

test("a run ends when its signal says so, also while it waits for a server", async () => {
  const controller = new AbortController();
  const run = runEpisodes(proxy("127.0.0.1:1"), async () => 1, { attempts: Infinity, signal: controller.signal });
  setTimeout(() => controller.abort(), 20);
  await run;
});
