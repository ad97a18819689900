// What calls and transfers do, counted and so the same on every machine: node bench/counts.js
//
// Prints JSON: of one call of `add` and of `dispatch`, how many functions of lib/ are called, frames
// sent and received, and bytes sent; and whether a write sends the caller's own bytes.
import { Session } from 'node:inspector/promises';
import { Client } from '../lib/client.js';
import { createML, interfaces } from '../lib/interfaces.js';
import { launch } from '../lib/node.js';

const seen = { sent: 0, received: 0, bytes: 0, own: undefined };
const env = { ...process.env, WEBNN_VK_DEVICE: 'cpu' };
const data = new Float32Array(25e6);
const client = await launch({ env }, (channel, version, pid) => {
  const { send, receive } = channel;
  channel.send = (start, raw) => {
    seen.sent++;
    seen.bytes += start.byteLength + (raw?.byteLength ?? 0);
    if (raw?.byteLength === data.byteLength) seen.own = raw.buffer === data.buffer;
    return send.call(channel, start, raw);
  };
  channel.receive = () => {
    seen.received++;
    return receive.call(channel);
  };
  return Object.assign(new Client(channel), { version, pid });
});
const context = await createML(async () => client).createContext();

const inspector = new Session();
inspector.connect();
await inspector.post('Profiler.enable');

/** Counts of one of `calls` calls. */
async function count(calls, call) {
  call();
  await inspector.post('Profiler.startPreciseCoverage', { callCount: true, detailed: false });
  const before = { ...seen };
  for (let i = 0; i < calls; i++) call();
  const after = { ...seen };
  const { result } = await inspector.post('Profiler.takePreciseCoverage');
  await inspector.post('Profiler.stopPreciseCoverage');
  const functions = result.filter(({ url }) => url.includes('/lib/'))
    .flatMap((file) => file.functions).reduce((sum, { ranges }) => sum + ranges[0].count, 0);
  return {
    functions: functions / calls,
    ...Object.fromEntries(['sent', 'received', 'bytes'].map((key) => [key, (after[key] - before[key]) / calls])),
  };
}

const descriptor = (n) => ({ dataType: 'float32', shape: [n], readable: true, writable: true });
const builder = new interfaces.MLGraphBuilder(context);
const a = builder.input('a', descriptor(4));
const add = await count(1000, () => builder.add(a, a));

const other = new interfaces.MLGraphBuilder(context);
const input = other.input('x', descriptor(4));
const graph = await other.build({ y: other.add(input, input) });
const [x, y] = await Promise.all([0, 1].map(() => context.createTensor(descriptor(4))));
const dispatch = await count(1000, () => context.dispatch(graph, { x }, { y }));

const large = await context.createTensor(descriptor(25e6));
const write = await count(1, () => context.writeTensor(large, data));
console.log(JSON.stringify({ add, dispatch, write, own: seen.own }));
process.exit(0);
