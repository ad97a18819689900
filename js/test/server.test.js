// lib/server.js beside hostile pages: no request and no page stops the server or another page.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { HEAD, Kind, frameStart, lengths, parseStart } from '../lib/frames.js';
import { serve } from '../lib/server.js';
import { eventually, isAlive } from './bridge.js';

const own = process.env.WEBNN_VK_PYTHON || 'python3';
let folder;
let server;

/** An interpreter that notes its process in the file `pids`, and goes on when `command` has ended. */
function interpreter(name, command = ':') {
  const file = path.join(folder, name);
  fs.writeFileSync(file, `#!/bin/sh\necho $$ >> ${folder}/pids\n${command}\nexec ${own} "$@"\n`, { mode: 0o700 });
  return file;
}

const pids = () => fs.readFileSync(`${folder}/pids`, 'utf8').trim().split('\n').map(Number);
const descriptors = () => fs.readdirSync('/proc/self/fd').length;

before(async () => {
  folder = fs.mkdtempSync(path.join(os.tmpdir(), 'server-'));
  fs.writeFileSync(path.join(folder, 'index.html'), 'hello');
  const env = { ...process.env, WEBNN_VK_DEVICE: 'cpu', WEBNN_VK_CPU_ENGINE: 'numpy' };
  server = await serve(folder, { env, python: interpreter('python') });
});
after(() => {
  server.close();
  fs.rmSync(folder, { recursive: true });
});

const frame = (kind, request, header, raw = Buffer.alloc(0)) => Buffer.concat(
  [frameStart(kind, request, header, raw.length), raw]);

/** A page: `post(body)` resolves to `{ status, frames }`; `woken()` when replies wait. */
async function page(key, from = server) {
  const leaving = new AbortController();
  const response = await fetch(`${from.url}bridge/${key}/events`, { signal: leaving.signal });
  const reader = response.body?.getReader();
  const post = async (body) => {
    const { status, ...answer } = await fetch(`${from.url}bridge/${key}`, { method: 'POST', body })
      .then(async (found) => ({ status: found.status, bytes: Buffer.from(await found.arrayBuffer()) }));
    const frames = [];
    for (let rest = answer.bytes; status === 200 && rest.length;) {
      const { header, raw } = lengths(rest.subarray(0, HEAD));
      frames.push({ ...parseStart(rest.subarray(0, HEAD + header)), raw });
      rest = rest.subarray(HEAD + header + raw);
    }
    return { status, frames };
  };
  return { status: response.status, post, woken: () => reader.read(), leave: () => leaving.abort() };
}

async function started(key) {
  const made = await page(key);
  await made.woken();
  return { ...made, pid: pids().at(-1) };
}

async function answers({ post }, request = 77) {
  const { status, frames } = await post(frame(Kind.CALL, request, ['limits', [99]]));
  assert.equal(status, 200);
  assert.deepEqual(frames.map(({ kind, request }) => [kind, request]), [[Kind.ERROR, request]]);
}

test('a request is one whole frame', async () => {
  const { post, leave } = await started('whole');
  const call = frame(Kind.CALL, 5, ['limits', [99]]);
  const unknown = frame(99, 6, null);
  const long = Buffer.from(call);
  long.writeUInt32LE(2 ** 31, 4);
  const bodies = [
    Buffer.alloc(0), call.subarray(0, 10), call.subarray(0, HEAD), call.subarray(0, -1),
    Buffer.concat([call, call]), Buffer.concat([call, Buffer.alloc(1)]), unknown, long,
    frame(Kind.CALL, 5, null, Buffer.alloc(9)).subarray(0, -1), frame(Kind.HELLO, 1, { protocol: 1 }),
    Buffer.concat(Array(120_000).fill(unknown)), Buffer.concat(Array(120_000).fill(call)),
  ];
  for (const body of bodies) assert.equal((await post(body)).status, 400);
  await answers({ post });
  // In many small parts, more than a pipe holds.
  const raw = Buffer.alloc(3 << 20);
  const { frames: [reply] } = await post(frame(Kind.CALL, 8, ['limits', [99]], raw));
  assert.deepEqual([reply.kind, reply.request], [Kind.ERROR, 8]);
  leave();
});

test('replies that wait come with the next one', async () => {
  const { post, woken, leave } = await started('waiting');
  const start = (request, name, ...values) => post(frame(Kind.START, request, [name, values]));
  assert.deepEqual(await start(1, 'createContext', 'default', false), { status: 200, frames: [] });
  await woken();
  const [created, polled] = (await post(frame(Kind.POLL, 2, null))).frames;
  assert.deepEqual([created.request, polled.request], [1, 2]);
  const [context] = created.header;
  const size = 1 << 20;
  await start(3, 'createTensor', context, 'float32', [size], true, true);
  await woken();
  const [{ header: tensor }] = (await post(frame(Kind.POLL, 4, null))).frames;
  await start(5, 'read', context, tensor);
  await woken();
  const { frames } = await post(frame(Kind.POLL, 6, null));
  assert.deepEqual(frames.map(({ request, raw }) => [request, raw]), [[5, 4 * size], [6, 0]]);
  leave();
});

test('one that is stuck stops no other, and ends when its page leaves', async () => {
  const stuck = await started('stuck');
  process.kill(stuck.pid, 'SIGSTOP');
  // More than its FIFO holds, and calls behind that.
  const large = stuck.post(frame(Kind.CALL, 1, ['limits', [1]], Buffer.alloc(8 << 20)));
  const behind = [2, 3].map((n) => stuck.post(frame(Kind.CALL, n, ['limits', [1]])));
  const other = await started('other');
  await answers(other);
  assert.equal(await (await fetch(server.url)).text(), 'hello');
  stuck.leave();
  for (const { status } of await Promise.all([large, ...behind])) assert.equal(status, 500);
  await eventually(() => !isAlive(stuck.pid), 'the bridge goes on');
  await answers(other, 78);
  other.leave();
  await eventually(() => !isAlive(other.pid), 'the bridge goes on');
});

test('a body that ends early ends its bridge alone', async () => {
  const [cut, other] = [await started('cut'), await started('beside')];
  const body = frame(Kind.CALL, 1, ['limits', [1]], Buffer.alloc(1 << 20));
  const { hostname, port, pathname } = new URL(server.url);
  const { default: net } = await import('node:net');
  const socket = net.connect(port, hostname);
  socket.write(`POST ${pathname}bridge/cut HTTP/1.1\r\nHost: ${hostname}:${port}\r\nContent-Length: ${body.length}\r\n\r\n`);
  await new Promise((resolve) => { socket.write(body.subarray(0, -9), resolve); });
  socket.destroy();
  await eventually(() => !isAlive(cut.pid), 'the bridge waits for the rest');
  assert.equal((await cut.post(frame(Kind.POLL, 2, null))).status, 500);
  await answers(other);
  other.leave();
});

test('a key is one page\'s', async () => {
  const first = await started('key');
  const second = await page('key');
  assert.equal(second.status, 409);
  second.leave();
  await answers(first);
  first.leave();
});

test('a page that leaves while its bridge starts leaves nothing', async () => {
  const held = path.join(folder, 'held');
  const bridges = fs.mkdtempSync(path.join(folder, 'bridges-'));
  const made = {
    'before Python': `touch ${held}; read line`,
    // Reads what the bridge says first, the name of its folder, and says nothing more.
    'with its folder': `touch ${held}; exec ${own} -c "
import os, pathlib, select, sys, tempfile
sys.argv = ['bridge']
from webnn_vk.bridge import __main__ as bridge
poll = select.poll
def held():
    pathlib.Path('${held}').write_text('held')
    return poll()
select.poll = held
bridge.main()"`,
  };
  for (const [name, command] of Object.entries(made)) {
    fs.rmSync(held, { force: true });
    const slow = await serve(folder, { env: { ...process.env, TMPDIR: bridges }, python: interpreter('slow', command) });
    const before = descriptors();
    const { leave } = await page('slow', slow);
    await eventually(() => fs.existsSync(held), 'the interpreter did not start');
    const pid = pids().at(-1);
    leave();
    await eventually(() => !isAlive(pid), `${name}: the process goes on`);
    await eventually(() => descriptors() <= before, `${name}: descriptors are left`);
    slow.close();
  }
  await eventually(() => fs.readdirSync(bridges).length === 0, 'a folder is left');
});
