"""`shaders/templates.json`: what each template is used with, from the library's own kernels.

`python -m webnn_vk.codegen describe` reads it: the generator knows nothing of the kernels.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from webnn_vk.codegen.describe import TABLE, summarise
from webnn_vk.codegen.spec import Buffer, KernelSpec, Param
from webnn_vk.compiler import kernels
from webnn_vk.gpu import nanoseconds
from webnn_vk.profiler import roofline
from webnn_vk.tools.pack import catalogue


def _storing(spec: KernelSpec) -> KernelSpec:
    """The kernel with a result on the way to what is fused into it that is stored, too."""
    stored = Buffer("s0", str(spec.option("epilogue_type")), "w")
    return replace(
        spec, buffers=(*spec.buffers, stored), params=(*spec.params, Param("stored")),
        options=(*spec.options, ("epilogue_stores", (("s0", "t1"),))),
    )


def _computing(spec: KernelSpec) -> KernelSpec:
    """The kernel with an operand that it computes where it loads it."""
    (x,) = (buffer for buffer in spec.buffers if buffer.name == "x")
    buffers = [replace(buffer, name="q0") if buffer is x else buffer for buffer in spec.buffers]
    before = (("prologue", (("float32", "v_q0"),)), ("prologue_loads", (("q0", "i", "flat"),)))
    return replace(spec, buffers=tuple(buffers), options=(*spec.options, *before))


def _by_strides(spec: KernelSpec) -> KernelSpec:
    """The kernel with an operand that lies anyhow."""
    params = (*spec.params, Param("s_x0", count=8))
    return replace(spec, params=params, options=(*spec.options, ("by_strides", ("x0",))))


def files() -> dict[Path, str]:
    plain = list(catalogue(frozenset()))
    matrices = catalogue(kernels.MATRIX_FEATURES | kernels.MATRIX2_FEATURES)
    products = [
        # Few compilers know what the second needs: its emulation is described.
        replace(spec, features=frozenset()) if "cooperative_matrix2" in spec.features else spec
        for spec in matrices if spec.template.startswith("matmul_coopmat")
    ]
    dots = catalogue(frozenset({"integer_dot_product"}))
    products += [spec for spec in dots if spec.template == "matmul_dot.comp.j2"]
    specs = [*plain, *products, nanoseconds.spec(), *roofline.specs()]
    fused = {spec.template: spec for spec in specs if spec.option("epilogue_type")}
    specs += [_storing(spec) for spec in fused.values()]
    computing = tuple(f.name for f in kernels.FAMILIES.values() if f.input_loads)
    specs += [_computing(spec) for t, spec in fused.items() if t.startswith(computing)]
    strided = next(
        spec for spec in plain if spec.template == "elementwise.comp.j2"
        and ("x0", True) in spec.option("operands")
    )
    specs.append(_by_strides(strided))
    return {TABLE: json.dumps(summarise(specs), indent=1) + "\n"}
