// CBOR (RFC 8949), as much of it as frames' headers have: null, booleans, numbers, bigints, text,
// arrays, and maps with text as keys.

const utf8 = new TextEncoder();
const decoder = new TextDecoder();
const scratch = new DataView(new ArrayBuffer(8));
const scratchBytes = new Uint8Array(scratch.buffer);

/** Bytes that grow while values are appended. */
export class Writer {
  bytes = new Uint8Array(2 ** 16);
  length = 0;

  /** Makes room for `count` further bytes. */
  reserve(count) {
    if (this.length + count <= this.bytes.length) return;
    const grown = new Uint8Array(2 * (this.length + count));
    grown.set(this.bytes.subarray(0, this.length));
    this.bytes = grown;
  }

  #head(major, value) {
    this.reserve(9);
    const { bytes } = this;
    const type = major << 5;
    if (value < 24) {
      bytes[this.length++] = type | value;
    } else if (value < 256) {
      bytes[this.length++] = type | 24;
      bytes[this.length++] = value;
    } else if (value < 2 ** 32) {
      bytes[this.length++] = type | 26;
      scratch.setUint32(0, value);
      this.#copy(4);
    } else {
      bytes[this.length++] = type | 27;
      scratch.setBigUint64(0, BigInt(value));
      this.#copy(8);
    }
  }

  #copy(count) {
    for (let i = 0; i < count; i++) this.bytes[this.length++] = scratchBytes[i];
  }

  #text(text) {
    const count = text.length;
    if (count < 24) {
      this.reserve(1 + count);
      const start = this.length;
      const { bytes } = this;
      let i = 0;
      for (let code; i < count && (code = text.charCodeAt(i)) < 128; i++) bytes[start + 1 + i] = code;
      if (i === count) {
        bytes[start] = 0x60 | count;
        this.length += 1 + count;
        return;
      }
    }
    const encoded = utf8.encode(text);
    this.#head(3, encoded.length);
    this.reserve(encoded.length);
    this.bytes.set(encoded, this.length);
    this.length += encoded.length;
  }

  #bigint(value) {
    const negative = value < 0n;
    let rest = negative ? -1n - value : value;
    const big = [];
    for (; rest > 0n; rest >>= 8n) big.unshift(Number(rest & 255n));
    this.#head(6, negative ? 3 : 2);
    this.#head(2, big.length);
    this.reserve(big.length);
    for (const byte of big) this.bytes[this.length++] = byte;
  }

  /** Appends a value. Integral numbers become integers, except -0. */
  value(value) {
    switch (typeof value) {
      case 'string':
        return this.#text(value);
      case 'number':
        if (Number.isSafeInteger(value) && !Object.is(value, -0)) {
          return value < 0 ? this.#head(1, -1 - value) : this.#head(0, value);
        }
        this.reserve(9);
        this.bytes[this.length++] = 0xfb;
        scratch.setFloat64(0, value);
        return this.#copy(8);
      case 'boolean':
        this.reserve(1);
        this.bytes[this.length++] = value ? 0xf5 : 0xf4;
        return;
      case 'bigint':
        return this.#bigint(value);
    }
    if (value === null) {
      this.reserve(1);
      this.bytes[this.length++] = 0xf6;
    } else if (Array.isArray(value)) {
      this.#head(4, value.length);
      for (let i = 0; i < value.length; i++) this.value(value[i]);
    } else {
      const keys = Object.keys(value);
      this.#head(5, keys.length);
      for (const key of keys) {
        this.#text(key);
        this.value(value[key]);
      }
    }
  }
}

/** The value that `bytes` encode. RangeError for anything else than one value. */
export function decode(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let at = 0;

  function count(info) {
    if (info < 24) return info;
    if (info === 24) return view.getUint8(at++);
    if (info === 25) return view.getUint16((at += 2) - 2);
    if (info === 26) return view.getUint32((at += 4) - 4);
    if (info === 27) return Number(view.getBigUint64((at += 8) - 8));
    throw new RangeError('CBOR without a length');
  }

  function value() {
    const first = view.getUint8(at++);
    const info = first & 31;
    switch (first >> 5) {
      case 0:
        return count(info);
      case 1:
        return -1 - count(info);
      case 3: {
        const length = count(info);
        if (at + length > bytes.length) throw new RangeError('CBOR text is cut off');
        at += length;
        return decoder.decode(bytes.subarray(at - length, at));
      }
      case 4: {
        const items = [];
        for (let left = count(info); left > 0; left--) items.push(value());
        return items;
      }
      case 5: {
        const map = {};
        for (let left = count(info); left > 0; left--) {
          const key = value();
          // A key "__proto__" must become a property like any other.
          Object.defineProperty(map, key, {
            value: value(), enumerable: true, configurable: true, writable: true,
          });
        }
        return map;
      }
      case 7:
        if (info === 20 || info === 21) return info === 21;
        if (info === 22) return null;
        if (info === 27) return view.getFloat64((at += 8) - 8);
    }
    throw new RangeError(`CBOR of an unexpected type (${first})`);
  }

  const result = value();
  if (at !== bytes.length) throw new RangeError('CBOR with a rest');
  return result;
}
