/**
 * The payload of an RLX message, byte for byte: `u32 version`, then `(key, type, value)*`; little-endian throughout.
 *
 * | JavaScript                                   | on the wire | back in JavaScript                        |
 * |----------------------------------------------|-------------|-------------------------------------------|
 * | `null`, `undefined`                          | NULL        | `null`                                    |
 * | `true`, `false`                              | BOOLEAN     | the same                                  |
 * | a whole number of 32 bits                    | INT4        | number                                    |
 * | a larger whole number, any `bigint`          | INT64       | number where it is exact, else bigint     |
 * | any other number, `new Double(1)`            | DOUBLE      | number                                    |
 * | string                                       | STRING      | string                                    |
 * | typed array, `NDArray`                       | NDARRAY     | `NDArray`                                 |
 * | `RlxImage`, a canvas's `ImageData`           | IMAGE       | `NDArray` [height, width(, channels)]     |
 * | array                                        | LIST        | array                                     |
 * | plain object, `Map`                          | DICT        | object without a prototype                |
 *
 * Everything else is refused with an `RlxCodecError`; nothing is turned into text silently.
 * @module
 */

const NONE = 0,
  NULL = 1,
  INT4 = 2,
  STRING = 3,
  DOUBLE = 4,
  BOOLEAN = 5;
const IMAGE = 6,
  NDARRAY = 7,
  LIST = 8,
  UINT4 = 9,
  INT64 = 10,
  DICT = 11;
const VERSION = 1;
const LONE_SURROGATE = /\p{Surrogate}/u;

/** Bounds on what a peer may send, checked before anything is allocated. */
export const LIMITS = Object.freeze({ maxBytes: 16 << 20, maxItems: 1_000_000, maxDepth: 32, maxDimensions: 32 });

/** Thrown for bytes that are not a valid message, and for values that the protocol cannot express. */
export class RlxCodecError extends Error {
  name = "RlxCodecError";
}

/** A number that is written as DOUBLE though it is whole. */
export class Double {
  /** @param {number} value */
  constructor(value) {
    this.value = Number(value);
  }
}

/** An image as Pillow keeps it: `mode` is L, RGB, RGBA, CMYK, YCbCr, LAB, HSV, 1, I, F or P. */
export class RlxImage {
  /**
   * @param {string} mode
   * @param {number} width
   * @param {number} height
   * @param {Uint8Array | Uint8ClampedArray} data rows from the top, bands interleaved
   */
  constructor(mode, width, height, data) {
    Object.assign(this, { mode, width, height, data });
    if (data.byteLength !== imageBytes(mode, width, height)) {
      throw new RlxCodecError(`an image ${mode} of ${width} x ${height} has not ${data.byteLength} bytes`);
    }
  }
}

/** An array of any shape, in C order. */
export class NDArray {
  /**
   * @param {ArrayBufferView | string[]} data a typed array, strings for NumPy's text, or bytes for other dtypes
   * @param {number[]} [shape] default: one dimension
   * @param {string} [dtype] NumPy's name; default: that of the typed array
   */
  constructor(data, shape = [data.length], dtype = dtypeOf(data)) {
    this.data = data;
    this.shape = [...shape];
    this.dtype = dtype;
  }

  /** Number of elements. */
  get size() {
    return product(this.shape);
  }

  /** Nested arrays, as JSON has them; a number if there is no dimension. */
  toList() {
    const items = this.dtype === "bool" ? Array.from(this.data, (value) => value === 1) : this.data;
    const plain = (value) => (typeof value === "bigint" ? exactNumber(value) : value);
    const nest = (start, depth, stride) => {
      if (depth === this.shape.length) return plain(items[start]);
      const step = stride / (this.shape[depth] || 1);
      return Array.from({ length: this.shape[depth] }, (_, i) => nest(start + i * step, depth + 1, step));
    };
    return nest(0, 0, this.size);
  }
}

/**
 * Encode a message.
 * @param {Record<string, unknown>} message
 * @returns {Uint8Array}
 */
export function encode(message) {
  const writer = new Writer();
  writer.u32(VERSION);
  for (const [key, value] of entriesOf(message)) {
    writer.text(key);
    writer.value(value, 0);
  }
  return writer.bytes();
}

/**
 * Decode a message.
 * @param {Uint8Array | ArrayBuffer} payload
 * @param {Partial<typeof LIMITS>} [limits]
 * @returns {Record<string, any>}
 */
export function decode(payload, limits = {}) {
  // Not the payload itself: the `slice` of Node's Buffer copies nothing.
  const bytes = ArrayBuffer.isView(payload)
    ? new Uint8Array(payload.buffer, payload.byteOffset, payload.byteLength)
    : new Uint8Array(payload);
  return new Reader(bytes, { ...LIMITS, ...limits }).message();
}

/** The protocol's JSON form: arrays and images become nested lists, whole numbers beyond 2^53 are refused. */
export function toJson(value) {
  if (value === null || value === undefined) return null;
  if (typeof value === "bigint") {
    const number = exactNumber(value);
    if (typeof number === "bigint") throw new RlxCodecError(`${value} is not exact in JSON`);
    return number;
  }
  if (typeof value === "number" && !Number.isFinite(value)) throw new RlxCodecError(`JSON has no ${value}`);
  if (["number", "string", "boolean"].includes(typeof value)) return value;
  if (value instanceof Double) return toJson(value.value);
  if (value instanceof NDArray) return toJson(value.toList());
  if (ArrayBuffer.isView(value) && !(value instanceof DataView)) return Array.from(value, toJson);
  if (isImage(value)) return toJson(decodeImage(imageOf(value)).toList());
  if (Array.isArray(value)) return value.map(toJson);
  return Object.fromEntries(entriesOf(value).map(([key, item]) => [key, toJson(item)]));
}

// -- arrays -----------------------------------------------------------------------------------------------------------

/** NumPy's names and JavaScript's arrays. */
const ARRAYS = {
  bool: Uint8Array,
  uint8: Uint8Array,
  int8: Int8Array,
  uint16: Uint16Array,
  int16: Int16Array,
  uint32: Uint32Array,
  int32: Int32Array,
  uint64: BigUint64Array,
  int64: BigInt64Array,
  float32: Float32Array,
  float64: Float64Array,
};
const NAMES = new Map(
  Object.entries(ARRAYS)
    .filter(([name]) => name !== "bool")
    .map(([name, type]) => [type, name]),
);
NAMES.set(Uint8ClampedArray, "uint8");
const KINDS = { i: "int", u: "uint", f: "float" };
const HOST_IS_LITTLE = new Uint8Array(new Uint16Array([1]).buffer)[0] === 1;
/** NumPy's other names: those of dtypes that JavaScript lacks, and short forms with a byte order. */
const LONG_DTYPE = /^(complex(64|128)|float16|(datetime64|timedelta64)(\[[A-Za-z0-9]{1,12}\])?)$/;
const SHORT_DTYPE = /^[<>=|]?([?]|b1|[iu][1248]|f[248]|c(8|16)|[mM]8(\[[A-Za-z0-9]{1,12}\])?|[US][1-9][0-9]{0,8})$/;

function dtypeOf(data) {
  const name = NAMES.get(data?.constructor);
  if (name) return name;
  throw new RlxCodecError(`an array needs a dtype where its data are ${data?.constructor?.name ?? typeof data}`);
}

/** What is known of a dtype: bytes of an item, byte order, the typed array (if there is one), whether it is text. */
function dtypeInfo(name) {
  if (Object.hasOwn(ARRAYS, name)) return { size: ARRAYS[name].BYTES_PER_ELEMENT, little: true, type: ARRAYS[name] };
  if (!LONG_DTYPE.test(name) && !SHORT_DTYPE.test(name)) {
    throw new RlxCodecError(`dtype ${JSON.stringify(name.slice(0, 40))} is not accepted`);
  }
  if (name === "float16") return { size: 2, little: true, type: null };
  if (name === "complex64" || /^(datetime|timedelta)/.test(name)) return { size: 8, little: true, type: null };
  if (name === "complex128") return { size: 16, little: true, type: null };
  const short = name.replace(/^[<>=|]/, "");
  const little = name[0] !== ">";
  if (short === "?" || short === "b1") return { size: 1, little, type: Uint8Array };
  const count = Number.parseInt(short.slice(1), 10);
  if (short[0] === "U") return { size: 4 * count, little, type: null, isText: true };
  return { size: count, little, type: ARRAYS[`${KINDS[short[0]]}${8 * count}`] ?? null };
}

function product(shape) {
  return shape.reduce((all, size) => all * size, 1);
}

/** Bytes of an array in the byte order of its dtype. */
function arrayBytes(array) {
  const { size, little, type, isText } = dtypeInfo(array.dtype);
  const count = product(array.shape);
  if (isText && Array.isArray(array.data)) return textBytes(array.data, size / 4, little);
  if (!ArrayBuffer.isView(array.data)) throw new RlxCodecError(`the data of an array ${array.dtype} must be a view`);
  const { buffer, byteOffset, byteLength } = array.data;
  if (byteLength !== count * size) {
    throw new RlxCodecError(`an array [${array.shape}] of ${array.dtype} has ${count * size} bytes, not ${byteLength}`);
  }
  const bytes = new Uint8Array(buffer, byteOffset, byteLength);
  const isNative = type === null || little === HOST_IS_LITTLE;
  return isNative ? bytes : swapped(bytes, size);
}

function arrayOf(bytes, shape, dtype) {
  const { size, little, type, isText } = dtypeInfo(dtype);
  if (isText) return new NDArray(textOf(bytes, size / 4, little), shape, dtype);
  const own = type === null || little === HOST_IS_LITTLE ? bytes.slice() : swapped(bytes, size);
  if (type === null) return new NDArray(own, shape, dtype);
  if (dtype === "bool" || /[?]|b1/.test(dtype)) {
    return new NDArray(
      own.map((value) => Number(value === 1)),
      shape,
      "bool",
    );
  }
  const data = new type(own.buffer);
  return new NDArray(data, shape, NAMES.get(type));
}

function swapped(bytes, size) {
  const copy = new Uint8Array(bytes.length);
  for (let i = 0; i < bytes.length; i += size) for (let j = 0; j < size; j++) copy[i + j] = bytes[i + size - 1 - j];
  return copy;
}

/** NumPy's text: UTF-32 of a fixed length, filled up with zeros. */
function textOf(bytes, length, little) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return Array.from({ length: bytes.length / (4 * length) }, (_, row) => {
    const points = Array.from({ length }, (_, i) => view.getUint32(4 * (row * length + i), little));
    if (points.some((point) => point > 0x10ffff)) throw new RlxCodecError("an array of text holds no text");
    while (points.length && points.at(-1) === 0) points.pop();
    return String.fromCodePoint(...points);
  });
}

function textBytes(texts, length, little) {
  const view = new DataView(new ArrayBuffer(4 * length * texts.length));
  texts.forEach((text, row) => {
    const points = Array.from(text, (letter) => letter.codePointAt(0));
    if (points.length > length) throw new RlxCodecError(`${JSON.stringify(text)} is longer than its dtype allows`);
    points.forEach((point, i) => view.setUint32(4 * (row * length + i), point, little));
  });
  return new Uint8Array(view.buffer);
}

// -- images -----------------------------------------------------------------------------------------------------------

const BANDS = { L: 1, RGB: 3, RGBA: 4, CMYK: 4, YCbCr: 3, LAB: 3, HSV: 3 };

function imageBytes(mode, width, height) {
  if (mode === "1") return ((width + 7) >> 3) * height;
  const bytes = Object.hasOwn(BANDS, mode) ? BANDS[mode] : { I: 4, F: 4, P: 1 }[mode];
  if (bytes === undefined) throw new RlxCodecError(`image mode ${JSON.stringify(mode)} is not known`);
  return width * height * bytes;
}

function isImage(value) {
  return value instanceof RlxImage || (typeof ImageData !== "undefined" && value instanceof ImageData);
}

function imageOf(value) {
  return value instanceof RlxImage ? value : new RlxImage("RGBA", value.width, value.height, value.data);
}

/** What Python makes of an image: 0..1 in float32; booleans for mode 1; the values themselves for I, F and P. */
function decodeImage({ mode, width, height, data }) {
  if (mode === "1") {
    const stride = (width + 7) >> 3;
    const bits = Uint8Array.from({ length: width * height }, (_, i) => {
      const column = i % width;
      return (data[Math.floor(i / width) * stride + (column >> 3)] >> (7 - (column & 7))) & 1;
    });
    return new NDArray(bits, [height, width], "bool");
  }
  if (mode === "P") return new NDArray(Uint8Array.from(data), [height, width]);
  if (mode === "I" || mode === "F") return arrayOf(data, [height, width], mode === "I" ? "int32" : "float32");
  const shape = BANDS[mode] === 1 ? [height, width] : [height, width, BANDS[mode]];
  return new NDArray(
    Float32Array.from(data, (value) => value / 255),
    shape,
  );
}

// -- bytes ------------------------------------------------------------------------------------------------------------

class Writer {
  #buffer = new Uint8Array(256);
  #view = new DataView(this.#buffer.buffer);
  #size = 0;
  #encoder = new TextEncoder();

  bytes() {
    return this.#buffer.slice(0, this.#size);
  }

  /** Make room for `count` more bytes, in a new buffer if need be; returns where they begin. */
  #take(count) {
    const start = this.#size;
    this.#size += count;
    if (this.#size > this.#buffer.length) {
      const larger = new Uint8Array(Math.max(this.#size, 2 * this.#buffer.length));
      larger.set(this.#buffer);
      this.#buffer = larger;
      this.#view = new DataView(larger.buffer);
    }
    return start;
  }

  u8(value) {
    const start = this.#take(1);
    this.#view.setUint8(start, value);
  }

  u32(value) {
    if (!Number.isInteger(value) || value < 0 || value > 0xffffffff) {
      throw new RlxCodecError(`a size of ${value} is too large`);
    }
    const start = this.#take(4);
    this.#view.setUint32(start, value, true);
  }

  raw(bytes) {
    this.u32(bytes.length);
    const start = this.#take(bytes.length);
    this.#buffer.set(bytes, start);
  }

  text(text) {
    if (LONE_SURROGATE.test(text))
      throw new RlxCodecError("a text with half a surrogate pair cannot be written as UTF-8");
    this.raw(this.#encoder.encode(text));
  }

  value(value, depth) {
    if (depth > 200) throw new RlxCodecError("arrays and objects are nested deeper than 200, or contain themselves");
    if (value === null || value === undefined) return this.u8(NULL);
    switch (typeof value) {
      case "boolean":
        this.u8(BOOLEAN);
        return this.u8(value ? 1 : 0);
      case "number":
        return this.#number(value);
      case "bigint":
        return this.#int64(value);
      case "string":
        this.u8(STRING);
        return this.text(value);
      case "object":
        return this.#object(value, depth);
      default:
        throw new RlxCodecError(`a ${typeof value} has no form in the protocol`);
    }
  }

  #number(value) {
    if (Number.isSafeInteger(value) && !Object.is(value, -0)) {
      if (value !== (value | 0)) return this.#int64(BigInt(value));
      this.u8(INT4);
      const start = this.#take(4);
      this.#view.setInt32(start, value, true);
    } else {
      this.#double(value);
    }
  }

  #double(value) {
    this.u8(DOUBLE);
    const start = this.#take(8);
    this.#view.setFloat64(start, value, true);
  }

  #int64(value) {
    if (value !== BigInt.asIntN(64, value)) throw new RlxCodecError(`${value} does not fit into 64 bits`);
    this.u8(INT64);
    const start = this.#take(8);
    this.#view.setBigInt64(start, value, true);
  }

  #object(value, depth) {
    if (value instanceof Double) return this.#double(value.value);
    if (isImage(value)) {
      const image = imageOf(value);
      this.u8(IMAGE);
      this.text(image.mode);
      this.u32(image.width);
      this.u32(image.height);
      return this.raw(image.data);
    }
    if (value instanceof NDArray || (ArrayBuffer.isView(value) && !(value instanceof DataView))) {
      const array = value instanceof NDArray ? value : new NDArray(value);
      const bytes = arrayBytes(array);
      this.u8(NDARRAY);
      this.text(array.dtype);
      this.u32(array.shape.length);
      for (const size of array.shape) this.u32(size);
      return this.raw(bytes);
    }
    if (Array.isArray(value)) {
      this.u8(LIST);
      this.u32(value.length);
      for (const item of value) this.value(item, depth + 1);
      return undefined;
    }
    const entries = entriesOf(value);
    this.u8(DICT);
    this.u32(entries.length);
    for (const [key, item] of entries) {
      this.text(key);
      this.value(item, depth + 1);
    }
    return undefined;
  }
}

class Reader {
  #bytes;
  #view;
  #position = 0;
  #limits;
  #itemsLeft;
  #decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

  constructor(bytes, limits) {
    if (bytes.length > limits.maxBytes) {
      throw new RlxCodecError(`a message of ${bytes.length} bytes is over the limit of ${limits.maxBytes}`);
    }
    this.#bytes = bytes;
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.#limits = limits;
    this.#itemsLeft = limits.maxItems;
  }

  message() {
    this.#u32(); // the version is ignored
    const found = Object.create(null);
    while (this.#position < this.#bytes.length) {
      this.#takeItems(1);
      const key = this.#text();
      found[key] = this.#value(0);
    }
    return found;
  }

  /** Move over `count` bytes, which must be there; returns where they begin. */
  #skip(count) {
    const start = this.#position;
    const left = this.#bytes.length - start;
    if (count > left) throw new RlxCodecError(`${count} bytes are announced, but ${left} are left`);
    this.#position += count;
    return start;
  }

  #u8() {
    return this.#bytes[this.#skip(1)];
  }

  #u32() {
    return this.#view.getUint32(this.#skip(4), true);
  }

  #raw() {
    const size = this.#u32();
    const start = this.#skip(size);
    return this.#bytes.subarray(start, start + size);
  }

  #text() {
    const raw = this.#raw();
    try {
      return this.#decoder.decode(raw);
    } catch {
      throw new RlxCodecError(`a text of ${raw.length} bytes is not UTF-8`);
    }
  }

  #takeItems(count) {
    this.#itemsLeft -= count;
    if (this.#itemsLeft < 0) throw new RlxCodecError("a message holds more items than the limit allows");
  }

  #count(depth, least) {
    if (depth >= this.#limits.maxDepth) throw new RlxCodecError(`nested deeper than ${this.#limits.maxDepth}`);
    const count = this.#u32();
    const left = this.#bytes.length - this.#position;
    if (count * least > left) throw new RlxCodecError(`${count} entries are announced, but ${left} bytes are left`);
    this.#takeItems(count);
    return count;
  }

  #value(depth) {
    const kind = this.#u8();
    switch (kind) {
      case NONE:
      case NULL:
        return null;
      case INT4:
        return this.#view.getInt32(this.#skip(4), true);
      case STRING:
        return this.#text();
      case DOUBLE:
        return this.#view.getFloat64(this.#skip(8), true);
      case BOOLEAN:
        return this.#u8() === 1;
      case UINT4:
        return this.#u32();
      case INT64:
        return exactNumber(this.#view.getBigInt64(this.#skip(8), true));
      case IMAGE:
        return this.#image();
      case NDARRAY:
        return this.#array();
      case LIST:
        return Array.from({ length: this.#count(depth, 1) }, () => this.#value(depth + 1));
      case DICT: {
        const found = Object.create(null);
        for (let left = this.#count(depth, 5); left > 0; left--) {
          const key = this.#text();
          found[key] = this.#value(depth + 1);
        }
        return found;
      }
      default:
        throw new RlxCodecError(`type id ${kind} is not one of the protocol's`);
    }
  }

  #image() {
    const mode = this.#text();
    const width = this.#u32();
    const height = this.#u32();
    const data = this.#raw();
    return decodeImage(new RlxImage(mode, width, height, data));
  }

  #array() {
    const dtype = this.#text();
    const ndim = this.#u32();
    if (ndim > this.#limits.maxDimensions) throw new RlxCodecError(`an array of ${ndim} dimensions is over the limit`);
    const shape = Array.from({ length: ndim }, () => this.#u32());
    const data = this.#raw();
    const expected = product(shape) * dtypeInfo(dtype).size;
    if (data.length !== expected) {
      throw new RlxCodecError(`an array [${shape}] of ${dtype} has ${expected} bytes, not ${data.length}`);
    }
    // Zeros in a shape make room for sizes that no array can have.
    if (expected === 0 && product(shape.map((size) => size || 1)) > this.#limits.maxBytes) {
      throw new RlxCodecError(`an empty array of shape [${shape}] has sizes over the limit`);
    }
    return arrayOf(data, shape, dtype);
  }
}

function exactNumber(value) {
  const number = Number(value);
  return Number.isSafeInteger(number) ? number : value;
}

function entriesOf(value) {
  if (value instanceof Map) {
    const entries = [...value];
    if (entries.some(([key]) => typeof key !== "string")) throw new RlxCodecError("the keys of a Map must be strings");
    return entries;
  }
  const prototype = typeof value === "object" && value !== null ? Object.getPrototypeOf(value) : undefined;
  // Only the prototype of a plain object has no prototype itself, in whichever realm it was made.
  if (prototype === null || (prototype && Object.getPrototypeOf(prototype) === null)) return Object.entries(value);
  throw new RlxCodecError(`a ${value?.constructor?.name ?? typeof value} has no form in the protocol`);
}
