/**
 * The client against real servers, whose addresses are in $RLX_SERVER and, with TLS, $RLX_TLS_SERVER ($RLX_CA has its
 * certificate): states of four floats, a policy that gives 1 where state[2] is positive, and one that is called `ones`. tests/integration/rlx/clients/test_javascript.py starts it.
 */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { NodeWebSocket } from "../node-websocket.mjs";
import {
  AgentProxy,
  Connection,
  ConnectionLostError,
  NDArray,
  ReplyError,
  runEpisodes,
  webSocketTransport,
} from "../surreal-rlx.mjs";
import { tcpTransport } from "../surreal-rlx-node.mjs";

const SERVER = process.env.RLX_SERVER;
const SKIP = SERVER ? false : "$RLX_SERVER names no server; pytest starts one";

const nodeWebSocket = webSocketTransport(NodeWebSocket);
const KINDS = [
  ["binary WebSocket", `ws://${SERVER}`, { form: "binary", transport: nodeWebSocket }],
  ["JSON WebSocket", `ws://${SERVER}`, { form: "json", transport: nodeWebSocket }],
  ["TCP", SERVER, { transport: tcpTransport() }],
];
// Node has a WebSocket from version 22 on.
if (globalThis.WebSocket) KINDS.push(["global WebSocket", `ws://${SERVER}`, {}]);

for (const [name, address, options] of KINDS) {
  const open = async (exploit = false) => {
    const agent = new AgentProxy(address, options);
    await agent.connect();
    await agent.init(exploit);
    return agent;
  };

  test(`${name}: an episode from beginning to end`, { skip: SKIP }, async () => {
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

  test(`${name}: errors are replies`, { skip: SKIP }, async () => {
    const agent = await open(true);
    await assert.rejects(
      agent.update(null, [1, 2, 3]),
      (error) => error instanceof ReplyError && /\(4,\)/.test(error.message),
    );
    assert.equal(await agent.update(null, [0, 0, 1, 0]), 1);
    agent.disconnect();
  });

  test(`${name}: a policy by its name, and its Q values`, { skip: SKIP }, async () => {
    const agent = new AgentProxy(address, options);
    await agent.connect();
    await assert.rejects(agent.init(false, { policy: "onse" }), /did you mean ones/);
    await agent.init(false, { policy: "ones", want: ["q_values", "probabilities"] });
    assert.equal(await agent.update(null, [0, 0, -0.1, 0]), 1);
    const { q_values, probabilities } = agent.outputs;
    assert.deepEqual([Array.from(q_values.data ?? q_values), probabilities], [[9, 1], null]);
    assert.equal(await agent.update(1, [0, 0, 0, 0], true), null);
    assert.deepEqual(agent.outputs, {});
    agent.disconnect();
  });

  test(`${name}: a reward that becomes known later`, { skip: SKIP }, async () => {
    const agent = await open();
    await agent.update(null, [0, 0, 0.1, 0]);
    await agent.update(0, [0, 0, 0.1, 0], false, false, null, 30);
    const { stepId } = agent;
    await agent.update(1, [0, 0, 0.1, 0]);
    assert.equal(agent.stepId, null);
    assert.deepEqual([await agent.amend(stepId, 2.5), await agent.amend(stepId, 3)], [true, false]);
    agent.disconnect();
  });

  test(`${name}: twenty episodes`, { skip: SKIP }, async () => {
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
    assert.deepEqual(
      rewards,
      Array.from({ length: 20 }, (_, number) => number),
    );
  });
}

test("large states arrive whole, and are refused by name", { skip: SKIP }, async () => {
  for (const size of [100, 200, 70_000, 1_000_000]) {
    const agent = new AgentProxy(`ws://${SERVER}`, { transport: nodeWebSocket });
    await agent.connect();
    await agent.init();
    await assert.rejects(agent.update(null, new Uint8Array(size)), new RegExp(`got shape \\(${size},\\)`));
    agent.disconnect();
  }
});

const TLS_SERVER = process.env.RLX_TLS_SERVER;
const ca = TLS_SERVER && readFileSync(process.env.RLX_CA);
const NO_TLS = TLS_SERVER ? false : "$RLX_TLS_SERVER names no server; pytest starts one";

class TrustingWebSocket extends NodeWebSocket {
  constructor(url) {
    super(url, { ca });
  }
}

for (const [name, address, trusting, doubting] of [
  ["TCP", TLS_SERVER, tcpTransport({ tls: { ca } }), tcpTransport({ tls: true })],
  ["WebSocket", `wss://${TLS_SERVER}`, webSocketTransport(TrustingWebSocket), nodeWebSocket],
]) {
  test(`TLS over ${name}, and only with a certificate that is trusted`, { skip: NO_TLS }, async () => {
    const agent = new AgentProxy(address, { transport: trusting });
    await agent.connect();
    await agent.init();
    assert.equal(await agent.update(null, [0, 0, 1, 0]), 1);
    agent.disconnect();
    await assert.rejects(new AgentProxy(address, { transport: doubting }).connect(1), /certificate/);
  });
}

test("nobody there", async () => {
  const agent = new AgentProxy("ws://127.0.0.1:1", { transport: nodeWebSocket });
  await assert.rejects(agent.connect(1), ConnectionLostError);
});

for (const form of ["binary", "json"]) {
  test(`eight sessions share a WebSocket, ${form}`, { skip: SKIP }, async () => {
    const connection = new Connection(`ws://${SERVER}`, { form, transport: nodeWebSocket });
    const agents = Array.from({ length: 8 }, () => new AgentProxy(connection));
    await Promise.all(agents.map((agent) => agent.connect()));
    await Promise.all(agents.map((agent) => agent.init()));
    for (let step = 0; step < 20; step += 1) {
      const lean = (index) => ((index + step) % 2 ? 0.1 : -0.1);
      const reward = step === 0 ? null : 1;
      const actions = await Promise.all(agents.map((agent, index) => agent.update(reward, [0, 0, lean(index), 0])));
      assert.deepEqual(
        actions,
        agents.map((_, index) => Number(lean(index) > 0)),
      );
    }
    agents[0].disconnect();
    assert.equal(await agents[1].update(1, [0, 0, 0, 0], true), null);
    connection.close();
  });
}
