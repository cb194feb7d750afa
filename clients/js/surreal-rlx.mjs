/**
 * RLX in JavaScript: an environment in a browser (or in Node) is driven by an agent elsewhere. No dependencies.
 *
 *     import { AgentProxy } from "./surreal-rlx.mjs";
 *
 *     const agent = new AgentProxy("ws://localhost:7001");
 *     await agent.connect();
 *     await agent.init();
 *     let action = await agent.update(null, game.state());        // the first update of an episode has no reward
 *     while (playing) {
 *       const { reward, isOver } = game.step(action);
 *       action = await agent.update(reward, game.state(), isOver);
 *     }
 *     agent.disconnect();
 *
 * The calls are those of the Python client. Node has a global `WebSocket` from version 22 on. Before, hand one in:
 * `{ transport: webSocketTransport(NodeWebSocket) }` with `node-websocket.mjs`; or use plain TCP, `surreal-rlx-node.mjs`.
 * @module
 */

import { RlxCodecError, decode, encode, toJson } from "./codec.mjs";

export { Double, LIMITS, NDArray, RlxCodecError, RlxImage, decode, encode, toJson } from "./codec.mjs";

/** Any failure of an agent. */
export class AgentProxyError extends Error {
  name = "AgentProxyError";
}

/** The server answered with an error, which is the message; the connection stays open. */
export class ReplyError extends AgentProxyError {
  name = "ReplyError";
}

/** There is no connection, it was lost, or an answer did not come in time: connect again. */
export class ConnectionLostError extends AgentProxyError {
  name = "ConnectionLostError";
}

/**
 * @typedef {object} Link an open connection
 * @property {(data: Uint8Array | string) => void} send
 * @property {() => void} close
 */

/**
 * @callback Transport opens a connection to an address; rejects if that fails or `signal` is aborted
 * @param {string} address
 * @param {{ onMessage: (data: Uint8Array | string) => void, onClose: (reason: string) => void, signal: AbortSignal }} on
 * @returns {Promise<Link>}
 */

/**
 * @typedef {object} ConnectionOptions
 * @property {"binary" | "json"} [form] how messages are written; "binary" is smaller, faster, and keeps dtypes and shapes
 * @property {number} [timeoutMs] longest wait for one answer; default: a minute
 * @property {number} [connectTimeoutMs] longest wait for one attempt to connect; default: ten seconds
 * @property {string | null} [token] the token that the server requires
 * @property {Transport} [transport] default: the global WebSocket
 */

/**
 * @typedef {object} Session
 * @property {string | null} [policy] the one of the server's policies that acts; default: the run's, which learns
 * @property {("q_values" | "probabilities")[]} [want] what `outputs` has after each action
 */

/** Messages over a WebSocket. @param {typeof WebSocket} [Implementation] @returns {Transport} */
export function webSocketTransport(Implementation = globalThis.WebSocket) {
  return (address, { onMessage, onClose, signal }) =>
    new Promise((resolve, reject) => {
      if (Implementation === undefined) {
        reject(new AgentProxyError("there is no global WebSocket here; hand one in: webSocketTransport(WebSocket)"));
        return;
      }
      const socket = new Implementation(address.includes("://") ? address : `ws://${address}`);
      socket.binaryType = "arraybuffer";
      const abort = () => {
        reject(new ConnectionLostError(`${address} did not answer in time`));
        socket.close();
      };
      signal.addEventListener("abort", abort, { once: true });
      socket.onopen = () => {
        signal.removeEventListener("abort", abort);
        const send = (data) => {
          // A socket that is closing accepts data and drops it.
          if (socket.readyState !== Implementation.OPEN) throw new Error("the socket is closing");
          socket.send(data);
        };
        resolve({ send, close: () => socket.close() });
      };
      socket.onmessage = ({ data }) => onMessage(typeof data === "string" ? data : new Uint8Array(data));
      socket.onclose = ({ code, reason }) => {
        signal.removeEventListener("abort", abort);
        const why = `closed with ${code}${reason ? `: ${reason}` : ""}`;
        reject(new ConnectionLostError(`no connection to ${address}: ${why}`));
        onClose(why);
      };
    });
}

/** One connection. It may carry several sessions: `new AgentProxy(connection)` for each. */
export class Connection {
  /** Requests that wait for their answers, first in, first out, by session. @type {Map<string | null, object[]>} */
  #waiting = new Map();
  /** @type {Link | null} */
  #link = null;
  /** @type {Promise<void> | null} */
  #opening = null;
  #sessions = 0;
  /** Called once when it closes: with the reason if it was lost, with null if it was closed here. @type {((error: Error | null) => void) | null} */
  onClose = null;

  /** @param {string} address @param {ConnectionOptions} [options] */
  constructor(address, options = {}) {
    const { form = "binary", timeoutMs = 60_000, connectTimeoutMs = 10_000, token = null, transport } = options;
    if (form !== "binary" && form !== "json") throw new TypeError(`form is ${form}; it must be "binary" or "json"`);
    Object.assign(this, { address, form, timeoutMs, connectTimeoutMs, token });
    this.transport = transport ?? webSocketTransport();
  }

  get isOpen() {
    return this.#link !== null;
  }

  /** Return a new session's name on this connection. */
  newSessionId() {
    this.#sessions += 1;
    return `s${this.#sessions}`;
  }

  /** Open the connection, unless it is open or opening. */
  open() {
    if (this.#link !== null) return Promise.resolve();
    this.#opening ??= this.#open().finally(() => {
      this.#opening = null;
    });
    return this.#opening;
  }

  async #open() {
    const controller = new AbortController();
    const timer = setTimeout(() => controller.abort(), this.connectTimeoutMs);
    let link = null;
    let isClosed = false;
    try {
      link = await this.transport(this.address, {
        onMessage: (data) => this.#receive(data),
        onClose: (reason) => {
          isClosed = true;
          if (link !== null && this.#link === link) this.#drop(`the connection to ${this.address} is lost: ${reason}`);
        },
        signal: controller.signal,
      });
    } finally {
      clearTimeout(timer);
    }
    if (isClosed) throw new ConnectionLostError(`${this.address} closed the connection at once`);
    this.#link = link;
  }

  /**
   * Send a request, and return a promise of its answer.
   * @param {Record<string, unknown>} message
   * @param {string | null} sid the session; null: the only one
   * @returns {Promise<Record<string, any>>}
   */
  request(message, sid) {
    return new Promise((resolve, reject) => {
      this.post(message, sid);
      const timer = setTimeout(
        () => this.#drop(`${this.address} did not answer within ${this.timeoutMs} ms`),
        this.timeoutMs,
      );
      const settle = (then) => (value) => {
        clearTimeout(timer);
        then(value);
      };
      if (!this.#waiting.has(sid)) this.#waiting.set(sid, []);
      this.#waiting.get(sid).push({ resolve: settle(resolve), reject: settle(reject) });
    });
  }

  /** Send a message that has no answer. */
  post(message, sid) {
    if (this.#link === null) throw new ConnectionLostError(`not connected to ${this.address}`);
    const whole = sid === null ? message : { sid, ...message };
    try {
      this.#link.send(this.form === "json" ? JSON.stringify(toJson(whole)) : encode(whole));
    } catch (error) {
      if (error instanceof RlxCodecError) {
        throw new AgentProxyError(`${message.command} cannot be sent: ${error.message}`, { cause: error });
      }
      throw new ConnectionLostError(`the connection to ${this.address} is lost: ${error.message}`, { cause: error });
    }
  }

  close() {
    this.#drop("disconnected", ConnectionLostError, true);
  }

  #receive(data) {
    let reply;
    try {
      reply = typeof data === "string" ? JSON.parse(data) : decode(data);
    } catch (error) {
      this.#drop(`${this.address} answers what is no RLX message: ${error.message}`);
      return;
    }
    const sid = reply.sid ?? null;
    const request = this.#waiting.get(sid)?.shift();
    if (this.#waiting.get(sid)?.length === 0) this.#waiting.delete(sid);
    if (request !== undefined) request.resolve(reply);
    else if (reply.response === "error") this.#drop(String(reply.message), ReplyError);
  }

  /** Close the connection, and reject all waiting requests. */
  #drop(reason, Kind = ConnectionLostError, isWanted = false) {
    const link = this.#link;
    this.#link = null;
    link?.close();
    const waiting = [...this.#waiting.values()].flat();
    this.#waiting.clear();
    for (const request of waiting) request.reject(new Kind(reason));
    if (link !== null) this.onClose?.(isWanted ? null : new Kind(reason));
  }
}

/** One session with a server: one environment, one agent. */
export class AgentProxy {
  #ownsConnection;

  /**
   * @param {string | Connection} address `ws://` or `wss://`; or a connection that is shared with others
   * @param {ConnectionOptions} [options] used if `address` is not a Connection
   */
  constructor(address, options = {}) {
    this.#ownsConnection = !(address instanceof Connection);
    /** @type {Connection} */
    this.connection = this.#ownsConnection ? new Connection(address, options) : address;
    /** @type {string | null} */
    this.sid = this.#ownsConnection ? null : this.connection.newSessionId();
    /** What `init` wanted, of the last action. @type {{ q_values?: any, probabilities?: any }} */
    this.outputs = {};
    /** Number of the last step, if its reward may be amended. @type {number | null} */
    this.stepId = null;
    this.metrics = {
      /** Report a number at x; null: at the run's global step. @param {string} name @param {number} y */
      scalar: (name, y, x = null) => this.updateMetrics([{ method: "scalar", name, y, x }]),
      /** Report the distribution of the numbers y. @param {string} name @param {ArrayLike<number>} y */
      histogram: (name, y, x = null) => this.updateMetrics([{ method: "histogram", name, y, x }]),
    };
  }

  get isConnected() {
    return this.connection.isOpen;
  }

  /** @param {number} [retry] attempts, with jittered waits between them @param {AbortSignal} [signal] ends the waiting */
  async connect(retry = 6, signal) {
    if (this.#ownsConnection) this.connection.close();
    await retrying(retry, () => this.connection.open(), signal);
  }

  /**
   * Begin a session.
   * @param {boolean} [exploit] act greedily, and do not learn
   * @param {Session} [session]
   * @returns {Promise<"ready">}
   */
  async init(exploit = false, { policy = null, want = [] } = {}) {
    const message = { command: "init", exploit: Boolean(exploit) };
    if (this.connection.token !== null) message.token = this.connection.token;
    if (policy !== null) message.policy = policy;
    if (want.length > 0) message.want = want;
    return (await this.#exchange(message)).response;
  }

  /**
   * Tell the agent what its last action led to, and ask for the next one.
   * @param {number | number[] | null} [reward] null in the first update of an episode
   * @param {unknown} [state] an array, a typed array, an image, an object; null if the environment has no state
   * @param {boolean} [terminal] the episode is over
   * @param {boolean} [truncated] the episode is over because of a limit, not by the game's rules; implies `terminal`
   * @param {unknown} [executedAction] the action that led to this reward, if something replaced the agent's
   * @param {number | null} [amendWithinS] how long the reward may be amended, s: the server holds the step back until
   *   `amend` is called for `stepId`, or so long; default: the reward is final
   * @returns {Promise<any>} the action; null when the episode is over
   */
  async update(
    reward = null,
    state = null,
    terminal = false,
    truncated = false,
    executedAction = null,
    amendWithinS = null,
  ) {
    const message = { command: "update", reward, state, terminal: Boolean(terminal || truncated) };
    if (truncated) message.truncated = true;
    if (executedAction !== null) message.executed_action = executedAction;
    if (amendWithinS !== null) message.amend_within_s = amendWithinS;
    const { response, data, sid, step_id, ...outputs } = await this.#exchange(message);
    this.outputs = outputs;
    this.stepId = step_id ?? null;
    return data ?? null;
  }

  /**
   * Replace the reward of a step that the server holds back; also in a later session with the same server.
   * @param {number} stepId what `agent.stepId` was after its update
   * @param {number | number[]} reward the reward that counts
   * @returns {Promise<boolean>} whether it was in time, and the step is experience
   */
  async amend(stepId, reward) {
    return (await this.#exchange({ command: "amend", step_id: stepId, reward })).is_amended === true;
  }

  /** Abandon the current episode. @returns {Promise<"done">} */
  async reset() {
    return (await this.#exchange({ command: "reset" })).response;
  }

  /** @param {{ method: "scalar" | "histogram", name: string, y: unknown, x: number | null }[]} records */
  async updateMetrics(records) {
    await this.#exchange({ command: "update_metrics", data: records });
  }

  /** End the session, and the connection unless it is shared. */
  disconnect() {
    if (this.#ownsConnection) this.connection.close();
    else if (this.connection.isOpen) this.connection.post({ command: "disconnect" }, this.sid);
  }

  async #exchange(message) {
    const reply = await this.connection.request(message, this.sid);
    if (reply.response === "error") throw new ReplyError(String(reply.message ?? "the server gives no reason"));
    if (reply.response === undefined) throw new AgentProxyError("the server answers without a `response`");
    return reply;
  }
}

/**
 * Play episodes. After a lost connection, connect again and repeat the episode; any other failure ends the run with it.
 * @param {AgentProxy} agent
 * @param {(number: number) => Promise<number | null>} episode plays one with `agent`, and returns its reward
 * @param {Session & { maxEpisodes?: number, exploit?: boolean, attempts?: number, signal?: AbortSignal,
 *   onEpisode?: (number: number, reward: number | null) => void,
 *   onConnection?: (isConnected: boolean, error: Error | null) => void }} [options]
 */
export async function runEpisodes(agent, episode, options = {}) {
  const { maxEpisodes = Infinity, exploit = false, attempts = 10, signal, onEpisode, onConnection } = options;
  const begin = async () => {
    await retrying(
      attempts,
      async () => {
        await agent.connect(1);
        await agent.init(exploit, options);
      },
      signal,
    );
    onConnection?.(true, null);
  };
  const record = (reward) =>
    agent.updateMetrics(
      ["episode_reward", "game_score"].map((name) => ({ method: "scalar", name, y: reward, x: null })),
    );
  try {
    await begin();
    for (let number = 0; number < maxEpisodes && !signal?.aborted;) {
      try {
        const reward = await episode(number);
        number += 1;
        onEpisode?.(number - 1, reward);
        // Servers drop connections at the end of an episode.
        if (reward !== null) await record(reward).catch((error) => again(error, begin).then(() => record(reward)));
      } catch (error) {
        onConnection?.(false, error);
        await again(error, begin);
      }
    }
  } catch (error) {
    if (!signal?.aborted) throw error;
  } finally {
    agent.disconnect();
  }
}

async function again(error, begin) {
  if (!(error instanceof ConnectionLostError)) throw error;
  await begin();
}

async function retrying(attempts, action, signal) {
  for (let attempt = 1; ; attempt += 1) {
    if (signal?.aborted) throw new ConnectionLostError("stopped");
    try {
      return await action();
    } catch (error) {
      if (!(error instanceof ConnectionLostError) || attempt >= attempts || signal?.aborted) throw error;
      await pause(Math.min(8000, 500 * 2 ** (attempt - 1)) * (0.5 + Math.random() / 2), signal);
    }
  }
}

function pause(milliseconds, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    signal?.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}
