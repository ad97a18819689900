"""`shaders/templates.json`: the uses of each template, from the library's own kernels.

`python -m webnn_vk.codegen describe` reads it: the code generator knows nothing of the kernels.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.isa.catalogue import catalogue
from bench.isa.graphs import compiled
from webnn_vk.codegen.describe import TABLE
from webnn_vk.codegen.spec import Buffer, KernelSpec, Param
from webnn_vk.compiler import kernels
from webnn_vk.compiler.kernels.expression import HALF_CONVERSIONS
from webnn_vk.compiler.kernels.loads import SHUFFLES
from webnn_vk.gpu import nanoseconds
from webnn_vk.profiler import roofline
from webnn_vk.tools import samples

#: An option with more values than this is described by an example.
MOST_VALUES = 12


def _storing(spec: KernelSpec) -> KernelSpec:
    """The kernel, which also stores an intermediate result between its fused operators."""
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
    """The kernel with an operand of arbitrary strides."""
    params = (*spec.params, Param("s_x0", count=8))
    return replace(spec, params=params, options=(*spec.options, ("by_strides", ("x0",))))


def files() -> dict[Path, str]:
    plain = list(catalogue(frozenset()))
    # Weights in blocks need exact conversions.
    exact = HALF_CONVERSIONS | {"float16"}
    matrices = catalogue(kernels.MATRIX_FEATURES | exact, "block_product", "matmul")
    products = [spec for spec in matrices if spec.template == "matmul_coopmat.comp.j2"]
    dots = catalogue(frozenset({"integer_dot_product"}), "integer_product")
    products += [spec for spec in dots if spec.template == "matmul_dot.comp.j2"]
    # A kernel whose lanes always exchange what they load.
    shuffles = catalogue(SHUFFLES, "conv")
    products += [spec for spec in shuffles if spec.template == "conv_channels.comp.j2"]
    # And one that always adds up by subgroup operations.
    sums = catalogue(frozenset({"subgroup_basic", "subgroup_arithmetic"}), "softmax")
    products += [spec for spec in sums if spec.template == "softmax_kept.comp.j2"]
    specs = [*plain, *products, nanoseconds.spec(), *roofline.specs()]
    device = samples.GPU.masked(samples.FEATURES)
    for node in samples.over_many_keys():
        specs += kernels.all_modules(node, device)
    specs += [step.spec for step in compiled("token", device).dispatches]
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


def summarise(specs: Iterable[KernelSpec]) -> dict[str, Any]:
    """Template → the values in these specs, as plain JSON data: every name with all its variants,
    and the shortest spec as an example."""
    by_template: dict[str, list[KernelSpec]] = {}
    for spec in specs:
        by_template.setdefault(spec.template, []).append(spec)
    return {name: _summary(group) for name, group in sorted(by_template.items())}


def _summary(specs: Sequence[KernelSpec]) -> dict[str, Any]:
    rows: dict[str, list[list[tuple[str, str]]]] = {
        "buffers": [
            [(b.name, _buffer(b)) for b in s.buffers] for s in specs
        ],
        "params": [
            [(p.name, p.type if p.count == 1 else f"{p.type}[{p.count}]") for p in s.params]
            for s in specs
        ],
        "constants": [
            [(c.name, f"{c.type} = {c.default}") for c in s.constants] for s in specs
        ],
        "options": [[(name, repr(value)) for name, value in s.options] for s in specs],
    }
    shortest = min(specs, key=lambda spec: (len(spec.key()), spec.key()))
    return {
        **{kind: _variants(lists) for kind, lists in rows.items()},
        "example": shortest.to_json(),
    }


def _buffer(b: Buffer) -> str:
    texel = f":{b.portions}:{b.load}" * (b.load != "storage")
    return f"{b.data_type}:{b.access}:{b.width}{texel}"


def _variants(lists: Sequence[Sequence[tuple[str, str]]]) -> dict[str, Any]:
    """Name → "values", sorted (if there are too many, only the shortest), "of" how many, and
    "always": whether every spec has it."""
    found: dict[str, set[str]] = {}
    times: dict[str, int] = {}
    for row in lists:
        for name, value in row:
            found.setdefault(name, set()).add(value)
            times[name] = times.get(name, 0) + 1
    return {
        name: {
            "values": sorted(values) if len(values) <= MOST_VALUES
            else [min(values, key=lambda value: (len(value), value))],
            "of": len(values),
            "always": times[name] == len(lists),
        }
        for name, values in found.items()
    }
