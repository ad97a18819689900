// Frames, as webnn_vk/bridge/frames.py describes them: a head of 24 bytes, a CBOR header, raw bytes.
import { Writer, decode } from './cbor.js';

export const PROTOCOL = 1;
export const HEAD = 24;
// Of requests, and of replies.
export const MAX_REQUEST = 2 ** 20;
const MAX_HEADER = 2 ** 24;
const MAX_RAW = 2 ** 33;
export const Kind = {
  HELLO: 1, CALL: 2, START: 3, POLL: 4, RELEASE: 5, VALUE: 16, ERROR: 17, EVENT: 18,
};

const TABLE = new Int32Array(256).map((_, n) => {
  for (let bit = 0; bit < 8; bit++) n = n & 1 ? (n >>> 1) ^ 0xedb88320 : n >>> 1;
  return n;
});

function crc32(bytes, start, end) {
  let crc = -1;
  for (let i = start; i < end; i++) crc = TABLE[(crc ^ bytes[i]) & 255] ^ (crc >>> 8);
  return ~crc >>> 0;
}

const writer = new Writer();

/** Head and header of a frame, in memory that the next call uses again; `rawLength` bytes follow. */
export function frameStart(kind, request, header, rawLength = 0) {
  writer.length = HEAD;
  writer.value(header);
  const { bytes, length } = writer;
  if (length - HEAD > MAX_REQUEST) {
    throw new TypeError(`${length - HEAD} bytes of names and shapes; at most ${MAX_REQUEST} are sent`);
  }
  const view = new DataView(bytes.buffer);
  view.setUint32(4, length - HEAD, true);
  view.setUint32(8, rawLength % 2 ** 32, true);
  view.setUint32(12, Math.floor(rawLength / 2 ** 32), true);
  view.setUint32(16, request, true);
  view.setUint32(20, kind, true);
  view.setUint32(0, crc32(bytes, 4, length), true);
  return bytes.subarray(0, length);
}

/** The lengths in a frame's head. */
export function lengths(head) {
  const view = new DataView(head.buffer, head.byteOffset, HEAD);
  const header = view.getUint32(4, true);
  const raw = view.getUint32(8, true) + view.getUint32(12, true) * 2 ** 32;
  if (header > MAX_HEADER || raw > MAX_RAW) throw new RangeError('a frame that is too large');
  return { header, raw };
}

/** Kind, request and header of a frame, from its head and header's bytes. */
export function parseStart(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (view.getUint32(0, true) !== crc32(bytes, 4, bytes.length)) {
    throw new RangeError('a frame with a wrong checksum');
  }
  return {
    kind: bytes[20], request: view.getUint32(16, true), header: decode(bytes.subarray(HEAD)),
  };
}
