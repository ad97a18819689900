// Serves a folder, and bridges to its pages, on this machine alone. Pages are isolated across
// origins, so that they have SharedArrayBuffer; lib/browser.js is their side.
import { randomBytes } from 'node:crypto';
import fs from 'node:fs';
import http from 'node:http';
import path from 'node:path';
import { pipeline } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { HEAD, Kind, MAX_REQUEST, lengths } from './frames.js';
import { launch } from './node.js';

const LIB = path.dirname(fileURLToPath(import.meta.url));
const CHUNK = 2 ** 16;
/** Each is a process. */
const MAX_BRIDGES = 64;
const KINDS = new Set([Kind.CALL, Kind.START, Kind.POLL, Kind.RELEASE]);
const TYPES = { '.html': 'text/html', '.js': 'text/javascript', '.json': 'application/json' };
const ISOLATED = {
  'Cross-Origin-Opener-Policy': 'same-origin',
  'Cross-Origin-Embedder-Policy': 'require-corp',
  'Cache-Control': 'no-store',
};

/** Kind and number of the frame that a body of `length` bytes is. RangeError for anything else. */
function checked(head, length) {
  const { header, raw } = head.length === HEAD ? lengths(head) : {};
  const kind = head[20];
  if (HEAD + header + raw !== length || header > MAX_REQUEST || !KINDS.has(kind)) {
    throw new RangeError('a request is one frame, and says its length');
  }
  return { kind, number: head.readUInt32LE(16) };
}

const written = (stream, bytes) => new Promise((resolve, reject) => {
  stream.write(bytes, (error) => (error ? reject(error) : resolve()));
});

/**
 * A bridge whose client is in a browser: frames come as requests, `events` says when to ask. Nothing
 * here waits in the server's thread, and no more than a chunk is kept of what a side doesn't take.
 */
class Relay {
  #events;
  #stop;
  #requests;
  #replies;
  #turn = Promise.resolve();
  #arrived = () => {};

  constructor(channel, events, stop) {
    this.#events = events;
    this.#stop = stop;
    [this.#requests, this.#replies] = channel.sockets();
    this.#requests.on('error', () => {});
    for (const name of ['readable', 'end', 'close', 'error']) this.#replies.on(name, () => this.#arrived());
    this.wake();
  }

  wake() {
    if (!this.#events.writableNeedDrain) this.#events.write('\0');
  }

  end() {
    this.#requests.destroy();
    this.#replies.destroy();
    this.#events.end();
  }

  /** Passes a request's frame on, and answers with the replies up to its own, if it has one. */
  pass(request, response) {
    const passed = this.#turn.then(() => this.#pass(request, response));
    this.#turn = passed.catch(() => {});
    return passed;
  }

  async #pass(request, response) {
    const length = Number(request.headers['content-length']);
    let frame;
    let start = Buffer.alloc(0);
    try {
      for await (const part of request.iterator({ destroyOnReturn: false })) {
        if (frame) {
          await written(this.#requests, part);
          continue;
        }
        start = Buffer.concat([start, part]);
        if (start.length < HEAD) continue;
        frame = checked(start.subarray(0, HEAD), length);
        await written(this.#requests, start);
      }
      frame ??= checked(start, length);
      response.writeHead(200, ISOLATED);
      if (frame.kind === Kind.CALL || frame.kind === Kind.POLL) await this.#reply(frame.number, response);
      response.end();
    } catch (error) {
      // What follows in the FIFOs would be taken for the rest of this frame, or of its replies.
      if (frame) this.#stop();
      if (response.headersSent) response.destroy();
      throw error;
    }
  }

  async #reply(number, response) {
    for (let last = false; !last;) {
      const head = await this.#take(HEAD);
      const { header, raw } = lengths(head);
      last = head.readUInt32LE(16) === number;
      for (let part = head, left = header + raw; part; left -= part?.length) {
        if (!response.destroyed) await written(response, part).catch(() => {});
        part = left && await this.#take(Math.min(left, CHUNK));
      }
    }
  }

  async #take(count) {
    for (;;) {
      const bytes = this.#replies.read(count);
      if (bytes?.length === count) return bytes;
      if (bytes || this.#replies.destroyed || this.#replies.readableEnded) throw new Error('the bridge ended');
      await new Promise((resolve) => { this.#arrived = resolve; });
    }
  }
}

function sendFile(response, folder, name) {
  const file = path.join(folder, name.endsWith('/') ? `${name}index.html` : name);
  if (!file.startsWith(path.join(folder, '/')) || !fs.existsSync(file) || !fs.statSync(file).isFile()) {
    return response.writeHead(404, ISOLATED).end();
  }
  const type = TYPES[path.extname(file)] ?? 'application/octet-stream';
  response.writeHead(200, { ...ISOLATED, 'Content-Type': type });
  return pipeline(fs.createReadStream(file), response, () => {});
}

/**
 * Starts the server; resolves to `{ url, close }`. Other sites' pages can't use it: the address has
 * a secret, and requests must come from the server's own pages.
 */
export async function serve(folder, { port = 0, ...options } = {}) {
  const secret = randomBytes(16).toString('hex');
  const relays = new Map();
  let origin;

  async function answer(request, response) {
    const { pathname } = new URL(request.url, origin);
    const sender = request.headers.origin ?? origin;
    if (!pathname.startsWith(`/${secret}/`) || sender !== origin || `http://${request.headers.host}` !== origin) {
      return response.writeHead(403, ISOLATED).end();
    }
    const name = decodeURIComponent(pathname.slice(secret.length + 1));
    const [, place, key, events] = name.split('/');
    if (place === 'lib' && request.method === 'GET') return sendFile(response, LIB, name.slice(4));
    if (place !== 'bridge') return sendFile(response, path.resolve(folder), name);
    if (events) {
      if (relays.has(key)) return response.writeHead(409, ISOLATED).end();
      if (relays.size >= MAX_BRIDGES) return response.writeHead(503, ISOLATED).end();
      const page = new AbortController();
      relays.set(key, undefined);
      response.on('close', () => {
        relays.delete(key);
        page.abort();
      });
      response.writeHead(200, ISOLATED).flushHeaders();
      return launch({ ...options, signal: page.signal }, (channel) => {
        const relay = new Relay(channel, response, () => page.abort());
        relays.set(key, relay);
        return relay;
      });
    }
    return relays.get(key).pass(request, response);
  }

  const server = http.createServer((request, response) => {
    answer(request, response).catch((error) => {
      // The connection's next request is behind the rest of this one.
      request.resume();
      if (!response.headersSent) response.writeHead(error instanceof RangeError ? 400 : 500, ISOLATED);
      response.end();
    });
  });
  await new Promise((resolve) => { server.listen(port, '127.0.0.1', resolve); });
  origin = `http://127.0.0.1:${server.address().port}`;
  return {
    url: `${origin}/${secret}/`,
    close() {
      server.closeAllConnections();
      server.close();
    },
  };
}
