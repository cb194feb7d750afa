/**
 * The client against a real server, whose address is in $RLX_SERVER: CartPole's spaces, and a policy that gives 1 where
 * state[2] is positive. tests/integration/rlx/clients/test_javascript.py starts it.
 */

import assert from "node:assert/strict";
import { test } from "node:test";

import { AgentProxy, Connection, NDArray, ReplyError, runEpisodes } from "../surreal-rlx.mjs";
import { tcpTransport } from "../surreal-rlx-node.mjs";

const SERVER = process.env.RLX_SERVER;
const NO_SERVER = SERVER ? false : "$RLX_SERVER names no server; pytest starts one";
const NO_WEBSOCKET = globalThis.WebSocket ? false : "this Node has no WebSocket: node --experimental-websocket, or Node 22";

const KINDS = [
  ["binary WebSocket", { form: "binary" }, NO_WEBSOCKET],
  ["JSON WebSocket", { form: "json" }, NO_WEBSOCKET],
  ["TCP", { transport: tcpTransport() }, false],
];

for (const [name, options, reason] of KINDS) {
  const skip = NO_SERVER || reason;
  const open = async (exploit = false) => {
    const agent = new AgentProxy(options.transport ? SERVER : `ws://${SERVER}`, options);
    await agent.connect();
    await agent.init(exploit);
    return agent;
  };

  test(`${name}: an episode from beginning to end`, { skip }, async () => {
    const agent = await open();
    assert.equal(await agent.update(null, [0, 0, 0.1, 0]), 1);
    assert.equal(await agent.update(1, Float32Array.of(0, 0, -0.1, 0)), 0);
    assert.equal(await agent.update(1, new NDArray(Float64Array.of(0, 0, 0.5, 0), [1, 4])), 1);
    assert.equal(await agent.update(0.5, [0, 0, 0, 0], true), null);
    assert.equal(await agent.reset(), "done");
    await agent.metrics.scalar(`js/${name}`, 2.5, 3);
    await agent.metrics.histogram("sizes", [1, 2, 3]);
    agent.disconnect();
  });

  test(`${name}: errors are replies`, { skip }, async () => {
    const agent = await open(true);
    await assert.rejects(agent.update(null, [1, 2, 3]), (error) => error instanceof ReplyError && /\(4,\)/.test(error.message));
    assert.equal(await agent.update(null, [0, 0, 1, 0]), 1);
    agent.disconnect();
  });

  test(`${name}: twenty episodes`, { skip }, async () => {
    const agent = await open();
    const rewards = [];
    await runEpisodes(
      agent,
      async (number) => {
        let action = await agent.update(null, [0, 0, 0.1, 0]);
        for (let step = 1; step < 10; step += 1) {
          const lean = action === 1 ? -0.1 : 0.1;
          action = await agent.update(1, [0, 0, lean, 0], false, step === 9);
          assert.equal(action, step === 9 ? null : Number(lean > 0));
        }
        return number;
      },
      { maxEpisodes: 20, onEpisode: (_, reward) => rewards.push(reward) },
    );
    assert.deepEqual(rewards, Array.from({ length: 20 }, (_, number) => number));
  });
}

for (const form of ["binary", "json"]) {
  test(`eight sessions share a WebSocket, ${form}`, { skip: NO_SERVER || NO_WEBSOCKET }, async () => {
    const connection = new Connection(`ws://${SERVER}`, { form });
    const agents = Array.from({ length: 8 }, () => new AgentProxy(connection));
    await Promise.all(agents.map((agent) => agent.connect()));
    await Promise.all(agents.map((agent) => agent.init()));
    for (let step = 0; step < 20; step += 1) {
      const lean = (index) => ((index + step) % 2 ? 0.1 : -0.1);
      const reward = step === 0 ? null : 1;
      const actions = await Promise.all(agents.map((agent, index) => agent.update(reward, [0, 0, lean(index), 0])));
      assert.deepEqual(actions, agents.map((_, index) => Number(lean(index) > 0)));
    }
    agents[0].disconnect();
    assert.equal(await agents[1].update(1, [0, 0, 0, 0], true), null);
    connection.close();
  });
}
