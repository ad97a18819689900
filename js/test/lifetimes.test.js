// Ends: of the bridge, of the client, of objects. LONG=1 runs the full lengths.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import { test } from 'node:test';
import { Worker } from 'node:worker_threads';
import { addition, connect, eventually, isAlive, vector } from './bridge.js';

const LONG = process.env.LONG === '1';
const folders = () => fs.readdirSync(os.tmpdir()).filter((name) => name.startsWith('webnn-vk-'));
const memory = (pid) => Number(fs.readFileSync(`/proc/${pid}/status`, 'utf8').match(/VmRSS:\s+(\d+)/)[1]) / 1024;
const invalidState = { name: 'InvalidStateError' };

test('a killed bridge loses the contexts; the next context has a new bridge', async () => {
  const context = await navigator.ml.createContext();
  const builder = new MLGraphBuilder(context);
  const { pid } = await connect();
  const tensor = await context.createTensor(vector(1, { readable: true, writable: true }));
  // Stopped, so that the read is pending when the end comes.
  process.kill(pid, 'SIGSTOP');
  const reading = context.readTensor(tensor);
  process.kill(pid, 'SIGKILL');
  await assert.rejects(reading, invalidState);
  assert.match((await context.lost).message, /bridge/);
  assert.throws(() => builder.input('x', vector(1)), invalidState);
  assert.throws(() => context.writeTensor(tensor, new Float32Array(1)), invalidState);
  await assert.rejects(context.createTensor(vector(1)), invalidState);
  context.destroy();
  tensor.destroy();

  const next = await navigator.ml.createContext();
  assert.notEqual((await connect()).pid, pid);
  const graph = await addition(next, 1);
  assert.throws(() => next.dispatch(graph, { a: tensor, b: tensor }, { c: tensor }), TypeError);
});

test('a bridge that is killed during a call', async () => {
  const context = await navigator.ml.createContext();
  const { pid } = await connect();
  process.kill(pid, 'SIGSTOP');
  const killer = spawn('sh', ['-c', `sleep 0.3; kill -KILL ${pid}`], { stdio: 'ignore' });
  assert.throws(() => new MLGraphBuilder(context), invalidState);
  await new Promise((resolve) => { killer.on('exit', resolve); });
  assert.equal(folders().length, 0);
});

const CLIENT = `
  import { connect } from ${JSON.stringify(new URL('bridge.js', import.meta.url).href)};
  const context = await navigator.ml.createContext();
  console.log((await connect()).pid);
  ACTION;
`;

function client(action, options = {}) {
  const child = spawn(process.execPath, ['--input-type=module', '-e', CLIENT.replace('ACTION', action)],
    { stdio: ['ignore', 'pipe', 'inherit'], ...options });
  const ended = new Promise((resolve) => { child.on('exit', (code, signal) => resolve(signal ?? code)); });
  const bridge = new Promise((resolve) => { child.stdout.once('data', (text) => resolve(Number(text))); });
  return { child, ended, bridge };
}

test('a program ends although it has a context', async () => {
  const { ended, bridge } = client('0');
  const pid = await bridge;
  assert.equal(await ended, 0);
  await eventually(() => !isAlive(pid), 'the bridge goes on');
});

test('the bridge ends with a killed client, and after Ctrl-C', async () => {
  const killed = client('setInterval(() => {}, 1000)');
  const pid = await killed.bridge;
  killed.child.kill('SIGKILL');
  assert.equal(await killed.ended, 'SIGKILL');
  await eventually(() => !isAlive(pid), 'the bridge of a killed client goes on');

  const interrupted = client('setInterval(() => {}, 1000)', { detached: true });
  const other = await interrupted.bridge;
  process.kill(-interrupted.child.pid, 'SIGINT');
  assert.equal(await interrupted.ended, 'SIGINT');
  await eventually(() => !isAlive(other), 'the bridge goes on after Ctrl-C');
  assert.deepEqual(folders(), []);
});

test('a client that is killed while it starts leaves nothing', async () => {
  for (const milliseconds of [0, 100, 200, 300]) {
    const { child, ended } = client('0');
    await new Promise((resolve) => { setTimeout(resolve, milliseconds); });
    child.kill('SIGKILL');
    await ended;
  }
  await eventually(() => folders().length === 0, 'a folder is left');
});

test('without Python, or without webnn_vk, createContext says what is missing', async () => {
  const { connector } = await import('../lib/node.js');
  await assert.rejects(connector({ python: '/nowhere/python3' })(), {
    name: 'OperationError', message: /WEBNN_VK_PYTHON/,
  });
  await assert.rejects(connector({ python: 'false' })(), {
    name: 'OperationError', message: /ended with status 1/,
  });
});

test('a worker thread has a bridge of its own', async () => {
  const code = CLIENT.replace('ACTION', `
    const { parentPort } = await import('node:worker_threads');
    parentPort.postMessage(context.opSupportLimits().softmax.input.dataTypes)`)
    .replace('console.log', 'void ');
  const worker = new Worker(new URL(`data:text/javascript,${encodeURIComponent(code)}`));
  const types = await new Promise((resolve, reject) => {
    worker.on('message', resolve);
    worker.on('error', reject);
  });
  assert.deepEqual(types, ['float32', 'float16']);
});

test('calls leave nothing behind', async () => {
  const context = await navigator.ml.createContext();
  const { pid } = await connect();
  const graph = await addition(context, 4);
  const [a, b] = await Promise.all([0, 1].map(() => context.createTensor(vector(4, { writable: true }))));
  const c = await context.createTensor(vector(4, { readable: true }));
  const data = new Float32Array([1, 2, 3, 4]);
  const round = async () => {
    for (let i = 0; i < 20; i++) {
      context.writeTensor(a, data);
      context.dispatch(graph, { a, b }, { c });
    }
    return context.readTensor(c);
  };
  const rounds = (LONG ? 1e5 : 1e4) / 41;
  for (let i = 0; i < rounds / 2; i++) await round();
  const first = memory(pid);
  for (let i = 0; i < rounds; i++) await round();
  assert(memory(pid) - first < 8, `the bridge grew from ${first} to ${memory(pid)} MiB`);
});

test('what is collected is freed on the device', async () => {
  const context = await navigator.ml.createContext();
  const { pid } = await connect();
  const data = new Float32Array(2 ** 22); // 16 MiB
  const make = async () => {
    context.writeTensor(await context.createTensor(vector(2 ** 22, { writable: true })), data);
  };
  await make();
  const first = memory(pid);
  let most = 0;
  // Collections are due after 512 MiB.
  for (let i = 0; i < (LONG ? 200 : 40); i++) {
    await make();
    most = Math.max(most, memory(pid) - first);
  }
  const last = memory(pid) - first;
  assert(most > 300 && most < 700, `the bridge grew by up to ${most} MiB`);
  // After the long run the last collection may be any time ago.
  assert(LONG || last < 400, `the bridge grew by ${last} MiB`);
});
