// What calls and transfers cost, on the CPU device: node bench/calls.js
//
// Prints JSON: microseconds of a call and milliseconds of 100 MB, as processor time of Node and of
// the bridge, and by the clock, each in the run where it is shortest.
import fs from 'node:fs';
import { createML, interfaces } from '../lib/interfaces.js';
import { connector } from '../lib/node.js';

const env = { ...process.env, WEBNN_VK_DEVICE: 'cpu' };
const connect = connector({ env });
const context = await createML(connect).createContext();
const { pid } = await connect();

/** Milliseconds of processor time so far: Node's, and the bridge's in steps of 10. */
function spent() {
  const fields = fs.readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1].split(' ');
  const { user, system } = process.cpuUsage();
  return [(user + system) / 1e3, (Number(fields[11]) + Number(fields[12])) * 10];
}

/** Milliseconds of a run of `action`, the least of `count` runs after one more. */
async function measure(count, action) {
  await action();
  let least = [Infinity, Infinity, Infinity];
  for (let i = 0; i < count; i++) {
    const before = [...spent(), performance.now()];
    await action();
    const after = [...spent(), performance.now()];
    least = least.map((value, at) => Math.min(value, after[at] - before[at]));
  }
  const [node, bridge, clock] = least;
  return { node, bridge, clock };
}

/** The same for one of `calls` calls, in microseconds. */
async function measureCalls(calls, call, finish = () => {}) {
  const found = await measure(5, async () => {
    for (let i = 0; i < calls; i++) call();
    await finish();
  });
  return Object.fromEntries(Object.entries(found).map(([key, value]) => [key, (value / calls) * 1e3]));
}

const descriptor = (n) => ({ dataType: 'float32', shape: [n], readable: true, writable: true });
const builder = new interfaces.MLGraphBuilder(context);
const a = builder.input('a', descriptor(4));
const add = await measureCalls(5000, () => builder.add(a, a));

const other = new interfaces.MLGraphBuilder(context);
const input = other.input('x', descriptor(4));
const graph = await other.build({ y: other.add(input, input) });
const [x, y] = await Promise.all([0, 1].map(() => context.createTensor(descriptor(4))));
const dispatch = await measureCalls(
  2000, () => context.dispatch(graph, { x }, { y }), () => context.readTensor(y));

const data = new Float32Array(25e6);
const large = await context.createTensor(descriptor(25e6));
const write = await measure(5, () => context.writeTensor(large, data));
const read = await measure(3, () => context.readTensor(large));
console.log(JSON.stringify({ add, dispatch, write, read }));
