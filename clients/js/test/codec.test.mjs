/** The codec: its bytes equal those of RELAAX's encoder, and malformed input raises only RlxCodecError. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { Double, NDArray, RlxCodecError, RlxImage, decode, encode, toJson } from "../codec.mjs";
import { FrameReader } from "../surreal-rlx-node.mjs";

const VECTORS = JSON.parse(readFileSync(new URL("../../../tests/golden/rlx_vectors.json", import.meta.url), "utf8"));

/** Values to encode, each with the decoded value if it differs. */
const VALUES = {
  init: [{ command: "init", exploit: false }],
  ready: [{ response: "ready" }],
  reset: [{ command: "reset" }],
  done: [{ response: "done" }],
  update_list: [{ command: "update", reward: null, state: [1, -2.5], terminal: false }],
  nd_u8: [{ s: new NDArray(Uint8Array.of(0, 1, 2, 3, 4, 5), [2, 3]) }],
  nd_empty: [{ s: new Float64Array(0) }, { s: new NDArray(new Float64Array(0), [0]) }],
  img_L: [
    { s: new RlxImage("L", 3, 2, Uint8Array.of(0, 1, 2, 3, 4, 5)) },
    {
      s: new NDArray(
        Float32Array.from([0, 1, 2, 3, 4, 5], (value) => value / 255),
        [2, 3],
      ),
    },
  ],
  img_1: [
    { s: new RlxImage("1", 8, 1, Uint8Array.of(0xa5)) },
    { s: new NDArray(Uint8Array.of(1, 0, 1, 0, 0, 1, 0, 1), [1, 8], "bool") },
  ],
  dict: [{ s: { a: 1, b: [null, true, "x"] } }],
  i64: [{ d: 2 ** 40 }],
  f64: [{ d: 0.5 }],
  error: [{ response: "error", message: "can't reset agent" }],
  action_i64: [
    { response: "action", data: 2n },
    { response: "action", data: 2 },
  ],
};

/** Objects of the decoder have no prototype, so deepStrictEqual would not accept them. */
function plain(value) {
  if (Array.isArray(value)) return value.map(plain);
  if (value === null || typeof value !== "object" || value instanceof NDArray) return value;
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, plain(item)]));
}

const payloadOf = (hex) => {
  const payloads = new FrameReader().feed(Buffer.from(hex, "hex"));
  assert.equal(payloads.length, 1);
  return payloads[0];
};
const roundTrip = (value) => plain(decode(encode({ value }))).value;

test("every golden vector has its value here", () => {
  assert.deepEqual(Object.keys(VALUES).sort(), Object.keys(VECTORS).sort());
});

for (const [name, [value, back = value]] of Object.entries(VALUES)) {
  test(`golden vector ${name}`, () => {
    const payload = payloadOf(VECTORS[name].frame_hex);
    assert.equal(Buffer.from(encode(value)).toString("hex"), payload.toString("hex"));
    assert.deepEqual(plain(decode(payload)), back);
  });
}

test("numbers keep their kind and value", () => {
  for (const value of [0, 1, -1, 2147483647, -2147483648, 2147483648, -1e15, 0.1, 1e300, Infinity, -Infinity]) {
    assert.equal(roundTrip(value), value);
  }
  assert.ok(Object.is(roundTrip(-0), -0));
  assert.ok(Number.isNaN(roundTrip(NaN)));
  assert.equal(roundTrip(2n ** 62n), 2n ** 62n);
  assert.equal(roundTrip(7n), 7);
  assert.equal(encode({ a: new Double(1) }).length, encode({ a: 1 }).length + 4);
  assert.throws(() => encode({ a: 2n ** 63n }), RlxCodecError);
});

test("every typed array comes back as it was", () => {
  const types = [Int8Array, Uint8Array, Int16Array, Uint16Array, Int32Array, Uint32Array, Float32Array, Float64Array];
  for (const Type of types) assert.deepEqual(roundTrip(Type.of(1, 2, 250)), new NDArray(Type.of(1, 2, 250)));
  assert.deepEqual(roundTrip(BigInt64Array.of(-5n)), new NDArray(BigInt64Array.of(-5n)));
  assert.deepEqual(roundTrip(BigUint64Array.of(2n ** 63n)), new NDArray(BigUint64Array.of(2n ** 63n)));
  const part = new Float32Array([0, 1, 2, 3]).subarray(1, 3);
  assert.deepEqual(roundTrip(part), new NDArray(Float32Array.of(1, 2)));
});

test("shapes: none, empty, and many dimensions", () => {
  assert.deepEqual(roundTrip(new NDArray(Float64Array.of(3), [])).toList(), 3);
  assert.deepEqual(roundTrip(new NDArray(new Int8Array(0), [2, 0])).toList(), [[], []]);
  assert.deepEqual(roundTrip(new NDArray(Int8Array.of(1, 2, 3, 4), [2, 1, 2])).toList(), [[[1, 2]], [[3, 4]]]);
  assert.throws(() => encode({ a: new NDArray(Int8Array.of(1, 2), [3]) }), RlxCodecError);
});

test("dtypes that JavaScript does not have", () => {
  const big = decode(encode({ a: new NDArray(Float32Array.of(1.5, -2), [2], ">f4") })).a;
  assert.deepEqual(big, new NDArray(Float32Array.of(1.5, -2)));
  const texts = decode(encode({ a: new NDArray(["ab", "ü"], [2], "<U2") })).a;
  assert.deepEqual(texts.data, ["ab", "ü"]);
  const halves = decode(encode({ a: new NDArray(Uint8Array.of(0, 60), [1], "float16") })).a;
  assert.deepEqual(halves, new NDArray(Uint8Array.of(0, 60), [1], "float16"));
  const flags = decode(encode({ a: new NDArray(Uint8Array.of(0, 1, 2), [3], "bool") })).a;
  assert.deepEqual(flags.toList(), [false, true, false]);
  for (const dtype of ["O", "object", "V8", "f16", "constructor", "<U0", ""]) {
    assert.throws(() => encode({ a: new NDArray(new Uint8Array(8), [1], dtype) }), RlxCodecError, dtype);
  }
});

test("what has no form is refused, not turned into text", () => {
  class Thing {}
  const endless = [];
  endless.push(endless);
  for (const value of [
    () => 1,
    Symbol("s"),
    new Thing(),
    new Date(),
    new DataView(new ArrayBuffer(1)),
    endless,
    "\ud800",
  ]) {
    assert.throws(() => encode({ value }), RlxCodecError);
  }
});

test("dangerous keys are only keys", () => {
  const found = decode(
    encode(
      new Map([
        ["__proto__", { polluted: true }],
        ["a", 1],
      ]),
    ),
  );
  assert.equal({}.polluted, undefined);
  assert.equal(found.a, 1);
});

test("the JSON form nests arrays and refuses what JSON lacks", () => {
  assert.deepEqual(toJson({ a: new NDArray(Int8Array.of(1, 2), [2, 1]), b: Float32Array.of(0.5), c: 3n }), {
    a: [[1], [2]],
    b: [0.5],
    c: 3,
  });
  assert.throws(() => toJson({ a: NaN }), RlxCodecError);
  assert.throws(() => toJson({ a: 2n ** 60n }), RlxCodecError);
});

test("mutated payloads raise nothing but RlxCodecError", () => {
  let state = 1;
  const random = (below) => {
    state = (Math.imul(state, 1103515245) + 12345) >>> 0;
    return (state >>> 8) % below;
  };
  const payloads = Object.values(VECTORS).map((vector) => payloadOf(vector.frame_hex));
  for (let round = 0; round < 20_000; round += 1) {
    const bytes = Uint8Array.from(payloads[random(payloads.length)]);
    for (let count = 1 + random(3); count > 0; count -= 1) bytes[random(bytes.length)] = random(256);
    const cut = random(4) === 0 ? bytes.subarray(0, random(bytes.length)) : bytes;
    try {
      decode(cut);
    } catch (error) {
      assert.ok(error instanceof RlxCodecError, `${error.stack}\n${Buffer.from(cut).toString("hex")}`);
    }
  }
});

test("limits hold before anything is allocated", () => {
  const deep = Buffer.concat([
    Buffer.from("0100000001000000730801000000", "hex"),
    ...Array(70_000).fill(Buffer.from("0801000000", "hex")),
  ]);
  assert.throws(() => decode(deep), /nested/);
  assert.throws(() => decode(Buffer.from("01000000010000007308ffffffff", "hex")), /announced/);
  assert.throws(() => decode(encode({ a: new Uint8Array(100) }), { maxBytes: 50 }), /limit/);
  assert.throws(() => decode(encode({ a: Array(100).fill(null) }), { maxItems: 50 }), /items/);
});

test("frames arrive in any pieces", () => {
  const stream = Buffer.from("3:abc,0:,05:hello,", "latin1");
  for (let size = 1; size <= stream.length; size += 1) {
    const reader = new FrameReader();
    const found = [];
    for (let i = 0; i < stream.length; i += size) found.push(...reader.feed(stream.subarray(i, i + size)));
    assert.deepEqual(found.map(String), ["abc", "", "hello"], `pieces of ${size}`);
  }
  for (const bad of ["x", ":", "3:abcd", "1234567890:", "999999999:"]) {
    assert.throws(() => new FrameReader().feed(Buffer.from(bad)), Error, bad);
  }
});
