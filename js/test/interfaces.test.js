// Arguments as WebIDL converts them, and results: what the suite doesn't ask for.
import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { addition, vector } from './bridge.js';

let context;
before(async () => { context = await navigator.ml.createContext(); });

const rejectsWith = (name, promise, message) => assert.rejects(promise, (error) => {
  assert.equal(error.name, name);
  if (message) assert.match(error.message, message);
  return true;
});
const throwsWith = (name, call, message) => assert.throws(call, (error) => {
  assert.equal(error.name, name);
  assert.equal(error instanceof (name === 'TypeError' ? TypeError : DOMException), true);
  if (message) assert.match(error.message, message);
  return true;
});

test('a graph computes', async () => {
  const graph = await addition(context, 3);
  const [a, b] = await Promise.all([0, 1].map(() => context.createTensor(vector(3, { writable: true }))));
  const c = await context.createTensor(vector(3, { readable: true }));
  context.writeTensor(a, new Float32Array([1, 2, 3]));
  context.writeTensor(b, new Float32Array([0.5, -2, 1e10]).buffer);
  context.dispatch(graph, { a, b }, { c });
  const result = await context.readTensor(c);
  assert.equal(result.constructor, ArrayBuffer);
  assert.deepEqual([...new Float32Array(result)], [1.5, 0, Math.fround(1e10 + 3)]);
  assert.deepEqual(graph.devices, ['cpu']);
});

test('integers are enforced, wrapped, or converted from objects', () => {
  const builder = new MLGraphBuilder(context);
  const x = builder.input('x', { dataType: 'float32', shape: [2, 3] });
  assert.deepEqual(builder.softmax(x, 1.9).shape, [2, 3]);
  assert.deepEqual(builder.softmax(x, { valueOf: () => '1' }).shape, [2, 3]);
  assert.deepEqual(builder.softmax(x, -0.5).shape, [2, 3]);
  for (const axis of [-1, 2 ** 32, NaN, Infinity, 'a', 1n, Symbol('a'), undefined]) {
    throwsWith('TypeError', () => builder.softmax(x, axis));
  }
  throwsWith('TypeError', () => builder.softmax(x, 2), /softmax.*axis 2/);
  // Without [EnforceRange]: modulo 2³².
  assert.deepEqual(builder.tile(x, [2 ** 32 + 2, 1]).shape, [4, 3]);
  assert.deepEqual(builder.cumulativeSum(x, 2 ** 32 + 1).shape, [2, 3]);
  assert.deepEqual(builder.cumulativeSum(x, NaN).shape, [2, 3]);
  throwsWith('TypeError', () => builder.triangular(x, { diagonal: 2 ** 31 }));
});

test('sequences are anything that iterates', () => {
  const builder = new MLGraphBuilder(context);
  const x = builder.input('x', { dataType: 'float32', shape: new Set([2, 3]) });
  assert.deepEqual(x.shape, [2, 3]);
  assert.equal(x.shape, x.shape);
  assert.equal(Object.isFrozen(x.shape), true);
  function* sizes() { yield 3; yield '2'; }
  assert.deepEqual(builder.reshape(x, sizes()).shape, [3, 2]);
  assert.deepEqual(builder.split(x, Uint8Array.of(1, 2), { axis: 1 }).map((o) => o.shape), [[2, 1], [2, 2]]);
  assert.deepEqual(builder.split(x, 3, { axis: 1 }).length, 3);
  for (const shape of [6, '6', {}, null]) throwsWith('TypeError', () => builder.reshape(x, shape));
  throwsWith('TypeError', () => builder.concat(x, 0));
});

test('dictionaries are read in order, each member once', () => {
  const builder = new MLGraphBuilder(context);
  const x = builder.input('x', { dataType: 'float32', shape: [2, 3] });
  const read = [];
  builder.linear(x, new Proxy({}, { get: (_, key) => { read.push(key); } }));
  assert.deepEqual(read, ['label', 'alpha', 'beta']);
  assert.deepEqual(builder.linear(x, null).shape, [2, 3]);
  throwsWith('TypeError', () => builder.linear(x, 1));
  throwsWith('TypeError', () => builder.linear(x, { alpha: Infinity }));
  throwsWith('TypeError', () => builder.resample2d(x, { scales: [1e39, 1] }));
  throwsWith('TypeError', () => builder.gru(x, x, x, 1, 1, { direction: 'up' }), /'up' is not one of/);
  throwsWith('TypeError', () => builder.input('y', { dataType: 'float32' }), /shape is missing/);
  throwsWith('TypeError', () => builder.add(x, x, { label: Symbol('s') }));
});

test('numbers keep their kind, sign and size', async () => {
  const builder = new MLGraphBuilder(context);
  const constants = {
    zero: ['float32', -0], nan: ['float32', NaN], huge: ['int64', 2n ** 200n], low: ['int64', -(2n ** 63n)],
    high: ['uint64', 2n ** 64n - 1n], small: ['int8', -200.5],
  };
  const outputs = {};
  for (const [name, [type, value]] of Object.entries(constants)) {
    outputs[name] = builder.identity(builder.constant(type, value));
  }
  throwsWith('TypeError', () => builder.constant('float32', 1n), /BigInt/);
  const graph = await builder.build(outputs);
  const tensors = {};
  for (const [name, [dataType]] of Object.entries(constants)) {
    tensors[name] = await context.createTensor({ dataType, shape: [], readable: true });
  }
  context.dispatch(graph, {}, tensors);
  const values = {};
  const arrays = { float32: Float32Array, int64: BigInt64Array, uint64: BigUint64Array, int8: Int8Array };
  for (const [name, [type]] of Object.entries(constants)) {
    values[name] = new arrays[type](await context.readTensor(tensors[name]))[0];
  }
  assert.deepEqual(values, {
    zero: -0, nan: NaN, huge: 2n ** 63n - 1n, low: -(2n ** 63n), high: 2n ** 64n - 1n, small: -128,
  });
});

test('names and labels of any text', async () => {
  const builder = new MLGraphBuilder(context);
  const names = ['__proto__', 'constructor', '0', 'ä\u0000\u202e', '\ud800', 'x'.repeat(70000)];
  const outputs = Object.create(null);
  for (const name of names) {
    Object.defineProperty(outputs, name, { value: builder.relu(builder.input(name, vector(1))), enumerable: true });
  }
  const graph = await builder.build(outputs);
  const tensors = {};
  for (const name of names) {
    const value = await context.createTensor(vector(1, { readable: true, writable: true }));
    context.writeTensor(value, new Float32Array([names.indexOf(name) - 1]));
    Object.defineProperty(tensors, name, { value, enumerable: true });
  }
  const results = {};
  for (const name of names) {
    const value = await context.createTensor(vector(1, { readable: true }));
    Object.defineProperty(results, name, { value, enumerable: true });
  }
  context.dispatch(graph, tensors, results);
  const found = [];
  for (const name of names) found.push(new Float32Array(await context.readTensor(results[name]))[0]);
  assert.deepEqual(found, [0, 0, 1, 2, 3, 4]);
  const other = new MLGraphBuilder(context);
  const x = other.input('x', vector(2));
  throwsWith('TypeError', () => other.reshape(x, [3], { label: 'a\ud800\u202e' }), /\[a\ufffd\\u202e\]/);
});

test('buffers: shared, detached, resizable, of other types', async () => {
  const tensor = await context.createTensor(vector(2, { readable: true, writable: true }));
  const shared = new Float32Array(new SharedArrayBuffer(8));
  shared.set([5, 6]);
  context.writeTensor(tensor, shared);
  const [views] = [new Uint8Array(new SharedArrayBuffer(12), 2, 8)];
  assert.equal(await context.readTensor(tensor, views), undefined);
  assert.deepEqual([...views], [0, 0, 160, 64, 0, 0, 192, 64]);
  throwsWith('TypeError', () => context.writeTensor(tensor, new Int32Array(2)), /int32/);
  throwsWith('TypeError', () => context.writeTensor(tensor, new Float32Array(3)));
  throwsWith('TypeError', () => context.writeTensor(tensor, [5, 6]), /ArrayBuffer/);
  const resizable = new ArrayBuffer(8, { maxByteLength: 16 });
  throwsWith('TypeError', () => context.writeTensor(tensor, resizable), /resizable/);
  throwsWith('TypeError', () => context.writeTensor(tensor, new Float32Array(resizable)), /resizable/);
  const gone = new ArrayBuffer(8);
  structuredClone(gone, { transfer: [gone] });
  throwsWith('TypeError', () => context.writeTensor(tensor, gone));
  const output = new ArrayBuffer(8);
  const reading = context.readTensor(tensor, output);
  structuredClone(output, { transfer: [output] });
  await rejectsWith('TypeError', reading, /detached/);
  await rejectsWith('TypeError', context.readTensor(tensor, new ArrayBuffer(4)));
  await rejectsWith('TypeError', context.readTensor(tensor, undefined));
  assert.deepEqual([...new Float32Array(await context.readTensor(tensor))], [5, 6]);
});

test('constants are copied when they are given', async () => {
  const builder = new MLGraphBuilder(context);
  const data = new Float32Array([1, 2]);
  const c = builder.identity(builder.constant(vector(2), data));
  data.fill(9);
  const graph = await builder.build({ c });
  const tensor = await context.createTensor(vector(2, { readable: true }));
  context.dispatch(graph, {}, { c: tensor });
  assert.deepEqual([...new Float32Array(await context.readTensor(tensor))], [1, 2]);
});

test('wrong objects: of other builders, other contexts, or none', async () => {
  const [one, two] = [new MLGraphBuilder(context), new MLGraphBuilder(context)];
  const x = one.input('x', vector(2));
  throwsWith('TypeError', () => two.relu(x), /another builder/);
  await rejectsWith('TypeError', two.build({ y: x }), /another builder/);
  throwsWith('TypeError', () => one.relu({}), /MLOperand/);
  throwsWith('TypeError', () => one.relu(), /1 arguments/);
  throwsWith('TypeError', () => MLGraphBuilder.prototype.relu.call(x, x), /Illegal invocation/);
  await rejectsWith('TypeError', MLContext.prototype.createTensor.call({}, vector(2)), /Illegal/);
  for (const type of [MLContext, MLGraph, MLOperand, MLTensor, navigator.ml.constructor]) {
    throwsWith('TypeError', () => new type(), /Illegal constructor/);
  }
  throwsWith('TypeError', () => new MLGraphBuilder({}), /MLContext/);
  const other = await navigator.ml.createContext();
  const theirs = await other.createTensor(vector(2, { writable: true }));
  throwsWith('TypeError', () => context.writeTensor(theirs, new Float32Array(2)), /another context/);
  await rejectsWith('TypeError', navigator.ml.createContext({ powerPreference: 'none' }));
  assert.equal(String(theirs), '[object MLTensor]');
  other.destroy();
  assert.deepEqual(await other.lost, { message: 'destroy() was called' });
  throwsWith('InvalidStateError', () => new MLGraphBuilder(other));
});

test('destroy() rejects what is pending', async () => {
  const tensor = await context.createTensor(vector(1, { readable: true }));
  const reading = context.readTensor(tensor);
  tensor.destroy();
  tensor.destroy();
  await rejectsWith('InvalidStateError', reading);
  const other = await navigator.ml.createContext();
  const creating = other.createTensor(vector(1));
  other.destroy();
  await rejectsWith('InvalidStateError', creating);
});

test('limits are a new object each time, in the spelling of the IDL', () => {
  const limits = context.opSupportLimits();
  assert.notEqual(limits, context.opSupportLimits());
  assert.deepEqual(limits.gatherND.indices.rankRange, { min: 1, max: 8 });
  assert.deepEqual(limits.isNaN.output.dataTypes, ['uint8']);
  assert.equal(limits.maxTensorByteLength > 2 ** 20, true);
  limits.input.dataTypes.length = 0;
  assert.equal(context.opSupportLimits().input.dataTypes.length, 8);
});
