/**
 * The parts of a WebSocket that RLX needs (RFC 6455, client side), for Node before version 22, which has none.
 *
 *     import { NodeWebSocket } from "./node-websocket.mjs";
 *     const agent = new AgentProxy("ws://localhost:7001", { transport: webSocketTransport(NodeWebSocket) });
 * @module
 */

import { createHash, randomBytes } from "node:crypto";
import http from "node:http";
import https from "node:https";

import { LIMITS } from "./codec.mjs";

const CONTINUATION = 0,
  TEXT = 1,
  BINARY = 2,
  CLOSE = 8,
  PING = 9,
  PONG = 10;
const GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
const CLOSE_TIMEOUT_MS = 2000;

export class NodeWebSocket {
  static CONNECTING = 0;
  static OPEN = 1;
  static CLOSING = 2;
  static CLOSED = 3;

  readyState = NodeWebSocket.CONNECTING;
  binaryType = "arraybuffer";
  onopen = null;
  onmessage = null;
  onerror = null;
  onclose = null;

  #request;
  #socket = null;
  #buffer = Buffer.alloc(0);
  #needed = 2;
  #parts = [];
  #kind = TEXT;
  #code = 1006;
  #reason = "";

  /** @param {string} url `ws://` or `wss://` @param {https.RequestOptions} [options] such as trusted certificates */
  constructor(url, options = {}) {
    const target = new URL(url);
    const key = randomBytes(16).toString("base64");
    const headers = {
      Connection: "Upgrade",
      Upgrade: "websocket",
      "Sec-WebSocket-Version": "13",
      "Sec-WebSocket-Key": key,
    };
    const isSecure = target.protocol === "wss:";
    target.protocol = isSecure ? "https:" : "http:";
    this.#request = (isSecure ? https : http).request(target, { ...options, agent: false, headers });
    this.#request.on("error", (error) => this.#end(error.message));
    this.#request.on("response", (response) => {
      response.resume();
      this.#end(`the server answers ${response.statusCode} instead of a WebSocket`);
    });
    this.#request.on("upgrade", (response, socket, head) => {
      const expected = createHash("sha1")
        .update(key + GUID)
        .digest("base64");
      if (response.headers["sec-websocket-accept"] !== expected) {
        socket.destroy();
        this.#end("the server accepts another WebSocket than this");
        return;
      }
      this.#start(socket, head);
    });
    this.#request.end();
  }

  /** @param {string | Uint8Array} data */
  send(data) {
    if (this.readyState !== NodeWebSocket.OPEN) throw new Error("the WebSocket is not open");
    const isText = typeof data === "string";
    this.#write(isText ? TEXT : BINARY, isText ? Buffer.from(data) : data);
  }

  close(code = 1000) {
    if (this.readyState === NodeWebSocket.CONNECTING) {
      this.#request.destroy();
      this.#end("closed before it was open");
    } else if (this.readyState === NodeWebSocket.OPEN) {
      this.readyState = NodeWebSocket.CLOSING;
      this.#write(CLOSE, Buffer.of(code >> 8, code & 255));
      this.#socket.end();
      setTimeout(() => this.#socket.destroy(), CLOSE_TIMEOUT_MS).unref();
    }
  }

  #start(socket, head) {
    this.#socket = socket;
    this.readyState = NodeWebSocket.OPEN;
    socket.setNoDelay(true);
    socket.on("data", (data) => this.#feed(data));
    socket.on("error", (error) => (this.#reason ||= error.message));
    socket.on("close", () => this.#end(this.#reason));
    this.onopen?.({});
    if (head.length > 0) this.#feed(head);
  }

  #feed(data) {
    this.#buffer = this.#buffer.length === 0 ? data : Buffer.concat([this.#buffer, data]);
    try {
      while (this.#buffer.length >= this.#needed && this.#takeFrame());
    } catch (error) {
      this.#reason = error.message;
      this.#socket.destroy();
    }
  }

  /** Take one frame from the buffer, if it is whole. */
  #takeFrame() {
    const buffer = this.#buffer;
    const short = buffer[1] & 127;
    const head = short === 126 ? 4 : short === 127 ? 10 : 2;
    if (buffer.length < head) return void (this.#needed = head);
    const size = short === 126 ? buffer.readUInt16BE(2) : short === 127 ? Number(buffer.readBigUInt64BE(2)) : short;
    if (size > LIMITS.maxBytes || buffer[1] & 128)
      throw new Error(`a frame of ${size} bytes, over the limit or masked`);
    if (buffer.length < head + size) return void (this.#needed = head + size);
    const data = Buffer.from(buffer.subarray(head, head + size));
    this.#buffer = buffer.subarray(head + size);
    this.#needed = 2;
    this.#takeData(buffer[0] & 15, Boolean(buffer[0] & 128), data);
    return true;
  }

  #takeData(opcode, isFinal, data) {
    if (opcode === PING) this.#write(PONG, data);
    if (opcode === CLOSE) {
      this.#code = data.length >= 2 ? data.readUInt16BE(0) : 1005;
      this.#reason = data.toString("utf8", 2);
      this.close();
    }
    if (opcode > BINARY) return;
    if (opcode !== CONTINUATION) this.#kind = opcode;
    this.#parts.push(data);
    if (!isFinal) return;
    const whole = this.#parts.length === 1 ? data : Buffer.concat(this.#parts);
    this.#parts = [];
    const { buffer, byteOffset, byteLength } = whole;
    this.onmessage?.({
      data: this.#kind === TEXT ? whole.toString() : buffer.slice(byteOffset, byteOffset + byteLength),
    });
  }

  #write(opcode, data) {
    const size = data.length;
    const head = Buffer.alloc(size < 126 ? 2 : size < 65536 ? 4 : 10);
    head[0] = 128 | opcode;
    head[1] = 128 | (size < 126 ? size : size < 65536 ? 126 : 127);
    if (head.length === 4) head.writeUInt16BE(size, 2);
    if (head.length === 10) head.writeBigUInt64BE(BigInt(size), 2);
    const mask = randomBytes(4);
    const masked = Buffer.from(data);
    for (let i = 0; i < size; i += 1) masked[i] ^= mask[i & 3];
    this.#socket.write(Buffer.concat([head, mask, masked]));
  }

  #end(reason) {
    if (this.readyState === NodeWebSocket.CLOSED) return;
    this.readyState = NodeWebSocket.CLOSED;
    this.onclose?.({ code: this.#code, reason });
  }
}
