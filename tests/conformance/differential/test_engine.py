"""Every operator on random operands, the CPU engine against the NumPy references."""

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.conformance.differential.bounds import mismatch
from tests.conformance.differential.drafting import examples
from tests.conformance.differential.example import run
from webnn_vk.compiler.ops import OPERATORS

EXAMPLES = 8


def known(example, got, expected):
    """The differences that docs/cpu-engine.md documents."""
    array, wanted = got[0], expected[0]
    match example.operator:
        case "lstm" | "lstm_cell" | "gru" | "gru_cell":  # sigmoids have an absolute error
            if array.dtype == np.float16 and overflowing_states(example, got, expected):
                return True
            names = example.arguments["activations"] or ["sigmoid"]
            grown = max(np.abs(a).max() for a in expected) > 100
            return grown and {"relu", "sigmoid"} <= {*names}
        case "max_pool2d":  # NaN doesn't compare as a number
            return np.array_equal(array[~np.isnan(wanted)], wanted[~np.isnan(wanted)])
        case "arg_max" | "arg_min":  # NaN is passed over
            x, axis = example.operands["input"], example.arguments["axis"]
            plain = ~np.isnan(x).any(axis=axis).reshape(wanted.shape)
            return np.array_equal(array[plain], wanted[plain])
        case "gelu":  # not to the last bits, and NaN of minus infinity
            array = np.where(np.isneginf(example.operands["input"]), wanted, array)
            return np.allclose(array, wanted, rtol=2e-3 if array.dtype == np.float16 else 1e-5,
                               atol=1e-6, equal_nan=True)
        case "layer_normalization" | "instance_normalization":
            # Sums in float32, so that rounding grows with |x| / deviation.
            x = example.operands["input"].astype(np.float64)
            axes = tuple(example.arguments.get("axes", range(1, x.ndim)))
            if example.operator == "instance_normalization":
                axes = (1, 2) if example.arguments.get("layout") == "nhwc" else (2, 3)
            spread = np.sqrt(x.var(axes).min() + example.arguments.get("epsilon", 1e-5))
            scale = example.operands.get("scale")
            most = 1.0 if scale is None else np.abs(scale.astype(np.float64)).max()
            bound = 4 * np.finfo(array.dtype).eps * np.abs(x).max() * most / spread
            return np.isfinite(x).all() and np.allclose(array, wanted, rtol=1e-5, atol=bound)
        case "elu":  # subnormal numbers lose a digit
            return np.allclose(array, wanted, rtol=1e-6, atol=1e-37, equal_nan=True)
        case "resample2d":  # float16 is rounded after every step
            bound = 4 * np.finfo(array.dtype).eps * np.abs(example.operands["input"]).max()
            return array.dtype == np.float16 and np.allclose(array, wanted, rtol=0, atol=bound)
    return False


def overflowing_states(example, got, expected):
    """Whether only states differ that stand beside infinite ones, which are the same: one step
    computes a state from all others of its sequence, and rounding decides what is left."""
    equal = []
    for array, wanted in zip(got, expected, strict=True):
        infinite = np.isinf(wanted)
        if not np.array_equal(array[infinite], wanted[infinite]):
            return False
        equal.append(np.where(infinite.any(-1, keepdims=True), wanted, array))
    return mismatch(example, equal, expected) is None


@pytest.mark.parametrize("name", sorted(OPERATORS))
@pytest.mark.timeout(1200)
def test_as_the_reference(name, engine_context, cpu_context):
    @settings(
        max_examples=max(EXAMPLES, settings.default.max_examples // 50), deadline=None,
        database=None, phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck), print_blob=False,
    )
    @given(examples(name))
    def check(example):
        (got,), (expected,) = run(engine_context, [example]), run(cpu_context, [example])
        error = mismatch(example, got, expected)
        assert error is None or known(example, got, expected), f"{error}\n{example.in_full()}"

    check()
