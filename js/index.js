// WebNN for Node: the same objects as a browser's, computed by webnn_vk.
import { createML, interfaces } from './lib/interfaces.js';
import { install } from './lib/global.js';
import { connector } from './lib/node.js';

export const { ML, MLContext, MLGraph, MLGraphBuilder, MLOperand, MLTensor } = interfaces;

/** `navigator.ml`. */
export const ml = createML(connector());

/** Defines `navigator.ml` and the interfaces on the global object, as in a browser. */
export function installGlobals() {
  install(globalThis, interfaces, ml);
}
