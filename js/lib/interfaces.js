// The interfaces of WebNN. Arguments are converted here, as WebIDL says; everything else is decided
// by webnn_vk in Python.
import { DATA_TYPES, OPERATORS } from './operators.js';
import {
  bufferSource, converterOf, converters, create, dataType, define, dictionary, domException,
  interfaceType, record, sequence, stateOf, usvString,
} from './webidl.js';

export class ML {
  constructor() { throw new TypeError('Illegal constructor'); }
}
export class MLContext {
  constructor() { throw new TypeError('Illegal constructor'); }
}
export class MLGraph {
  constructor() { throw new TypeError('Illegal constructor'); }
}
export class MLOperand {
  constructor() { throw new TypeError('Illegal constructor'); }
}
export class MLTensor {
  constructor() { throw new TypeError('Illegal constructor'); }
}
export class MLGraphBuilder {
  constructor(context) {
    const owner = toContext(context, 'MLGraphBuilder: context');
    const { client } = owner;
    const number = client.call('builder', [owner.number]);
    create(MLGraphBuilder, owned(client, number, { context: owner }), this);
  }
}

const toContext = interfaceType(MLContext);
const toGraph = interfaceType(MLGraph);
const toOperand = interfaceType(MLOperand);
const toTensor = interfaceType(MLTensor);
const toTensors = record(toTensor);
const toOperandRecord = record(toOperand);

const operandDescriptor = {
  dataType: { convert: dataType, required: true },
  shape: { convert: converters.unsignedLongs, required: true },
};
const toOperandDescriptor = dictionary(operandDescriptor);
const toTensorDescriptor = dictionary(operandDescriptor, {
  readable: { convert: Boolean, fallback: false },
  writable: { convert: Boolean, fallback: false },
});
const toContextOptions = dictionary({
  accelerated: { convert: Boolean, fallback: true },
  powerPreference: {
    convert: converterOf(['default', 'high-performance', 'low-power']), fallback: 'default',
  },
});

const finished = new FinalizationRegistry(({ client, number, bytes }) => client.release(number, bytes));

/** The state of an object of the bridge, and its size in bytes, until it is collected. */
function owned(client, number, state, bytes = 0) {
  Object.assign(state, { client, number });
  finished.register(state, { client, number, bytes });
  return state;
}

/** The object's number, or 0, which no object has, when it belongs to a bridge that ended. */
function numberOf(state, client) {
  return state.client === client ? state.number : 0;
}

function numbersOf(states, client) {
  const numbers = {};
  for (const name in states) {
    Object.defineProperty(numbers, name, { value: numberOf(states[name], client), enumerable: true });
  }
  return numbers;
}

// -- ML ---------------------------------------------------------------------------------------------

/** `navigator.ml`, with a bridge that `connect` starts when the first context is created. */
export function createML(connect) {
  return create(ML, { connect });
}

async function createContext(state, options) {
  if (globalThis.GPUDevice && options instanceof globalThis.GPUDevice) {
    throw domException('createContext: webnn_vk has no access to a GPUDevice', 'NotSupportedError');
  }
  const { accelerated, powerPreference } = toContextOptions(options, 'createContext: options');
  const client = await state.connect();
  return client.start('createContext', [powerPreference, accelerated], ([number, given]) => {
    const context = owned(client, number, { accelerated: given }, CONTEXT_BYTES);
    context.lost = new Promise((resolve) => {
      client.onLost(number, (message) => resolve({ message }));
    });
    return client.allocated(create(MLContext, context), CONTEXT_BYTES);
  });
}

define(ML, {
  operations: { createContext: [0, createContext] }, promising: ['createContext'],
});

/** What a context takes of the device's memory for its own. */
const CONTEXT_BYTES = 2 ** 26;
const BYTES = Object.fromEntries(DATA_TYPES.map((type) => [type, Number(type.match(/\d+/)) / 8]));

// -- MLContext ----------------------------------------------------------------------------------------

function copyOf(value) {
  if (typeof value !== 'object') return value;
  if (Array.isArray(value)) return [...value];
  const copy = {};
  for (const key in value) copy[key] = copyOf(value[key]);
  return copy;
}

function newTensor({ client }, descriptor, constant) {
  const bytes = descriptor.shape.reduce((a, b) => a * b, BYTES[descriptor.dataType]);
  const state = { readable: false, writable: false, ...descriptor, constant };
  return (number) => client.allocated(create(MLTensor, owned(client, number, state, bytes)), bytes);
}

function readTensor(context, tensor, ...others) {
  const { client, number } = context;
  const source = toTensor(tensor, 'readTensor: tensor');
  const parameters = [number, numberOf(source, client)];
  const users = [context, source];
  if (others.length === 0) return client.start('read', parameters, (raw) => raw.buffer, { users });
  const output = bufferSource(others[0], 'readTensor: outputData');
  parameters.push(output.elements, output.bytes.byteLength);
  return client.start('read', parameters, (raw) => {
    const { bytes } = output;
    if (bytes.byteLength < raw.byteLength) {
      throw new TypeError('readTensor: outputData has been detached');
    }
    bytes.set(raw);
  }, { users });
}

define(MLContext, {
  attributes: { accelerated: (state) => state.accelerated, lost: (state) => state.lost },
  operations: {
    dispatch: [3, ({ client, number }, graph, inputs, outputs) => {
      const run = toGraph(graph, 'dispatch: graph');
      const given = [toTensors(inputs, 'dispatch: inputs'), toTensors(outputs, 'dispatch: outputs')];
      client.call('dispatch', [
        number, numberOf(run, client), ...given.map((states) => numbersOf(states, client)),
      ]);
    }],
    createTensor: [1, (context, descriptor) => {
      const given = toTensorDescriptor(descriptor, 'createTensor: descriptor');
      const { shape, readable, writable } = given;
      return context.client.start(
        'createTensor', [context.number, given.dataType, shape, readable, writable],
        newTensor(context, given, false), { users: [context] },
      );
    }],
    createConstantTensor: [2, (context, descriptor, inputData) => {
      const given = toOperandDescriptor(descriptor, 'createConstantTensor: descriptor');
      const data = bufferSource(inputData, 'createConstantTensor: inputData');
      return context.client.start(
        'createConstantTensor', [context.number, given.dataType, given.shape, data.elements],
        newTensor(context, given, true), { raw: data.bytes, users: [context] },
      );
    }],
    readTensor: [1, readTensor],
    writeTensor: [2, ({ client, number }, tensor, inputData) => {
      const target = toTensor(tensor, 'writeTensor: tensor');
      const data = bufferSource(inputData, 'writeTensor: inputData');
      client.call('write', [number, numberOf(target, client), data.elements], data.bytes);
    }],
    opSupportLimits: [0, (state) => {
      state.limits ??= state.client.call('limits', [state.number]);
      return copyOf(state.limits);
    }],
    destroy: [0, destroy],
  },
  promising: ['createTensor', 'createConstantTensor', 'readTensor', 'lost'],
});

function destroy(state) {
  state.client.destroy(state);
}

// `devices` is no part of the draft: the suite asks for it.
define(MLGraph, {
  attributes: { devices: (state) => Object.freeze(state.devices) },
  operations: { destroy: [0, destroy] },
});

define(MLTensor, {
  attributes: {
    dataType: (state) => state.dataType,
    shape: (state) => Object.freeze(state.shape),
    readable: (state) => state.readable,
    writable: (state) => state.writable,
    constant: (state) => state.constant,
  },
  operations: { destroy: [0, destroy] },
});

// -- MLGraphBuilder -----------------------------------------------------------------------------------

define(MLOperand, {
  attributes: {
    dataType: (state) => state.dataType,
    shape: (state) => Object.freeze(state.shape),
  },
});

function newOperand(builder, [index, type, shape]) {
  return create(MLOperand, { builder, index, dataType: type, shape });
}

function constant(builder, ...args) {
  const { client, number } = builder;
  if (args.length === 1) {
    const tensor = toTensor(args[0], 'constant: tensor');
    return newOperand(builder, client.call('constantTensor', [number, numberOf(tensor, client)]));
  }
  const [first, second] = args;
  const isDescriptor = first === undefined || first === null || typeof first === 'object'
    || typeof first === 'function';
  if (isDescriptor) {
    const given = toOperandDescriptor(first, 'constant: descriptor');
    const data = bufferSource(second, 'constant: buffer');
    const parameters = [number, given.dataType, given.shape, data.elements];
    return newOperand(builder, client.call('constant', parameters, data.bytes));
  }
  const type = dataType(first, 'constant: dataType');
  const value = converters.number(second, 'constant: value');
  const operand = client.call('scalar', [number, type, value]);
  checkBigInt('constant', value, type);
  return newOperand(builder, operand);
}

/** The suite wants BigInts for integers of 64 bits only. Comes last: other errors go before. */
function checkBigInt(what, value, type) {
  if (typeof value === 'bigint' && !type.endsWith('int64')) {
    throw new TypeError(`${what}: a BigInt is for int64 and uint64, not for ${type}`);
  }
}

/** An operand as the bridge knows it: its index, or -1 for one of another builder. */
function indexOf(builder, operand) {
  return operand.builder === builder ? operand.index : -1;
}

/** A converter from operators.js, which turns operands into what the bridge knows. */
function argument(kind) {
  if (kind === 'operand') return (value, what, builder) => indexOf(builder, toOperand(value, what));
  if (kind === 'operands') {
    const convert = sequence(toOperand);
    return (value, what, builder) => convert(value, what).map((o) => indexOf(builder, o));
  }
  return converterOf(kind);
}

function operator(name, [required, optional, many]) {
  const parameters = Object.keys(required).map((key) => [`${name}: ${key}`, argument(required[key])]);
  // spec: dictionaries are converted in order: MLOperatorOptions, then the operator's own.
  const options = [
    ['label', usvString, `${name}: label`],
    ...Object.keys(optional).map((key) => [key, argument(optional[key]), `${name}: ${key}`]),
  ];
  return [parameters.length, (builder, ...args) => {
    const given = parameters.map(([what, convert], i) => convert(args[i], what, builder));
    const last = args[parameters.length];
    const chosen = {};
    if (last !== undefined && last !== null) {
      if (typeof last !== 'object' && typeof last !== 'function') {
        throw new TypeError(`${name}: options: an object is expected`);
      }
      for (const [key, convert, what] of options) {
        const value = last[key];
        if (value !== undefined) chosen[key] = convert(value, what, builder);
      }
    }
    const result = builder.client.call('operator', [builder.number, name, given, chosen]);
    for (const key in chosen) {
      if (typeof chosen[key] === 'bigint') {
        checkBigInt(`${name} [${chosen.label ?? ''}]: ${key}`, chosen[key], stateOf(MLOperand, args[0]).dataType);
      }
    }
    return many ? result.map((one) => newOperand(builder, one)) : newOperand(builder, result);
  }];
}

define(MLGraphBuilder, {
  operations: {
    input: [2, (builder, name, descriptor) => {
      const given = [usvString(name), toOperandDescriptor(descriptor, 'input: descriptor')];
      const parameters = [builder.number, given[0], given[1].dataType, given[1].shape];
      return newOperand(builder, builder.client.call('input', parameters));
    }],
    constant: [1, constant],
    build: [1, (builder, outputs) => {
      const { client, number, context } = builder;
      const indices = {};
      for (const [name, operand] of Object.entries(toOperandRecord(outputs, 'build: outputs'))) {
        const value = indexOf(builder, operand);
        Object.defineProperty(indices, name, { value, enumerable: true });
      }
      return client.start('build', [number, indices],
        ([graph, devices]) => create(MLGraph, owned(client, graph, { devices })),
        { users: [context, builder] });
    }],
    ...Object.fromEntries(Object.entries(OPERATORS).map(([k, row]) => [k, operator(k, row)])),
  },
  promising: ['build'],
});

export const interfaces = { ML, MLContext, MLGraph, MLGraphBuilder, MLOperand, MLTensor };
export { DATA_TYPES, stateOf };
