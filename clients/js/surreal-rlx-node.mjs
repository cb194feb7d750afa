/**
 * RLX over plain TCP, or TLS, for Node: what browsers cannot open.
 *
 *     import { AgentProxy } from "./surreal-rlx.mjs";
 *     import { tcpTransport } from "./surreal-rlx-node.mjs";
 *
 *     const agent = new AgentProxy("localhost:7001", { transport: tcpTransport() });
 * @module
 */

import net from "node:net";
import tls from "node:tls";

import { LIMITS } from "./codec.mjs";
import { ConnectionLostError } from "./surreal-rlx.mjs";

const COLON = 0x3a,
  COMMA = 0x2c,
  ZERO = 0x30,
  MAX_DIGITS = 9;

/**
 * Messages as netstrings.
 * @param {{ tls?: boolean | tls.ConnectionOptions }} [options] `tls`: encrypt; its options name trusted certificates
 * @returns {import("./surreal-rlx.mjs").Transport}
 */
export function tcpTransport(options = {}) {
  return (address, { onMessage, onClose, signal }) =>
    new Promise((resolve, reject) => {
      const { hostname, port } = new URL(address.includes("://") ? address : `rlx://${address}`);
      const host = hostname.replace(/^\[|\]$/g, "");
      const where = { host, port: Number(port || 7001) };
      const secure = typeof options.tls === "object" ? options.tls : {};
      const name = net.isIP(host) ? {} : { servername: host };
      const socket = options.tls ? tls.connect({ ...where, ...name, ...secure }) : net.connect(where);
      const reader = new FrameReader();
      let reason = "the server closed it";
      const abort = () => socket.destroy(new Error("no answer in time"));
      signal.addEventListener("abort", abort, { once: true });
      socket.setNoDelay(true);
      socket.once(options.tls ? "secureConnect" : "connect", () => {
        signal.removeEventListener("abort", abort);
        resolve({ send: (data) => sendFrame(socket, data), close: () => socket.end() });
      });
      socket.on("data", (data) => {
        try {
          for (const payload of reader.feed(data)) onMessage(payload);
        } catch (error) {
          socket.destroy(error);
        }
      });
      socket.on("error", (error) => {
        reason = error.message;
      });
      socket.on("close", () => {
        signal.removeEventListener("abort", abort);
        reject(new ConnectionLostError(`no connection to ${address}: ${reason}`));
        onClose(reason);
      });
    });
}

function sendFrame(socket, payload) {
  socket.cork();
  socket.write(`${payload.length}:`);
  socket.write(payload);
  socket.write(",");
  socket.uncork();
}

/** Takes a stream of netstrings apart, whatever pieces it arrives in. */
export class FrameReader {
  #pieces = [];
  #size = 0;
  #needed = 1;

  /** @param {Uint8Array} data @returns {Uint8Array[]} the payloads that are whole now */
  feed(data) {
    this.#pieces.push(data);
    this.#size += data.length;
    if (this.#size < this.#needed) return [];
    const bytes = this.#pieces.length === 1 ? data : Buffer.concat(this.#pieces);
    const found = [];
    let position = 0;
    this.#needed = 1;
    while (position < bytes.length) {
      const head = readLength(bytes, position);
      if (head === null) break;
      const end = head.start + head.length;
      if (end >= bytes.length) {
        this.#needed = end + 1 - position;
        break;
      }
      if (bytes[end] !== COMMA) throw new Error(`expected a comma after ${head.length} bytes`);
      found.push(bytes.subarray(head.start, end));
      position = end + 1;
    }
    this.#pieces = position < bytes.length ? [bytes.subarray(position)] : [];
    this.#size = bytes.length - position;
    if (this.#needed === 1) this.#needed = this.#size + 1;
    return found;
  }
}

/** Read `LENGTH:` at a position; null if it is not whole yet. */
function readLength(bytes, position) {
  let length = 0;
  for (let i = position; i < bytes.length; i += 1) {
    if (bytes[i] === COLON && i > position) {
      if (length > LIMITS.maxBytes) throw new Error(`a frame of ${length} bytes is over the limit`);
      return { length, start: i + 1 };
    }
    const digit = bytes[i] - ZERO;
    if (digit < 0 || digit > 9 || i - position >= MAX_DIGITS) throw new Error("expected the length of a frame");
    length = 10 * length + digit;
  }
  return null;
}
