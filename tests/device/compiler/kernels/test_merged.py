"""One kernel for what common networks have behind products with an addend."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import webnn_vk
from tests.support.discriminating import assert_allclose
from webnn_vk.api.ml_graph import executable_of

SPECIAL = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-40, -1e-40, 7.0], np.float32)
CHAINS = {
    "nothing": lambda b, y, z: y,
    "add": lambda b, y, z: b.add(y, z),
    "added": lambda b, y, z: b.add(z, y),
    "relu": lambda b, y, z: b.relu(y),
    "clamp": lambda b, y, z: b.clamp(y, min_value=-1, max_value=6),
    "add, relu": lambda b, y, z: b.relu(b.add(y, z)),
    "add, clamp": lambda b, y, z: b.clamp(b.add(z, y), min_value=0, max_value=0.5),
    "other": lambda b, y, z: b.abs(y),
    "repeated": lambda b, y, z: b.relu(b.clamp(y, max_value=3)),
    "a row": lambda b, y, z: b.add(y, b.slice(z, starts=[0, 0], sizes=[1, z.shape[1]])),
}


def graph_of(
    context: Any, names: list[str], columns: int = 24, addend: tuple[int, ...] = (24,)
) -> Any:
    builder = webnn_vk.MLGraphBuilder(context)
    x, z = (
        builder.input(n, {"data_type": "float32", "shape": s})
        for n, s in (("x", (16, 8)), ("z", (16, columns)))
    )
    random = np.random.default_rng(0)
    weights = random.standard_normal((8, columns), np.float32)
    added = random.standard_normal(addend, np.float32)
    outputs = {}
    for name in names:
        y = builder.gemm(x, builder.constant(weights), c=builder.constant(np.asarray(added)))
        outputs[name] = CHAINS[name](builder, y, z)
    return builder.build(outputs).result()


@pytest.mark.parametrize(
    ("columns", "addend"),
    [(24, (24,)), (24, (16, 1)), (24, ()), (24, (16, 24)), (23, (23,)), (23, (16, 1))],
)
def test_values(
    vulkan_context: Any, cpu_context: Any, columns: int, addend: tuple[int, ...]
) -> None:
    """Special values pass through as through the operators one by one, whether vectors are stored
    or not, and whether columns share addends or not."""
    random = np.random.default_rng(1)
    shapes = {"x": (16, 8), "z": (16, columns)}
    feeds = {name: random.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    with (
        graph_of(vulkan_context, list(CHAINS), columns, addend) as graph,
        graph_of(cpu_context, list(CHAINS), columns, addend) as reference,
    ):
        pairs = list(itertools.product(SPECIAL, SPECIAL))
        for start in range(0, len(pairs), 16):
            for row, (a, b) in enumerate(pairs[start : start + 16]):
                feeds["x"][row, 0] = a
                feeds["z"][row, :12] = b
            ours = vulkan_context.compute(graph, feeds)
            expected = cpu_context.compute(reference, feeds)
            for name in CHAINS:
                assert_allclose(
                    ours[name], expected[name], rtol=1e-5, atol=1e-5, err_msg=name
                )


def test_kernels(vulkan_context: Any) -> None:
    if vulkan_context.device_info.type != "cpu":
        pytest.skip("for software Vulkan")
    merged = ["nothing", "add", "added", "relu", "clamp", "add, relu", "add, clamp"]
    for names, count in ((merged, 1), ([*merged, "other"], 2), ([*merged, "repeated"], 2)):
        with graph_of(vulkan_context, names) as graph:
            products = {
                spec for spec in executable_of(graph).program.kernels
                if spec.template == "matmul.comp.j2"
            }
        assert len(products) == count, names
