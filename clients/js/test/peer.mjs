/** A server over TCP for tests, whose answers are functions of the requests. */

import net from "node:net";

import { decode, encode } from "../surreal-rlx.mjs";
import { FrameReader } from "../surreal-rlx-node.mjs";

/** A server over TCP that answers each request with the result of `answer`: a message, bytes, null (none), or "close". */
export async function peer(t, answer) {
  const sockets = new Set();
  const seen = [];
  const server = net.createServer((socket) => {
    sockets.add(socket);
    socket.on("error", () => {});
    const reader = new FrameReader();
    socket.on("data", (data) => {
      for (const payload of reader.feed(data)) {
        const request = decode(payload);
        seen.push(request);
        const reply = answer(request, seen.length);
        if (reply === "close") socket.destroy();
        else if (reply instanceof Uint8Array) socket.write(reply);
        else if (reply !== null) {
          const bytes = encode(reply);
          socket.write(Buffer.concat([Buffer.from(`${bytes.length}:`), bytes, Buffer.from(",")]));
        }
      }
    });
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return { address: `127.0.0.1:${server.address().port}`, seen };
}

export const OK = { init: { response: "ready" }, update: { response: "action", data: 1 }, reset: { response: "done" } };
export const answerAll = ({ command }) => OK[command] ?? { response: "done" };
