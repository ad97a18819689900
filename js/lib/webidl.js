// WebIDL: conversion of arguments, and interfaces as JavaScript objects (https://webidl.spec.whatwg.org).
import { DATA_TYPES } from './operators.js';

/** A DOMException, or where there is none an Error with its name. */
export function domException(message, name) {
  return new DOMException(message, name);
}

// -- conversions: (value, what) → converted value, or a TypeError ---------------------------------

function integer(low, high) {
  return (value, what) => {
    // As ToNumber: TypeError for bigints and symbols.
    const number = +value;
    if (!Number.isFinite(number)) throw new TypeError(`${what}: ${number} is not a finite number`);
    const whole = Math.trunc(number) + 0;
    if (whole < low || whole > high) throw new TypeError(`${what}: ${number} is not in ${low} … ${high}`);
    return whole;
  };
}

const unsignedLong = integer(0, 2 ** 32 - 1);
const wrappedLong = (value) => +value >>> 0;

function sequence(convert) {
  return (value, what) => {
    if ((typeof value !== 'object' && typeof value !== 'function') || value === null) {
      throw new TypeError(`${what}: a sequence is expected`);
    }
    const method = value[Symbol.iterator];
    if (method === undefined || method === null) {
      throw new TypeError(`${what}: a sequence is expected`);
    }
    return iterate(value, method, convert, what);
  };
}

function iterate(value, method, convert, what) {
  const items = [];
  const source = { [Symbol.iterator]: () => method.call(value) };
  for (const item of source) items.push(convert(item, `${what}[${items.length}]`));
  return items;
}

const unsignedLongs = sequence(unsignedLong);

function enumeration(values) {
  return (value, what) => {
    const text = `${value}`;
    if (!values.includes(text)) {
      throw new TypeError(`${what}: '${text}' is not one of ${values.join(', ')}`);
    }
    return text;
  };
}

function double(value, what) {
  const number = +value;
  if (!Number.isFinite(number)) throw new TypeError(`${what}: ${number} is not a finite number`);
  return number;
}

function float(value, what) {
  return double(Math.fround(value), what);
}

function toNumeric(value) {
  let numeric = value;
  return numeric++; // the old value, after ToNumeric
}

/** Bigints beyond this are infinite as floats, and clamped as integers. */
const HUGE = 2n ** 1100n;

function number(value) {
  const numeric = toNumeric(value);
  if (typeof numeric === 'number') return numeric;
  return numeric > HUGE ? HUGE : numeric < -HUGE ? -HUGE : numeric;
}

export function usvString(value) {
  return `${value}`.toWellFormed();
}

export const dataType = enumeration(DATA_TYPES);

/** The converters that operators.js names; of operands, see interfaces.js. */
export const converters = {
  boolean: (value) => Boolean(value),
  dataType,
  double,
  floats: sequence(float),
  long: integer(-(2 ** 31), 2 ** 31 - 1),
  number,
  unsignedLong,
  unsignedLongOrLongs: (value, what) => {
    const isObject = (typeof value === 'object' && value !== null) || typeof value === 'function';
    const method = isObject ? value[Symbol.iterator] : undefined;
    if (method === undefined || method === null) return unsignedLong(value, what);
    return iterate(value, method, unsignedLong, what);
  },
  unsignedLongs,
  usvString,
  wrappedLong,
  wrappedLongs: sequence(wrappedLong),
};

/** The converter for a name in operators.js, or for an enumeration's values. */
export function converterOf(kind) {
  if (typeof kind === 'string') return converters[kind];
  return Array.isArray(kind[0]) ? sequence(enumeration(kind[0])) : enumeration(kind);
}

export { sequence };

/**
 * A dictionary's converter. `levels`: per dictionary, the inherited one first, its members with
 * their converters, defaults and whether they are required; converted in lexicographical order.
 */
export function dictionary(...levels) {
  const members = levels.flatMap((level) =>
    Object.keys(level).sort().map((key) => ({ key, ...level[key] })));
  return (value, what) => {
    const absent = value === undefined || value === null;
    if (!absent && typeof value !== 'object' && typeof value !== 'function') {
      throw new TypeError(`${what}: an object is expected`);
    }
    const result = {};
    for (const { key, convert, required, fallback } of members) {
      const given = absent ? undefined : value[key];
      if (given !== undefined) result[key] = convert(given, `${what}.${key}`);
      else if (required) throw new TypeError(`${what}: ${key} is missing`);
      else if (fallback !== undefined) result[key] = fallback;
    }
    return result;
  };
}

/** record<USVString, T>, as a map without a prototype. */
export function record(convert) {
  return (value, what) => {
    if ((typeof value !== 'object' && typeof value !== 'function') || value === null) {
      throw new TypeError(`${what}: an object is expected`);
    }
    const result = Object.create(null);
    for (const key of Reflect.ownKeys(value)) {
      const property = Reflect.getOwnPropertyDescriptor(value, key);
      if (!property?.enumerable) continue;
      const name = usvString(key);
      result[name] = convert(value[key], `${what} '${name}'`);
    }
    return result;
  };
}

const typedArray = Object.getPrototypeOf(Uint8Array.prototype);
const tagOf = Object.getOwnPropertyDescriptor(typedArray, Symbol.toStringTag).get;

function lengthGetter(prototype) {
  return prototype && Object.getOwnPropertyDescriptor(prototype, 'byteLength').get;
}

const lengthGetters = [
  lengthGetter(ArrayBuffer.prototype), lengthGetter(globalThis.SharedArrayBuffer?.prototype),
].filter(Boolean);

function isBuffer(value) {
  return lengthGetters.some((get) => {
    try {
      get.call(value);
      return true;
    } catch {
      return false;
    }
  });
}

/** AllowSharedBufferSource: what elements it has, for the bridge, and its bytes at present. */
export function bufferSource(value, what) {
  const isView = ArrayBuffer.isView(value);
  if (!isView && !isBuffer(value)) {
    throw new TypeError(`${what}: an ArrayBuffer, SharedArrayBuffer or view is expected`);
  }
  const buffer = isView ? value.buffer : value;
  if (buffer.resizable || buffer.growable) {
    throw new TypeError(`${what}: the buffer is resizable`);
  }
  const tag = isView ? tagOf.call(value) : undefined;
  const elements = tag === undefined || tag === 'Uint8ClampedArray' ? 'uint8'
    : tag.replace('Big', '').replace('Uint', 'uint').replace('Int', 'int').replace('Float', 'float')
      .replace('Array', '');
  return {
    elements,
    get bytes() {
      return isView ? new Uint8Array(buffer, value.byteOffset, value.byteLength)
        : new Uint8Array(buffer);
    },
    get detached() {
      return buffer.byteLength === 0;
    },
  };
}

// -- interfaces -------------------------------------------------------------------------------------

/** The internal state of each object of an interface. */
const states = new WeakMap();

/** The state of an object of `type`; undefined for any other value. */
export function stateOf(type, value) {
  const state = states.get(value);
  return state?.type === type ? state : undefined;
}

/** A new object of an interface. `state` gets its `type`. */
export function create(type, state, object = Object.create(type.prototype)) {
  state.type = type;
  states.set(object, state);
  return object;
}

/** The converter of an interface: the object's state. */
export function interfaceType(type) {
  return (value, what) => {
    const state = stateOf(type, value);
    if (state === undefined) throw new TypeError(`${what}: ${/^[AEIOUM]/.test(type.name) ? 'an' : 'a'} ${type.name} is expected`);
    return state;
  };
}

/**
 * Fills in an interface. `attributes` and `operations` are functions of an object's state; `length`
 * is the number of required arguments. `promising` names those that return promises: they reject
 * instead of throwing.
 */
export function define(type, { attributes = {}, operations = {}, promising = [] }) {
  const { prototype, name } = type;
  Object.defineProperty(prototype, Symbol.toStringTag, { value: name, configurable: true });
  const guarded = (key, length, body) => {
    const run = (self, args) => {
      const state = stateOf(type, self);
      if (state === undefined) throw new TypeError(`${key}: Illegal invocation`);
      if (args.length < length) {
        throw new TypeError(`${name}.${key}: ${length} arguments are needed, not ${args.length}`);
      }
      return body(state, ...args);
    };
    return promising.includes(key) ? (self, args) => {
      try {
        return run(self, args);
      } catch (error) {
        return Promise.reject(error);
      }
    } : run;
  };
  for (const [key, read] of Object.entries(attributes)) {
    const run = guarded(key, 0, read);
    const { get } = Object.getOwnPropertyDescriptor({ get [key]() { return run(this, []); } }, key);
    Object.defineProperty(prototype, key, { get, enumerable: true, configurable: true });
  }
  for (const [key, [length, body]] of Object.entries(operations)) {
    const run = guarded(key, length, body);
    const { [key]: value } = { [key](...args) { return run(this, args); } };
    Object.defineProperty(value, 'length', { value: length, configurable: true });
    Object.defineProperty(prototype, key, {
      value, enumerable: true, configurable: true, writable: true,
    });
  }
}
