// What test files of web-platform-tests find on the global object, beside Node's own and
// navigator.ml: a window or worker, fetch() of the checkout's files, and what older Nodes lack.
import fs from 'node:fs';
import path from 'node:path';

/** Sets up the global object. `kind`: "window" or "worker"; `url`: of the test, with its variant. */
export function prepare(root, kind, url) {
  const listeners = { error: [], unhandledrejection: [] };
  const isWindow = kind === 'window';
  const values = {
    self: globalThis,
    location: url,
    isSecureContext: true,
    crossOriginIsolated: true,
    GLOBAL: {
      isWindow: () => isWindow, isWorker: () => !isWindow, isShadowRealm: () => false,
    },
    postMessage: () => {},
    addEventListener: (type, listener) => listeners[type]?.push(listener),
    fetch: (from) => fetchFile(root, `${from}`, url),
    ...classes(isWindow),
  };
  for (const [key, value] of Object.entries(values)) {
    Object.defineProperty(globalThis, key, { value, configurable: true, writable: true });
  }
  polyfill();
  process.on('uncaughtException', (error) => report(listeners.error, { error, message: error.message }));
  process.on('unhandledRejection', (reason) => report(listeners.unhandledrejection, { reason }));
}

function report(listeners, event) {
  listeners.forEach((listener) => listener(event));
}

/** The global object's and navigator's classes, by which the suite tells a window from a worker. */
function classes(isWindow) {
  const illegal = (name) => ({
    [name]: class { constructor() { throw new TypeError('Illegal constructor'); } },
  })[name];
  const Navigator = illegal(isWindow ? 'Navigator' : 'WorkerNavigator');
  const Scope = illegal(isWindow ? 'Window' : 'DedicatedWorkerGlobalScope');
  Object.defineProperty(Navigator.prototype, Symbol.toStringTag, { value: Navigator.name });
  Object.defineProperty(Scope, Symbol.hasInstance, { value: (object) => object === globalThis });
  return {
    navigator: Object.create(Navigator.prototype), [Navigator.name]: Navigator, [Scope.name]: Scope,
  };
}

async function fetchFile(root, from, url) {
  const { pathname } = new URL(from, url);
  const file = path.join(root, decodeURIComponent(pathname));
  if (!file.startsWith(root) || !fs.existsSync(file)) return new Response(null, { status: 404 });
  return new Response(fs.readFileSync(file));
}

/** Language features that the suite uses and that Node 20 lacks. */
function polyfill() {
  const define = (object, key, value) => {
    if (!(key in object)) Object.defineProperty(object, key, { value, configurable: true, writable: true });
  };
  define(Set.prototype, 'difference', function difference(other) {
    return new Set([...this].filter((value) => !other.has(value)));
  });
  const detached = new WeakSet();
  define(ArrayBuffer.prototype, 'transfer', function transfer() {
    detached.add(this);
    return structuredClone(this, { transfer: [this] });
  });
  if (!('detached' in ArrayBuffer.prototype)) {
    Object.defineProperty(ArrayBuffer.prototype, 'detached', { get() { return detached.has(this); } });
  }
  // Its elements are read as bits, which compare as well; test files only compare them.
  define(globalThis, 'Float16Array', class Float16Array extends Uint16Array {
    static from(values) {
      return new this(Uint16Array.from(values, toHalf).buffer);
    }
  });
}

function toHalf(value) {
  const bits = new Uint32Array(new Float32Array([value]).buffer)[0];
  const sign = (bits >>> 16) & 0x8000;
  const exponent = ((bits >>> 23) & 255) - 112;
  if (value !== value) return 0x7e00;
  if (exponent > 30) return sign | 0x7c00;
  if (exponent < 1) return sign | Math.round(Math.abs(value) * 2 ** 24);
  const rest = bits & 0x1fff;
  const half = (exponent << 10) | ((bits >>> 13) & 0x3ff);
  return sign | (half + (rest > 0x1000 || (rest === 0x1000 && half & 1) ? 1 : 0));
}
