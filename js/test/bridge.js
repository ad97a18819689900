// A bridge on the CPU device for a test file, and what several of them need.
import assert from 'node:assert/strict';
import { install } from '../lib/global.js';
import { createML, interfaces } from '../lib/interfaces.js';
import { connector } from '../lib/node.js';

const env = { ...process.env, WEBNN_VK_DEVICE: 'cpu', WEBNN_VK_CPU_ENGINE: 'numpy' };
export const connect = connector({ env });
install(globalThis, interfaces, createML(connect));

export const vector = (n, options) => ({ dataType: 'float32', shape: [n], ...options });

/** A graph that adds `a` and `b`, of n float32 each, to `c`. */
export async function addition(context, n) {
  const builder = new MLGraphBuilder(context);
  const c = builder.add(builder.input('a', vector(n)), builder.input('b', vector(n)));
  return builder.build({ c });
}

/** Resolves once `holds()` does; fails after ten seconds. */
export async function eventually(holds, what) {
  for (let i = 0; !holds(); i++) {
    assert(i < 1000, what);
    await new Promise((resolve) => { setTimeout(resolve, 10); });
  }
}

export function isAlive(pid) {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}
