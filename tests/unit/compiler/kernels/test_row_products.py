"""Products of one row that also normalise it or combine the halves of the result: which ones, and
plans."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.cases.prologue import Made
from tests.support.cases.row_products import GATED, NORMALISED, fused, only_kernel
from tests.support.graphs import graph_input, graph_of
from tests.support.profiles import H200, NAMES, stored_profile
from tests.support.running import plan
from webnn_vk.compiler.ir import Emitter, Graph, Value
from webnn_vk.driver.device_profile import DeviceProfile

GPU, SOFTWARE = stored_profile("amd_navi31"), stored_profile()
ROWS = NORMALISED | GATED


@pytest.mark.parametrize("case", ROWS)
def test_one_dispatch_reads_the_inputs(case: str) -> None:
    """On GPUs. Of the least of Adreno's, workgroups are too small to share out the columns of a
    matrix."""
    made = ROWS[case]("float32")
    for name in (*NAMES, H200):
        profile = stored_profile(name)
        if profile.device_type == "cpu" or "minimum" in name and case == "row_by_columns":
            continue
        node = only_kernel(made, profile)
        (dispatch,) = plan(node, profile)
        assert {binding.value for binding in dispatch.bindings} == {*made.arrays, made.output}


@pytest.mark.parametrize("case", ROWS)
def test_processors_keep_the_kernels_apart(case: str) -> None:
    """Workgroups would normalise the row one after the other."""
    assert len(_titles(ROWS[case]("float32"), SOFTWARE)) > 1


def _titles(made: Made, profile: DeviceProfile) -> list[str]:
    inputs = {value.name: value for value in made.arrays}
    graph = Graph(inputs, {"y": made.output}, tuple(made.emit.nodes))
    return [node.title for node in fused(graph, profile).nodes]


def test_texts() -> None:
    emit = Emitter()
    x, w, s = (graph_input(*pair) for pair in (("x", (1, 256)), ("w", (8, 256)), ("s", (256,))))
    y = emit.gemm(emit.mul(_norm(emit, x), s), w, b_transpose=True)
    gate, up = emit.split(y, 2, axis=1)
    y = emit.relu(emit.mul(emit.tanh(gate, label="gate"), up))
    graph = graph_of(emit, {"y": y}, x, w, s)
    text = str(fused(graph, GPU)).splitlines()
    assert text[3:] == [
        "%0: float32[1, 4] = gemm(a=(rms_normalization(input=%x, axes=(1,), epsilon=1e-05) |> "
        "mul(%s)), b=%w, alpha=1.0, beta=1.0, a_transpose=False, b_transpose=True) "
        "|> tanh [gate](#0) |> mul(#1) |> relu()",
        "output y = %0",
    ]


#: A row x [1, 256], a matrix [256, 256], a vector and a number.
Build = Callable[[Emitter, Value, Value, Value, Value], tuple[Value, ...]]


def _product(emit: Emitter, row: Value, w: Value) -> Value:
    return emit.gemm(row, w, b_transpose=True)


def _norm(emit: Emitter, x: Value) -> Value:
    return emit.rms_normalization(x, axes=[1])


def _of_two_products(e: Emitter, x: Value, w: Value, s: Value, one: Value) -> tuple[Value, ...]:
    y = _norm(e, x)
    return _product(e, y, w), e.relu(e.matmul(y, w))


def _squared(e: Emitter, x: Value, w: Value, s: Value, one: Value) -> tuple[Value, ...]:
    y = _norm(e, x)
    return (_product(e, e.mul(y, y), w),)


APART: dict[str, Build] = {
    "of two products": _of_two_products,
    "squared": _squared,
    "centred": lambda e, x, w, s, one: (_product(e, e.layer_normalization(x, axes=[1]), w),),
    "shifted": lambda e, x, w, s, one: (_product(e, e.add(_norm(e, x), s), w),),
    "times a number": lambda e, x, w, s, one: (_product(e, e.mul(_norm(e, x), one), w),),
    "as the matrix": lambda e, x, w, s, one: (_product(e, w, _norm(e, x)),),
    "an addend too": lambda e, x, w, s, one: (
        e.gemm(y := _norm(e, x), w, c=y, b_transpose=True),
    ),
    "kept": lambda e, x, w, s, one: (_product(e, y := _norm(e, x), w), y),
}


@pytest.mark.parametrize("build", APART)
def test_what_a_product_does_not_normalise(build: str) -> None:
    emit = Emitter()
    shapes = (1, 256), (256, 256), (256,), (1,)
    inputs = [graph_input(*pair) for pair in zip("xwso", shapes, strict=True)]
    outputs = APART[build](emit, *inputs)
    kernels = fused(graph_of(emit, dict(zip("yz", outputs, strict=False)), *inputs), GPU).nodes
    assert not any(getattr(node, "prologue", None) for node in kernels)


@pytest.mark.parametrize(("rows", "width"), [(2, 256), (1, 250), (1, 6)])
def test_rows_that_a_product_does_not_normalise(rows: int, width: int) -> None:
    """Several, or such that its lanes don't share out in whole vectors."""
    emit = Emitter()
    x, w = graph_input("x", (rows, width)), graph_input("w", (8, width))
    graph = graph_of(emit, {"y": _product(emit, _norm(emit, x), w)}, x, w)
    assert [node.title for node in fused(graph, GPU).nodes] == ["rms_normalization", "gemm"]


@pytest.mark.parametrize(("rows", "starts", "kept"), [
    (2, (0, 4), False), (1, (0, 3), False), (1, (4, 4), False), (1, (0, 4), True),
])
def test_what_a_product_does_not_combine(
    rows: int, starts: tuple[int, int], kept: bool
) -> None:
    """Of several rows, of parts that are no halves, and of what is an output too."""
    emit = Emitter()
    x, w = graph_input("x", (rows, 256)), graph_input("w", (8, 256))
    y = _product(emit, x, w)
    left, right = (emit.slice(y, [0, start], [rows, 4]) for start in starts)
    outputs = {"y": emit.mul(left, right), **({"z": y} if kept else {})}
    kernels = fused(graph_of(emit, outputs, x, w), GPU).nodes
    assert len(kernels) > 1 and not any(getattr(node, "gated", False) for node in kernels)


def test_halves_of_which_a_part_is_read_again() -> None:
    emit = Emitter()
    x, w = graph_input("x", (1, 256)), graph_input("w", (8, 256))
    y = _product(emit, x, w)
    left, right = emit.split(y, 2, axis=1)
    both = emit.mul(emit.mul(left, right), emit.slice(y, [0, 5], [1, 1]))
    kernels = fused(graph_of(emit, {"y": both}, x, w), GPU).nodes
    assert not any(getattr(node, "gated", False) for node in kernels)
