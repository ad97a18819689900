"""Expressions of the function library on a Vulkan device, through the project's code generator."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.support.kernels import PRELUDE, driver, run, templates
from webnn_vk.codegen.spec import Buffer, KernelSpec, Param

Evaluate = Callable[..., np.ndarray]


@pytest.fixture
def evaluate(vulkan: None) -> Evaluate:
    """`evaluate("w_add(a, b)", np.float32, a=…, b=…)`: the expression for every element, on the
    first Vulkan device; int64=False emulates 64-bit integers where the device has them."""

    def evaluate(
        expression: str, result: type, *, int64: bool = True, **arrays: np.ndarray
    ) -> np.ndarray:
        available = driver().profile.features
        wanted = {"nan_preserve_f32", "float16", "int8", *(["int64"] if int64 else [])}
        if int64 and "int64" not in available:
            pytest.skip("the device has no 64-bit integers")
        buffers = [Buffer(name, str(array.dtype)) for name, array in arrays.items()]
        spec = KernelSpec(
            "numerics.comp.j2",
            (*buffers, Buffer("out", str(np.dtype(result)), "w")),
            (Param("n"),),
            options=(("expression", expression), ("int64", "64" in expression)),
            features=frozenset(wanted & available),
        )
        count = len(next(iter(arrays.values())))
        body = "".join(f"  A_{name} {name} = load_{name}(i);\n" for name in arrays)
        text = (
            f"{PRELUDE}void main() {{\n  uint i = invocation_index();\n  if (i >= P.n) return;\n"
            f"{body}  store_out(i, {{{{ expression }}}});\n}}\n"
        )
        with templates(numerics=text):
            return run(spec, arrays, {"out": np.zeros(count, result)}, count)["out"]

    return evaluate
