/**
 * A session with callbacks, for games that do not control their loop: engines, timers, events of a page.
 *
 *     import { CallbackAgent } from "./callbacks.mjs";
 *
 *     const agent = new CallbackAgent("ws://localhost:7001");
 *     agent.onconnected = () => agent.init();
 *     agent.onready = () => agent.update(null, game.state());           // the first update of an episode has no reward
 *     agent.onaction = (action) => {
 *       if (action === null) return agent.update(null, game.reset());   // the episode is over: the next one
 *       const { reward, isOver } = game.step(action);
 *       agent.update(reward, game.state(), isOver);
 *     };
 *     agent.ondisconnected = () => agent.connect();
 *     agent.connect();
 *
 * | callback               | when                                                                        |
 * |------------------------|-----------------------------------------------------------------------------|
 * | `onconnected()`        | the connection is open                                                      |
 * | `onready()`            | `init` was answered: a session has begun                                    |
 * | `onaction(action)`     | `update` was answered; null at the end of an episode                        |
 * | `onresetdone()`        | `reset` was answered                                                        |
 * | `onamended(isInTime)`  | `amend` was answered; false also if the step is not experience              |
 * | `onerror(error)`       | the server refused a request, or it could not be sent; the connection stays |
 * | `ondisconnected(error)`| the connection is lost, or could not be had; null after `disconnect`        |
 *
 * Each is called once per event, and never inside the call that caused the event. Callbacks that are not set are
 * skipped, except that errors then go to the console.
 * @module
 */

import { AgentProxy, ConnectionLostError } from "./surreal-rlx.mjs";

export class CallbackAgent {
  /** @type {(() => void) | null} */
  onconnected = null;
  /** @type {(() => void) | null} */
  onready = null;
  /** @type {((action: any) => void) | null} */
  onaction = null;
  /** @type {(() => void) | null} */
  onresetdone = null;
  /** @type {((isInTime: boolean) => void) | null} */
  onamended = null;
  /** @type {((error: Error) => void) | null} */
  onerror = null;
  /** @type {((error: Error | null) => void) | null} */
  ondisconnected = null;

  #agent;
  #isConnected = false;

  /**
   * @param {string} address `ws://` or `wss://`
   * @param {import("./surreal-rlx.mjs").ConnectionOptions} [options]
   */
  constructor(address, options = {}) {
    this.#agent = new AgentProxy(address, options);
    const { metrics } = this.#agent;
    this.metrics = {
      /** Report a number for the run's metrics. @param {string} name @param {number} y */
      scalar: (name, y, x = null) => this.#ask(metrics.scalar(name, y, x), () => {}),
      /** Report the distribution of the numbers y. @param {string} name @param {ArrayLike<number>} y */
      histogram: (name, y, x = null) => this.#ask(metrics.histogram(name, y, x), () => {}),
    };
    this.#agent.connection.onClose = (error) => this.#disconnected(error);
  }

  get isConnected() {
    return this.#isConnected;
  }

  /** Connect. @param {number} [retry] attempts, with jittered waits between them */
  connect(retry = 6) {
    this.#agent.connect(retry).then(
      () => {
        this.#isConnected = true;
        this.onconnected?.();
      },
      (error) => {
        if (error instanceof ConnectionLostError) this.ondisconnected?.(error);
        else this.#failed(error);
      },
    );
  }

  /** What `init` wanted, of the last action. */
  get outputs() {
    return this.#agent.outputs;
  }

  /** Number of the last step, if its reward may be amended. */
  get stepId() {
    return this.#agent.stepId;
  }

  /**
   * Begin a session; arguments as in `AgentProxy`.
   * @param {boolean} [exploit] act greedily, and do not learn
   * @param {import("./surreal-rlx.mjs").Session} [session]
   */
  init(exploit = false, session = {}) {
    this.#ask(this.#agent.init(exploit, session), () => this.onready?.());
  }

  /**
   * Tell the agent what its last action led to, and ask for the next one; arguments as in `AgentProxy`.
   * @param {number | number[] | null} [reward] null in the first update of an episode
   * @param {unknown} [state]
   * @param {boolean} [terminal]
   * @param {boolean} [truncated]
   * @param {unknown} [executedAction]
   * @param {number | null} [amendWithinS]
   */
  update(
    reward = null,
    state = null,
    terminal = false,
    truncated = false,
    executedAction = null,
    amendWithinS = null,
  ) {
    const reply = this.#agent.update(reward, state, terminal, truncated, executedAction, amendWithinS);
    this.#ask(reply, (action) => this.onaction?.(action));
  }

  /** Replace the reward of a step that the server holds back. @param {number} stepId @param {number | number[]} reward */
  amend(stepId, reward) {
    this.#ask(this.#agent.amend(stepId, reward), (isInTime) => this.onamended?.(isInTime));
  }

  /** Abandon the current episode. */
  reset() {
    this.#ask(this.#agent.reset(), () => this.onresetdone?.());
  }

  /** End the session. */
  disconnect() {
    this.#agent.disconnect();
  }

  #ask(reply, tell) {
    const wasConnected = this.#isConnected;
    // Errors thrown by a callback are not caught: they are errors of the page.
    reply.then(tell, (error) => {
      // A lost connection is reported once, however many requests were waiting for an answer.
      if (!wasConnected || !(error instanceof ConnectionLostError)) this.#failed(error);
    });
  }

  #failed(error) {
    if (this.onerror) this.onerror(error);
    else console.error(error);
  }

  #disconnected(error) {
    if (!this.#isConnected) return;
    this.#isConnected = false;
    queueMicrotask(() => this.ondisconnected?.(error));
  }
}
