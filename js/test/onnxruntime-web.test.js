// onnxruntime-web, unmodified, on its WebNN execution provider. MODELS is a folder that
// tests/system/javascript/test_onnxruntime_web.py fills: <name>.onnx and <name>.json with the inputs.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { after, test } from 'node:test';
import '../global.js';

const { MODELS } = process.env;
const require = createRequire(import.meta.url);
// Node ends while WebAssembly is compiled in the background and nothing else keeps it.
const alive = setInterval(() => {}, 1000);
after(() => clearInterval(alive));

const ARRAYS = { float32: Float32Array, int64: BigInt64Array };

function load(name) {
  const inputs = JSON.parse(fs.readFileSync(path.join(MODELS, `${name}.json`), 'utf8'));
  for (const input of Object.values(inputs)) {
    const convert = input.type === 'int64' ? BigInt : Number;
    input.data = ARRAYS[input.type].from(input.data, convert);
  }
  return { model: fs.readFileSync(path.join(MODELS, `${name}.onnx`)), inputs };
}

/** The seconds of the fastest of `count` runs, after one more. */
async function fastest(count, run) {
  let best = Infinity;
  for (let i = 0; i <= count; i++) {
    const start = performance.now();
    await run();
    if (i) best = Math.min(best, (performance.now() - start) / 1000);
  }
  return best;
}

for (const name of ['mobilenet', 'transformer']) {
  test(name, { skip: MODELS ? false : 'MODELS is not set' }, async () => {
    const ort = require('onnxruntime-web/all');
    ort.env.wasm.numThreads = 1;
    const { model, inputs } = load(name);
    const context = await navigator.ml.createContext();
    // ONNX Runtime logs how many nodes it gives to WebNN.
    const session = await ort.InferenceSession.create(model, {
      executionProviders: [{ name: 'webnn', context }], logSeverityLevel: 1,
    });
    const wasm = await ort.InferenceSession.create(model, { executionProviders: ['wasm'] });

    const feeds = {};
    const tensors = {};
    for (const [key, { type, shape, data }] of Object.entries(inputs)) {
      feeds[key] = new ort.Tensor(type, data, shape);
      const tensor = await context.createTensor({ dataType: type, shape, writable: true });
      context.writeTensor(tensor, data);
      tensors[key] = ort.Tensor.fromMLTensor(tensor, { dataType: type, dims: shape });
    }
    const expected = await wasm.run(feeds);
    const outputs = {};
    const results = {};
    for (const [key, { type, dims }] of Object.entries(expected)) {
      results[key] = await context.createTensor({ dataType: type, shape: dims, readable: true });
      outputs[key] = ort.Tensor.fromMLTensor(results[key], { dataType: type, dims });
    }
    await session.run(tensors, outputs);
    let worst = 0;
    for (const [key, { data }] of Object.entries(expected)) {
      const found = new Float32Array(await context.readTensor(results[key]));
      assert.equal(found.length, data.length);
      const scale = data.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
      data.forEach((value, i) => { worst = Math.max(worst, Math.abs(value - found[i]) / scale); });
    }
    assert(worst < 1e-4, `differs by ${worst}`);
    const webnn = await fastest(2, async () => {
      await session.run(tensors, outputs);
      for (const tensor of Object.values(results)) await context.readTensor(tensor);
    });
    const own = await fastest(2, () => wasm.run(feeds));
    console.log(JSON.stringify({
      name, worst, webnnMilliseconds: webnn * 1e3, wasmMilliseconds: own * 1e3,
    }));
  });
}
