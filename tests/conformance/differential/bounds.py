"""Allowed distance of a result from the reference.

Integers are exact. Element-wise floats are bounded in units in the last place (the tolerances of
the web-platform-tests). For other operators such a bound is meaningless where terms cancel. Their
bound is how much the reference's result moves when the inputs change in their last bits: a good
algorithm gives the exact result of slightly different inputs.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tests.conformance.differential.example import Example
from webnn_vk.compiler.ops import ALL_OPERATORS

# Units in the last place, if it isn't 0 (integers included: quotients close to a tie).
_ULPS = {
    "add": 1, "sub": 1, "mul": 1, "div": 2, "pow": 32, "reciprocal": 2, "sqrt": 1, "exp": 32,
    "log": 8, "elu": 18, "gelu": 18, "hard_sigmoid": 2, "hard_swish": 4, "leaky_relu": 1,
    "linear": 2, "prelu": 1, "sigmoid": 34, "softplus": 18, "softsign": 3, "tanh": 16, "cast": 1,
    "dequantize_linear": 1, "quantize_linear": 1, "batch_normalization": 6, "gru": 6,
    "gru_cell": 6, "lstm": 10, "lstm_cell": 6, "gru_recurrence": 6, "lstm_recurrence": 10,
    "layer_normalization": 14,
    "instance_normalization": 14, "softmax": 6, "resample2d": 1, "matmul": 2, "gemm": 4,
    "conv2d": 2, "conv_transpose2d": 2, "average_pool2d": 2, "l2_pool2d": 2, "cumulative_sum": 1,
    "quantized_conv2d": 2, "quantized_matmul": 2, "block_matmul": 2, "rms_normalization": 14,
    "attention": 8,
    "swish": 36, "gelu_tanh": 40,
    "reduce_l1": 1, "reduce_l2": 2, "reduce_log_sum": 18, "reduce_log_sum_exp": 18,
    "reduce_mean": 2, "reduce_product": 1, "reduce_sum": 1, "reduce_sum_square": 2, "sin": 1,
    "cos": 1, "tan": 1, "erf": 1,
}
# Absolute bounds of the web-platform-tests, tighter here: they apply to results near 0.
_ABSOLUTE = {"sin": 2.0**-20, "cos": 2.0**-20, "tan": 2.0**-18, "erf": 2.0**-20}
# Changing the inputs of a saturated gate doesn't show how its own rounding moves 1 − z: the bound
# is relative to the states.
_OF_LARGEST = dict.fromkeys(
    ("gru", "gru_cell", "gru_recurrence", "lstm", "lstm_cell", "lstm_recurrence"), 2.0**-18
)
_SUMMING = frozenset(
    name for name in _ULPS if name.startswith(("reduce", "gru", "lstm", "conv", "cumulative"))
) | {
    "matmul", "gemm", "softmax", "batch_normalization", "layer_normalization",
    "attention", "swish", "gelu_tanh", "instance_normalization", "average_pool2d", "l2_pool2d",
    "resample2d", "quantized_conv2d", "quantized_matmul", "block_matmul", "rms_normalization",
    "sin", "cos", "tan",
}
_CHANGE = 8 * 2.0**-23
_TRIALS = 4


def mismatch(example: Example, got: list[np.ndarray], expected: list[np.ndarray]) -> str | None:
    """Why the results differ too much, or None."""
    sensitivity: list[np.ndarray] | None = None
    for k, (a, e) in enumerate(zip(got, expected, strict=True)):
        if a.dtype != e.dtype or a.shape != e.shape:
            return f"output {k} is {a.dtype}{a.shape}, not {e.dtype}{e.shape}"
        ulps = _ULPS.get(example.operator, 0)
        if e.dtype.kind != "f":
            # Only operators with a bound and rounded integers may be off by one.
            allowed = ulps if example.operator in ("quantize_linear", "resample2d") else 0
            wrong = np.abs(a.astype(object) - e.astype(object)) > allowed
        else:
            wide, wanted = _finite(a), _finite(e)
            with np.errstate(all="ignore"):
                bound = ulps * _spacing(e) + _ABSOLUTE.get(example.operator, 0.0)
                if example.operator in _OF_LARGEST:
                    largest = float(np.max(np.abs(wanted), initial=1.0, where=~np.isnan(wanted)))
                    bound = bound + _OF_LARGEST[example.operator] * largest
                wrong = _beyond(a, e, wide, wanted, bound)
                if wrong.any() and example.operator in _SUMMING:
                    if sensitivity is None:
                        sensitivity = _sensitivity(example)
                    bound = bound + sensitivity[k]
                    wrong = _beyond(a, e, wide, wanted, bound)
        if np.any(wrong):
            at = tuple(int(i) for i in np.argwhere(wrong)[0])
            limit = f" ± {bound[at]:.3g}" if e.dtype.kind == "f" else ""
            return (
                f"{np.count_nonzero(wrong)} of {e.size} elements of output {k} differ; "
                f"at {list(at)}: {a[at]!r}, not {e[at]!r}{limit}"
            )
    return None


def _beyond(
    a: np.ndarray, e: np.ndarray, wide: np.ndarray, wanted: np.ndarray, bound: np.ndarray
) -> np.ndarray:
    apart = np.abs(wide - wanted) > bound
    return np.asarray((np.isnan(a) != np.isnan(e)) | (apart & ~np.isnan(e)))


def _finite(x: np.ndarray) -> np.ndarray:
    """In double precision, with infinities as the power of two after the largest number: overflow
    and the largest number are neighbours."""
    limit = 2.0 ** np.finfo(x.dtype).maxexp
    return np.clip(x.astype(np.float64), -limit, limit)


def _spacing(x: np.ndarray) -> np.ndarray:
    """Distance in units in the last place; a float32 denormal may be flushed to 0."""
    limits = np.finfo(x.dtype)
    size = np.clip(np.abs(x.astype(np.float64)), float(limits.tiny), float(limits.max))
    unit = 2.0 ** np.floor(np.log2(size)) * float(limits.eps)
    flushed = float(limits.tiny) if x.dtype == np.float32 else 0.0
    return np.where(np.abs(np.nan_to_num(size)) <= flushed, flushed, unit)


def _sensitivity(example: Example) -> list[np.ndarray]:
    """How much each output moves when the inputs change by a few units in the last place, with the
    number of summed terms: this many rounding errors add up."""
    record = ALL_OPERATORS[example.operator]
    inferred = example.inferred()
    out = inferred.outputs[0] if len(inferred.outputs) == 1 else tuple(inferred.outputs)

    def compute(operands: dict[str, Any]) -> list[np.ndarray]:
        assert record.compute is not None
        result = record.compute(out, **operands, **inferred.arguments)
        results = [result] if len(inferred.outputs) == 1 else list(result)
        return [
            _finite(np.asarray(r, np.float64).astype(d.numpy_dtype).astype(np.float32)).reshape(
                d.shape) if d.data_type == "float16" else np.asarray(r, np.float64).reshape(d.shape)
            for r, d in zip(results, inferred.outputs, strict=True)
        ]

    rng = np.random.default_rng(0)
    plain = {p.name: _promoted(example.operands.get(p.name)) for p in record.operands}
    base = compute(plain)
    moved = [np.zeros(b.shape) for b in base]
    for _ in range(_TRIALS):
        changed = {name: _changed(rng, x) for name, x in plain.items()}
        for m, b, c in zip(moved, base, compute(changed), strict=True):
            np.fmax(m, np.abs(b - c), out=m)  # what is infinite either way has no bound of NaN
    terms = max(x.size for x in plain.values() if x is not None)
    return [(2 + math.sqrt(max(1, terms / max(1, m.size))) / 2) * _largest_near(m) for m in moved]


def _largest_near(moved: np.ndarray) -> np.ndarray:
    """A single element may not move by chance: each counts with at least half of the mean."""
    finite = moved[np.isfinite(moved)]
    return np.maximum(moved, finite.mean() / 2 if finite.size else 0)


def _promoted(x: Any) -> Any:
    return x.astype(np.float32) if x is not None and x.dtype == np.float16 else x


def _changed(rng: np.random.Generator, x: Any) -> Any:
    if x is None or x.dtype.kind != "f":
        return x
    return (x * (1 + _CHANGE * rng.uniform(-1, 1, x.shape))).astype(np.float32)
