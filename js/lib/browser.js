// navigator.ml in a worker of a page that lib/server.js serves. Calls wait with Atomics.wait while a
// service, a worker of its own, fetches the replies.
import { Client } from './client.js';
import { HEAD, lengths, parseStart } from './frames.js';
import { install } from './global.js';
import { createML, interfaces } from './interfaces.js';

const CHUNK = 2 ** 20;

class Channel {
  #service;
  // 0: no data, 1: a chunk of data, 2: the bridge has ended; then the chunk's length.
  #state = new Int32Array(new SharedArrayBuffer(8));
  #data = new Uint8Array(new SharedArrayBuffer(CHUNK));
  #received = new Uint8Array(0);

  constructor(service, url) {
    this.#service = service;
    service.postMessage({ url, state: this.#state, data: this.#data });
  }

  send(start, raw) {
    const frame = new Uint8Array(start.length + (raw?.byteLength ?? 0));
    frame.set(start);
    if (raw) frame.set(raw, start.length);
    this.#service.postMessage(frame.buffer, [frame.buffer]);
  }

  receive() {
    const { header, raw } = lengths(this.#bytes(HEAD, 0));
    const frame = parseStart(this.#bytes(HEAD + header, 0));
    if (raw) frame.raw = this.#bytes(raw, HEAD + header).slice();
    this.#received = this.#received.slice(HEAD + header + raw);
    return frame;
  }

  keepAlive() {}

  async collect() {
    await new Promise((resolve) => { setTimeout(resolve, 10); });
  }

  close() {
    this.#service.terminate();
  }

  /** `length` received bytes from an offset. Waits until they have arrived. */
  #bytes(count, from) {
    while (this.#received.length < from + count) {
      Atomics.wait(this.#state, 0, 0);
      if (Atomics.load(this.#state, 0) === 2) throw new Error('the bridge ended');
      const length = this.#state[1];
      const longer = new Uint8Array(this.#received.length + length);
      longer.set(this.#received);
      longer.set(this.#data.subarray(0, length), this.#received.length);
      this.#received = longer;
      Atomics.store(this.#state, 0, 0);
      Atomics.notify(this.#state, 0);
    }
    return this.#received.subarray(from, from + count);
  }
}

function connect() {
  const url = new URL(`../bridge/${crypto.randomUUID()}`, import.meta.url).href;
  const service = new Worker(new URL('browser-service.js', import.meta.url), { type: 'module' });
  const client = new Client(new Channel(service, url));
  return new Promise((resolve, reject) => {
    service.onmessage = ({ data }) => {
      if (data === 'ready') resolve(client);
      else if (data === 'wake') client.wake();
      else {
        client.end(data);
        reject(new DOMException(data, 'OperationError'));
      }
    };
  });
}

let connection;

/** `navigator.ml`. */
export const ml = createML(async () => {
  if (!connection || (await connection.catch(() => ({ ended: true }))).ended) connection = connect();
  return connection;
});

install(globalThis, interfaces, ml);
