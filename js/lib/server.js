// Serves a folder, and bridges to its pages, on this machine alone. Pages are isolated across
// origins, so that they have SharedArrayBuffer; lib/browser.js is their side.
import { randomBytes } from 'node:crypto';
import fs from 'node:fs';
import http from 'node:http';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { HEAD, Kind, frameStart, lengths } from './frames.js';
import { launch } from './node.js';

const LIB = path.dirname(fileURLToPath(import.meta.url));
const MAX_BODY = 2 ** 31;
const TYPES = { '.html': 'text/html', '.js': 'text/javascript', '.json': 'application/json' };
const ISOLATED = {
  'Cross-Origin-Opener-Policy': 'same-origin',
  'Cross-Origin-Embedder-Policy': 'require-corp',
  'Cache-Control': 'no-store',
};

/** A bridge whose client is in a browser: frames come as requests, `events` says when to ask. */
class Relay {
  constructor(channel, events) {
    this.channel = channel;
    this.events = events;
    events.on('close', () => channel.close());
    events.write('\0');
  }

  wake() {
    this.events.write('\0');
  }

  end() {
    this.events.end();
  }

  /** Passes a frame on; the replies up to its own, or nothing when none comes at once. */
  pass(frame) {
    const { header } = lengths(frame.subarray(0, HEAD));
    this.channel.send(frame.subarray(0, HEAD + header), frame.subarray(HEAD + header));
    const kind = frame[20];
    const request = frame.readUInt32LE(16);
    const replies = [];
    while (kind === Kind.CALL || kind === Kind.POLL) {
      const reply = this.channel.receive();
      const start = frameStart(reply.kind, reply.request, reply.header, reply.raw?.byteLength);
      replies.push(Buffer.from(start), reply.raw ?? Buffer.alloc(0));
      if (reply.request === request) break;
    }
    return Buffer.concat(replies);
  }
}

async function bodyOf(request) {
  const parts = [];
  let size = 0;
  for await (const part of request) {
    size += part.length;
    if (size > MAX_BODY) throw new RangeError('the request is too large');
    parts.push(part);
  }
  return Buffer.concat(parts);
}

function sendFile(response, folder, name) {
  const file = path.join(folder, name.endsWith('/') ? `${name}index.html` : name);
  if (!file.startsWith(path.join(folder, '/')) || !fs.existsSync(file) || !fs.statSync(file).isFile()) {
    return response.writeHead(404, ISOLATED).end();
  }
  const type = TYPES[path.extname(file)] ?? 'application/octet-stream';
  return response.writeHead(200, { ...ISOLATED, 'Content-Type': type }).end(fs.readFileSync(file));
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
      response.writeHead(200, ISOLATED).flushHeaders();
      relays.set(key, await launch(options, (channel) => new Relay(channel, response)));
      response.on('close', () => relays.delete(key));
      return undefined;
    }
    const replies = relays.get(key).pass(await bodyOf(request));
    return response.writeHead(200, ISOLATED).end(replies);
  }

  const server = http.createServer((request, response) => {
    answer(request, response).catch(() => {
      if (!response.headersSent) response.writeHead(500, ISOLATED);
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
