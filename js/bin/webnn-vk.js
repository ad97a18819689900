#!/usr/bin/env node
// webnn-vk doctor: whether this machine can compute, and on which device.
// webnn-vk serve FOLDER [PORT]: pages that have navigator.ml in their workers.
import { serve } from '../lib/server.js';
import { connect } from '../lib/node.js';
import { createML, interfaces } from '../lib/interfaces.js';

const vector = { dataType: 'float32', shape: [1], readable: true, writable: true };

/** Builds and runs x + x; resolves to its result for 1, and the graph's devices. */
async function compute(ml) {
  const context = await ml.createContext();
  const builder = new interfaces.MLGraphBuilder(context);
  const x = builder.input('x', vector);
  const graph = await builder.build({ y: builder.add(x, x) });
  const [from, to] = await Promise.all([context.createTensor(vector), context.createTensor(vector)]);
  context.writeTensor(from, new Float32Array([1]));
  context.dispatch(graph, { x: from }, { y: to });
  const [result] = new Float32Array(await context.readTensor(to));
  return { result, devices: graph.devices };
}

async function doctor() {
  const python = process.env.WEBNN_VK_PYTHON || 'python3 (WEBNN_VK_PYTHON names another)';
  console.log(`Node    ${process.version}`);
  console.log(`Python  ${python}`);
  try {
    const client = await connect();
    console.log(`Bridge  webnn_vk ${client.version}`);
    const { result, devices } = await compute(createML(async () => client));
    console.log(`Device  ${devices.join(', ')}: 1 + 1 = ${result}`);
    console.log('`webnn-vk doctor` of the Python package says more of the devices.');
    return result === 2 ? 0 : 1;
  } catch (error) {
    console.log(`Failed  ${error.name}: ${error.message}`);
    return 1;
  }
}

const [command, ...given] = process.argv.slice(2);
if (command === 'doctor' && given.length === 0) {
  process.exitCode = await doctor();
} else if (command === 'serve' && (given.length === 1 || given.length === 2)) {
  const { url } = await serve(given[0], { port: Number(given[1] ?? 0) });
  console.log(url);
} else {
  console.error('webnn-vk doctor | serve FOLDER [PORT]');
  process.exitCode = 2;
}
