// WebNN for Node: https://www.w3.org/TR/webnn/, as webnn_vk computes it.
import type { MLOperators } from './operators.js';

export type MLPowerPreference = 'default' | 'high-performance' | 'low-power';
export type MLOperandDataType =
  'float32' | 'float16' | 'int32' | 'uint32' | 'int64' | 'uint64' | 'int8' | 'uint8';
export type MLNumber = number | bigint;
export type MLBufferSource = ArrayBufferLike | ArrayBufferView;

export interface MLContextOptions {
  powerPreference?: MLPowerPreference;
  accelerated?: boolean;
}
export interface MLOperandDescriptor {
  dataType: MLOperandDataType;
  shape: Iterable<number>;
}
export interface MLTensorDescriptor extends MLOperandDescriptor {
  readable?: boolean;
  writable?: boolean;
}
export interface MLContextLostInfo {
  message: string;
}
export interface MLTensorLimits {
  dataTypes: MLOperandDataType[];
  rankRange: { min: number; max: number };
}
export type MLOpSupportLimits = {
  preferredInputLayout: 'nchw' | 'nhwc';
  maxTensorByteLength: number;
  input: MLTensorLimits;
  constant: MLTensorLimits;
  output: MLTensorLimits;
} & { [operator in keyof MLOperators]: { [operand: string]: MLTensorLimits } };

export class ML {
  private constructor();
  createContext(options?: MLContextOptions): Promise<MLContext>;
}

export class MLContext {
  private constructor();
  readonly accelerated: boolean;
  readonly lost: Promise<MLContextLostInfo>;
  dispatch(graph: MLGraph, inputs: Record<string, MLTensor>, outputs: Record<string, MLTensor>): void;
  createTensor(descriptor: MLTensorDescriptor): Promise<MLTensor>;
  createConstantTensor(descriptor: MLOperandDescriptor, inputData: MLBufferSource): Promise<MLTensor>;
  readTensor(tensor: MLTensor): Promise<ArrayBuffer>;
  readTensor(tensor: MLTensor, outputData: MLBufferSource): Promise<undefined>;
  writeTensor(tensor: MLTensor, inputData: MLBufferSource): void;
  opSupportLimits(): MLOpSupportLimits;
  destroy(): void;
}

export class MLGraph {
  private constructor();
  /** Where the graph runs: 'gpu', 'cpu' or both. No part of the draft. */
  readonly devices: readonly string[];
  destroy(): void;
}

export class MLOperand {
  private constructor();
  readonly dataType: MLOperandDataType;
  readonly shape: readonly number[];
}

export class MLTensor {
  private constructor();
  readonly dataType: MLOperandDataType;
  readonly shape: readonly number[];
  readonly readable: boolean;
  readonly writable: boolean;
  readonly constant: boolean;
  destroy(): void;
}

export interface MLGraphBuilder extends MLOperators {
  input(name: string, descriptor: MLOperandDescriptor): MLOperand;
  constant(descriptor: MLOperandDescriptor, buffer: MLBufferSource): MLOperand;
  constant(dataType: MLOperandDataType, value: MLNumber): MLOperand;
  constant(tensor: MLTensor): MLOperand;
  build(outputs: Record<string, MLOperand>): Promise<MLGraph>;
}
export const MLGraphBuilder: { prototype: MLGraphBuilder; new (context: MLContext): MLGraphBuilder };

/** `navigator.ml`. */
export const ml: ML;

/** Defines `navigator.ml` and the interfaces on the global object, as in a browser. */
export function installGlobals(): void;
