// Written by `python -m scripts.generate javascript` from the operators' records.

import type { MLNumber, MLOperand, MLOperandDataType } from './index.js';

export interface MLOperators {
  /** Absolute value; of the smallest integer it is that integer. */
  abs(
    input: MLOperand,
    options?: { label?: string },
  ): MLOperand;
  /** Smallest integer not below each element. */
  ceil(
    input: MLOperand,
    options?: { label?: string },
  ): MLOperand;
  /** Cosine of each element in radians. */
  cos(
    input: MLOperand,
    options?: { label?: string },
  ): MLOperand;
  /** Gauss error function. */
  erf(
    input: MLOperand,
    options?: { label?: string },
  ): MLOperand;
  /** e to the power of each element. */
  exp(
    input: MLOperand,
    options?: { label?: string },
  ): MLOperand;
  /** Largest integer not above each element. */
  floor(
    input: MLOperand,
    options?: { label?: string },
  ): MLOperand;
  /** Natural logarithm; NaN below 0. */
  log(
    input: MLOperand,
    options?: { label?: string },
  ): MLOperand;
  /** Negated value; of the smallest integer it is that integer. */
  neg(
    input: MLOperand,
    options?: { label?: string },
  ): MLOperand;
  /** 1 / x. */
  reciprocal(
    input: MLOperand,
    options?: { label?: string },
  ): MLOperand;
  /** Nearest integer; halves are rounded to the even one. */
  roundEven(
    input: MLOperand,
    options?: { label?: string },
  ): MLOperand;
  /** Sine of each element in radians. */
  sin(
    input: MLOperand,
    options?: { label?: string },
  ): MLOperand;
  /** -1, 0 or 1 by the sign; NaN stays NaN. */
  sign(
    input: MLOperand,
    options?: { label?: string },
  ): MLOperand;
  /** Square root; NaN below 0. */
  sqrt(
    input: MLOperand,
    options?: { label?: string },
  ): MLOperand;
  /** Tangent of each element in radians. */
  tan(
    input: MLOperand,
    options?: { label?: string },
  ): MLOperand;
  /** The input's elements, unchanged. */
  identity(
    input: MLOperand,
    options?: { label?: string },
  ): MLOperand;
  /** Each element limited to ``min_value`` … ``max_value``. An absent or NaN bound has no */
  clamp(
    input: MLOperand,
    options?: { minValue?: MLNumber; maxValue?: MLNumber; label?: string },
  ): MLOperand;
  /** Exponential linear unit: x for x > 0, alpha (e^x - 1) otherwise. */
  elu(
    input: MLOperand,
    options?: { alpha?: number; label?: string },
  ): MLOperand;
  /** Gaussian error linear unit: x/2 (1 + erf(x / sqrt 2)). */
  gelu(
    input: MLOperand,
    options?: { label?: string },
  ): MLOperand;
  /** max(min(alpha x + beta, 1), 0). */
  hardSigmoid(
    input: MLOperand,
    options?: { alpha?: number; beta?: number; label?: string },
  ): MLOperand;
  /** x max(0, min(6, x + 3)) / 6. */
  hardSwish(
    input: MLOperand,
    options?: { label?: string },
  ): MLOperand;
  /** x for x ≥ 0, alpha x below. */
  leakyRelu(
    input: MLOperand,
    options?: { alpha?: number; label?: string },
  ): MLOperand;
  /** alpha x + beta. */
  linear(
    input: MLOperand,
    options?: { alpha?: number; beta?: number; label?: string },
  ): MLOperand;
  /** x for x ≥ 0, slope x below; the operands broadcast to each other. */
  prelu(
    input: MLOperand, slope: MLOperand,
    options?: { label?: string },
  ): MLOperand;
  /** max(0, x). */
  relu(
    input: MLOperand,
    options?: { label?: string },
  ): MLOperand;
  /** 1 / (e^-x + 1). */
  sigmoid(
    input: MLOperand,
    options?: { label?: string },
  ): MLOperand;
  /** ln(1 + e^x). */
  softplus(
    input: MLOperand,
    options?: { label?: string },
  ): MLOperand;
  /** x / (1 + |x|). */
  softsign(
    input: MLOperand,
    options?: { label?: string },
  ): MLOperand;
  /** Hyperbolic tangent. */
  tanh(
    input: MLOperand,
    options?: { label?: string },
  ): MLOperand;
  /** Sum of two operands, element by element. */
  add(
    a: MLOperand, b: MLOperand,
    options?: { label?: string },
  ): MLOperand;
  /** Difference of two operands, element by element. */
  sub(
    a: MLOperand, b: MLOperand,
    options?: { label?: string },
  ): MLOperand;
  /** Product of two operands, element by element. */
  mul(
    a: MLOperand, b: MLOperand,
    options?: { label?: string },
  ): MLOperand;
  /** Quotient of two operands, element by element; integers are divided towards zero, by 0 to 0. */
  div(
    a: MLOperand, b: MLOperand,
    options?: { label?: string },
  ): MLOperand;
  /** The larger of two operands, element by element; NaN where either is. */
  max(
    a: MLOperand, b: MLOperand,
    options?: { label?: string },
  ): MLOperand;
  /** The smaller of two operands, element by element; NaN where either is. */
  min(
    a: MLOperand, b: MLOperand,
    options?: { label?: string },
  ): MLOperand;
  /** ``a`` to the power of ``b``, element by element; integers wrap around. */
  pow(
    a: MLOperand, b: MLOperand,
    options?: { label?: string },
  ): MLOperand;
  /** Each element converted to ``data_type``. */
  cast(
    input: MLOperand, dataType: MLOperandDataType,
    options?: { label?: string },
  ): MLOperand;
  /** ``true_value`` where ``condition`` is not 0, ``false_value`` elsewhere; all broadcast. */
  where(
    condition: MLOperand, trueValue: MLOperand, falseValue: MLOperand,
    options?: { label?: string },
  ): MLOperand;
  /** (input - zero_point) * scale; scale and zero_point have one element per block of the input: */
  dequantizeLinear(
    input: MLOperand, scale: MLOperand, zeroPoint: MLOperand,
    options?: { label?: string },
  ): MLOperand;
  /** round_even(input / scale) + zero_point, limited to the range of zero_point's type; scale and */
  quantizeLinear(
    input: MLOperand, scale: MLOperand, zeroPoint: MLOperand,
    options?: { label?: string },
  ): MLOperand;
  /** Two-dimensional convolution of a 4-D input with a 4-D filter. */
  conv2d(
    input: MLOperand, filter: MLOperand,
    options?: { padding?: Iterable<number>; strides?: Iterable<number>; dilations?: Iterable<number>; groups?: number; inputLayout?: 'nchw' | 'nhwc'; filterLayout?: 'oihw' | 'hwio' | 'ohwi' | 'ihwo'; bias?: MLOperand; label?: string },
  ): MLOperand;
  /** Two-dimensional transposed convolution of a 4-D input with a 4-D filter. */
  convTranspose2d(
    input: MLOperand, filter: MLOperand,
    options?: { padding?: Iterable<number>; strides?: Iterable<number>; dilations?: Iterable<number>; outputPadding?: Iterable<number>; outputSizes?: Iterable<number>; groups?: number; inputLayout?: 'nchw' | 'nhwc'; filterLayout?: 'iohw' | 'hwoi' | 'ohwi'; bias?: MLOperand; label?: string },
  ): MLOperand;
  /** Slices of the input at ``indices`` along ``axis``: the shape of ``indices`` replaces that */
  gather(
    input: MLOperand, indices: MLOperand,
    options?: { axis?: number; label?: string },
  ): MLOperand;
  /** For each element of ``indices``, the input's element with that index along ``axis`` and the */
  gatherElements(
    input: MLOperand, indices: MLOperand,
    options?: { axis?: number; label?: string },
  ): MLOperand;
  /** Slices of the input at the coordinates in the last dimension of ``indices``, which index the */
  gatherND(
    input: MLOperand, indices: MLOperand,
    options?: { label?: string },
  ): MLOperand;
  /** The input with the elements of ``updates`` written at ``indices`` along ``axis``, with the */
  scatterElements(
    input: MLOperand, indices: MLOperand, updates: MLOperand,
    options?: { axis?: number; label?: string },
  ): MLOperand;
  /** The input with the slices of ``updates`` written at the coordinates in the last dimension of */
  scatterND(
    input: MLOperand, indices: MLOperand, updates: MLOperand,
    options?: { label?: string },
  ): MLOperand;
  /** 1 where a = b; NaN equals nothing. */
  equal(
    a: MLOperand, b: MLOperand,
    options?: { label?: string },
  ): MLOperand;
  /** 1 where a ≠ b; NaN differs from everything. */
  notEqual(
    a: MLOperand, b: MLOperand,
    options?: { label?: string },
  ): MLOperand;
  /** 1 where a > b; 0 where either is NaN. */
  greater(
    a: MLOperand, b: MLOperand,
    options?: { label?: string },
  ): MLOperand;
  /** 1 where a ≥ b; 0 where either is NaN. */
  greaterOrEqual(
    a: MLOperand, b: MLOperand,
    options?: { label?: string },
  ): MLOperand;
  /** 1 where a < b; 0 where either is NaN. */
  lesser(
    a: MLOperand, b: MLOperand,
    options?: { label?: string },
  ): MLOperand;
  /** 1 where a ≤ b; 0 where either is NaN. */
  lesserOrEqual(
    a: MLOperand, b: MLOperand,
    options?: { label?: string },
  ): MLOperand;
  /** 1 where neither operand is 0. */
  logicalAnd(
    a: MLOperand, b: MLOperand,
    options?: { label?: string },
  ): MLOperand;
  /** 1 where an operand is not 0. */
  logicalOr(
    a: MLOperand, b: MLOperand,
    options?: { label?: string },
  ): MLOperand;
  /** 1 where exactly one operand is 0. */
  logicalXor(
    a: MLOperand, b: MLOperand,
    options?: { label?: string },
  ): MLOperand;
  /** 1 where the operand is 0. */
  logicalNot(
    a: MLOperand,
    options?: { label?: string },
  ): MLOperand;
  /** 1 where the operand is NaN. */
  isNaN(
    a: MLOperand,
    options?: { label?: string },
  ): MLOperand;
  /** 1 where the operand is infinite. */
  isInfinite(
    a: MLOperand,
    options?: { label?: string },
  ): MLOperand;
  /** Matrix product of the last two dimensions: [.., M, K] by [.., K, N] gives [.., M, N]. */
  matmul(
    a: MLOperand, b: MLOperand,
    options?: { label?: string },
  ): MLOperand;
  /** alpha · A · B + beta · C, with A [M, K] and B [K, N], each optionally given transposed. */
  gemm(
    a: MLOperand, b: MLOperand,
    options?: { c?: MLOperand; alpha?: number; beta?: number; aTranspose?: boolean; bTranspose?: boolean; label?: string },
  ): MLOperand;
  /** The same elements in the same order in another shape. ``new_shape`` has as many elements as */
  reshape(
    input: MLOperand, newShape: Iterable<number>,
    options?: { label?: string },
  ): MLOperand;
  /** Dimensions permuted: output dimension ``i`` is input dimension ``permutation[i]``; by default */
  transpose(
    input: MLOperand,
    options?: { permutation?: Iterable<number>; label?: string },
  ): MLOperand;
  /** A window of the input: in each dimension every ``strides[i]``-th (default 1) of the */
  slice(
    input: MLOperand, starts: Iterable<number>, sizes: Iterable<number>,
    options?: { strides?: Iterable<number>; label?: string },
  ): MLOperand;
  /** Inputs of one data type joined along ``axis``; their other dimensions are equal. */
  concat(
    inputs: Iterable<MLOperand>, axis: number,
    options?: { label?: string },
  ): MLOperand;
  /** The input split along ``axis`` into ``splits`` equal parts, or into parts of the given sizes, */
  split(
    input: MLOperand, splits: number | Iterable<number>,
    options?: { axis?: number; label?: string },
  ): MLOperand[];
  /** Dimensions of size 1 (and missing leading ones) repeated up to ``new_shape``, as NumPy */
  expand(
    input: MLOperand, newShape: Iterable<number>,
    options?: { label?: string },
  ): MLOperand;
  /** The input repeated ``repetitions[i]`` times along each dimension. */
  tile(
    input: MLOperand, repetitions: Iterable<number>,
    options?: { label?: string },
  ): MLOperand;
  /** Elements in reverse order along ``axes``: all dimensions when absent, none when empty. */
  reverse(
    input: MLOperand,
    options?: { axes?: Iterable<number>; label?: string },
  ): MLOperand;
  /** The input with elements added before and after each dimension: of ``value`` (cast to the */
  pad(
    input: MLOperand, beginningPadding: Iterable<number>, endingPadding: Iterable<number>,
    options?: { mode?: 'constant' | 'edge' | 'reflection'; value?: MLNumber; label?: string },
  ): MLOperand;
  /** Each matrix of the last two dimensions with the elements below (``upper``) or above the */
  triangular(
    input: MLOperand,
    options?: { upper?: boolean; diagonal?: number; label?: string },
  ): MLOperand;
  /** (input − mean) / √(variance + epsilon) · scale + bias, each per index along ``axis``. */
  batchNormalization(
    input: MLOperand, mean: MLOperand, variance: MLOperand,
    options?: { scale?: MLOperand; bias?: MLOperand; axis?: number; epsilon?: number; label?: string },
  ): MLOperand;
  /** Each channel of each sample normalised over its own height and width. */
  instanceNormalization(
    input: MLOperand,
    options?: { scale?: MLOperand; bias?: MLOperand; epsilon?: number; layout?: 'nchw' | 'nhwc'; label?: string },
  ): MLOperand;
  /** Each sample normalised over ``axes`` (all but the first when absent). */
  layerNormalization(
    input: MLOperand,
    options?: { scale?: MLOperand; bias?: MLOperand; axes?: Iterable<number>; epsilon?: number; label?: string },
  ): MLOperand;
  /** exp(x) / Σ exp(x) along an axis; the output has the input's shape and data type. */
  softmax(
    input: MLOperand, axis: number,
    options?: { label?: string },
  ): MLOperand;
  /** Mean over a sliding window of height and width. */
  averagePool2d(
    input: MLOperand,
    options?: { windowDimensions?: Iterable<number>; padding?: Iterable<number>; strides?: Iterable<number>; dilations?: Iterable<number>; layout?: 'nchw' | 'nhwc'; outputShapeRounding?: 'floor' | 'ceil'; outputSizes?: Iterable<number>; label?: string },
  ): MLOperand;
  /** Square root of the sum of squares over a sliding window of height and width. */
  l2Pool2d(
    input: MLOperand,
    options?: { windowDimensions?: Iterable<number>; padding?: Iterable<number>; strides?: Iterable<number>; dilations?: Iterable<number>; layout?: 'nchw' | 'nhwc'; outputShapeRounding?: 'floor' | 'ceil'; outputSizes?: Iterable<number>; label?: string },
  ): MLOperand;
  /** Maximum (NaN when an element is NaN) over a sliding window of height and width. */
  maxPool2d(
    input: MLOperand,
    options?: { windowDimensions?: Iterable<number>; padding?: Iterable<number>; strides?: Iterable<number>; dilations?: Iterable<number>; layout?: 'nchw' | 'nhwc'; outputShapeRounding?: 'floor' | 'ceil'; outputSizes?: Iterable<number>; label?: string },
  ): MLOperand;
  /** Gated recurrent unit over a sequence. */
  gru(
    input: MLOperand, weight: MLOperand, recurrentWeight: MLOperand, steps: number, hiddenSize: number,
    options?: { bias?: MLOperand; recurrentBias?: MLOperand; initialHiddenState?: MLOperand; resetAfter?: boolean; returnSequence?: boolean; direction?: 'forward' | 'backward' | 'both'; layout?: 'zrn' | 'rzn'; activations?: Iterable<'relu' | 'sigmoid' | 'tanh'>; label?: string },
  ): MLOperand[];
  /** One step of a gated recurrent unit. */
  gruCell(
    input: MLOperand, weight: MLOperand, recurrentWeight: MLOperand, hiddenState: MLOperand, hiddenSize: number,
    options?: { bias?: MLOperand; recurrentBias?: MLOperand; resetAfter?: boolean; layout?: 'zrn' | 'rzn'; activations?: Iterable<'relu' | 'sigmoid' | 'tanh'>; label?: string },
  ): MLOperand;
  /** Long short-term memory over a sequence. */
  lstm(
    input: MLOperand, weight: MLOperand, recurrentWeight: MLOperand, steps: number, hiddenSize: number,
    options?: { bias?: MLOperand; recurrentBias?: MLOperand; peepholeWeight?: MLOperand; initialHiddenState?: MLOperand; initialCellState?: MLOperand; returnSequence?: boolean; direction?: 'forward' | 'backward' | 'both'; layout?: 'iofg' | 'ifgo'; activations?: Iterable<'relu' | 'sigmoid' | 'tanh'>; label?: string },
  ): MLOperand[];
  /** One step of a long short-term memory. */
  lstmCell(
    input: MLOperand, weight: MLOperand, recurrentWeight: MLOperand, hiddenState: MLOperand, cellState: MLOperand, hiddenSize: number,
    options?: { bias?: MLOperand; recurrentBias?: MLOperand; peepholeWeight?: MLOperand; layout?: 'iofg' | 'ifgo'; activations?: Iterable<'relu' | 'sigmoid' | 'tanh'>; label?: string },
  ): MLOperand[];
  /** Sum of the absolute values over the given axes of the input (all when absent). */
  reduceL1(
    input: MLOperand,
    options?: { axes?: Iterable<number>; keepDimensions?: boolean; label?: string },
  ): MLOperand;
  /** Square root of the sum of squares over the given axes of the input (all when absent). */
  reduceL2(
    input: MLOperand,
    options?: { axes?: Iterable<number>; keepDimensions?: boolean; label?: string },
  ): MLOperand;
  /** Natural logarithm of the sum over the given axes of the input (all when absent). */
  reduceLogSum(
    input: MLOperand,
    options?: { axes?: Iterable<number>; keepDimensions?: boolean; label?: string },
  ): MLOperand;
  /** Natural logarithm of the sum of exponentials over the given axes of the input (all when absent). */
  reduceLogSumExp(
    input: MLOperand,
    options?: { axes?: Iterable<number>; keepDimensions?: boolean; label?: string },
  ): MLOperand;
  /** Maximum (NaN when an element is NaN) over the given axes of the input (all when absent). */
  reduceMax(
    input: MLOperand,
    options?: { axes?: Iterable<number>; keepDimensions?: boolean; label?: string },
  ): MLOperand;
  /** Mean over the given axes of the input (all when absent). */
  reduceMean(
    input: MLOperand,
    options?: { axes?: Iterable<number>; keepDimensions?: boolean; label?: string },
  ): MLOperand;
  /** Minimum (NaN when an element is NaN) over the given axes of the input (all when absent). */
  reduceMin(
    input: MLOperand,
    options?: { axes?: Iterable<number>; keepDimensions?: boolean; label?: string },
  ): MLOperand;
  /** Product over the given axes of the input (all when absent). */
  reduceProduct(
    input: MLOperand,
    options?: { axes?: Iterable<number>; keepDimensions?: boolean; label?: string },
  ): MLOperand;
  /** Sum over the given axes of the input (all when absent). */
  reduceSum(
    input: MLOperand,
    options?: { axes?: Iterable<number>; keepDimensions?: boolean; label?: string },
  ): MLOperand;
  /** Sum of squares over the given axes of the input (all when absent). */
  reduceSumSquare(
    input: MLOperand,
    options?: { axes?: Iterable<number>; keepDimensions?: boolean; label?: string },
  ): MLOperand;
  /** Index of the smallest element along an axis. */
  argMin(
    input: MLOperand, axis: number,
    options?: { keepDimensions?: boolean; outputDataType?: MLOperandDataType; label?: string },
  ): MLOperand;
  /** Index of the largest element along an axis. */
  argMax(
    input: MLOperand, axis: number,
    options?: { keepDimensions?: boolean; outputDataType?: MLOperandDataType; label?: string },
  ): MLOperand;
  /** Running sum of the input along an axis; the output has the input's shape and data type. */
  cumulativeSum(
    input: MLOperand, axis: number,
    options?: { exclusive?: boolean; reversed?: boolean; label?: string },
  ): MLOperand;
  /** The input resized along two axes, by the nearest element or by linear interpolation. */
  resample2d(
    input: MLOperand,
    options?: { mode?: 'nearest-neighbor' | 'linear'; scales?: Iterable<number>; sizes?: Iterable<number>; axes?: Iterable<number>; label?: string },
  ): MLOperand;
}
