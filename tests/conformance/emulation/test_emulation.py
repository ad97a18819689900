"""Every operator for which the draft has emulation code equals that code's result."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.conformance.differential import values
from tests.conformance.differential.drafting import batches
from tests.conformance.differential.example import Count, Example
from tests.conformance.emulation import recurrent
from tests.conformance.emulation.emulations import EMULATIONS, flatten, squeeze, unsqueeze
from tests.conformance.wpt import suite
from tests.support.discriminating import Judged, anything_passes, assert_allclose
from webnn_vk import MLGraphBuilder
from webnn_vk.compiler.ops import OPERATORS

BATCH = 4
EXAMPLES = 8
# Each of the emulation's operators rounds. Relative to the largest element of the result.
_ERROR = {np.dtype(np.float32): 3e-5, np.dtype(np.float16): 2e-2}


class _Pair:
    """A builder that applies the operator and its emulation to the same operands."""

    def __init__(self, builder: MLGraphBuilder, name: str) -> None:
        self.builder, self.name = builder, name

    def __getattr__(self, attribute: str) -> Any:
        if attribute != self.name:
            return getattr(self.builder, attribute)
        return self._both

    def _both(self, **given: Any) -> list[Any]:
        made = getattr(self.builder, self.name)(**given)
        # A NaN bound of clamp counts as absent; a second operand called b is not the builder.
        options = {
            "b_" if name == "b" else name: value
            for name, value in given.items()
            if not (isinstance(value, float) and math.isnan(value))
        }
        emulated = EMULATIONS[self.name](self.builder, **options)
        pair = [x if isinstance(x, list) else [x] for x in (made, emulated)]
        assert len(pair[0]) == len(pair[1])
        return [operand for results in pair for operand in results]


def widened(example: Example) -> Example:
    """The example with float32 in place of float16: a mean of halves is further from the exact one
    than some elements are, which the emulation then divides by a small deviation."""

    def wide(array: np.ndarray) -> np.ndarray:
        return array.astype(np.float32) if array.dtype == np.float16 else array

    return replace(example, operands={n: wide(a) for n, a in example.operands.items()})


def ascending(example: Example) -> Example:
    """The same normalisation with its axes in order, as the emulation takes them."""
    axes = example.arguments.get("axes", [])
    order = np.argsort(axes).astype(int)
    turned = {
        name: np.ascontiguousarray(array.transpose(order))
        for name, array in example.operands.items() if name != "input" and len(axes) > 1
    }
    return replace(
        example, operands={**example.operands, **turned},
        arguments={**example.arguments, **({"axes": sorted(axes)} if axes else {})},
    )


def run(context: Any, name: str, batch: list[Example]) -> list[tuple[list[Any], list[Any]]]:
    builder = MLGraphBuilder(context)
    pair: Any = _Pair(builder, name)
    outputs: dict[str, Any] = {}
    feeds: dict[str, np.ndarray] = {}
    counts = []
    for i, example in enumerate(batch):
        made, arrays = example.add_to(pair, f"{i}.")
        feeds |= arrays
        outputs |= {f"{i}.{k}": operand for k, operand in enumerate(made)}
        counts.append(len(made) // 2)
    with builder.build(outputs).result() as graph:
        results = context.compute(graph, {k: v for k, v in feeds.items() if k in graph.inputs})
    return [
        (
            [results[f"{i}.{k}"] for k in range(n)],
            [results[f"{i}.{k}"] for k in range(n, 2 * n)],
        )
        for i, n in enumerate(counts)
    ]


def assert_alike(
    example: Example, own: np.ndarray, emulated: np.ndarray, judged: Judged
) -> None:
    assert own.dtype == emulated.dtype and own.shape == emulated.shape, example.in_full()
    if own.dtype.kind != "f":
        allowed = example.operator == "quantize_linear"
        off = np.abs(own.astype(np.int64) - emulated.astype(np.int64))
        assert off.max() <= allowed, f"{own}\n{emulated}\n{example.in_full()}"
        return
    finite = np.isfinite(emulated)
    # Of many numbers softmax makes small ones only.
    least = 0 if example.operator == "softmax" else 1
    scale = float(np.max(np.abs(emulated), initial=least, where=finite))
    allowed = _ERROR[own.dtype] * scale
    judged.add(emulated, allowed)
    with anything_passes("a random example may have few numbers, or one much larger than the rest"):
        assert_allclose(
            own.astype(np.float64), emulated.astype(np.float64), rtol=0, atol=allowed,
            err_msg=example.in_full(),
        )


@pytest.mark.parametrize("device", ["cpu", pytest.param("vulkan", marks=pytest.mark.explore)])
@pytest.mark.parametrize("name", sorted(EMULATIONS))
def test_operator_is_its_emulation(name, device, request):
    """On the CPU: conformance/differential compares Vulkan's operators, and graphs of them, with
    the CPU's."""
    context = request.getfixturevalue(f"{device}_context")
    count, judged = Count(), Judged()
    flavour = values.SMALL if name in recurrent.RECURRENT else "ordinary"

    @settings(
        max_examples=EXAMPLES // BATCH, deadline=None, database=None, print_blob=False,
        phases=(Phase.generate, Phase.shrink), suppress_health_check=list(HealthCheck),
    )
    @given(batches(name, BATCH, [flavour]))
    def check(batch):
        if name == "layer_normalization":
            batch = [ascending(example) for example in batch]
        results = run(context, name, batch)
        emulations = [emulated for _, emulated in results]
        if name.endswith("normalization"):
            wide = run(context, name, [widened(example) for example in batch])
            emulations = [emulated for _, emulated in wide]
        for example, (own, _), emulated in zip(batch, results, emulations, strict=True):
            count.add(example)
            for a, b in zip(own, emulated, strict=True):
                assert_alike(example, a, b.astype(a.dtype), judged)

    check()
    judged.assert_discriminating()
    assert not count.missing(name)


def test_every_emulation_of_the_draft_is_here():
    """The functions defined in the draft's text, without its helpers."""
    draft = suite.SUITE.parent / "spec" / "webnn-crd-2026-05-21.txt"
    if not draft.is_file():
        pytest.skip("the draft is not beside this checkout (../shared/spec)")
    names = re.findall(r"^function (\w+)\(", draft.read_text(), re.MULTILINE)
    defined = {suite.snake(name) for name in names} & OPERATORS.keys()
    assert len(defined) == 30
    assert defined <= EMULATIONS.keys()


def test_helpers_in_place_of_operators(context):
    builder = MLGraphBuilder(context)
    data = np.arange(24, dtype=np.float32).reshape(2, 1, 3, 1, 4)
    x = builder.input("x", {"data_type": "float32", "shape": data.shape})
    made = {
        "squeezed": squeeze(builder, x),
        "one": squeeze(builder, x, [1]),
        "unsqueezed": unsqueeze(builder, squeeze(builder, x), [0, 2]),
        "flat": flatten(builder, x, 3),
    }
    assert {name: operand.shape for name, operand in made.items()} == {
        "squeezed": (2, 3, 4), "one": (2, 3, 1, 4), "unsqueezed": (1, 2, 1, 3, 4), "flat": (6, 4),
    }
    results = context.compute(builder.build(made).result(), {"x": data})
    for result in results.values():
        assert np.array_equal(result.reshape(-1), data.reshape(-1))


def test_a_difference_is_seen():
    example = Example("relu", {"input": np.ones(2, np.float32)}, {})
    a = np.array([1, 2], np.float32)
    judged = Judged()
    assert_alike(example, a, a, judged)
    judged.assert_discriminating()
    with pytest.raises(AssertionError):
        assert_alike(example, a, a * np.float32(1.001), judged)
    with pytest.raises(AssertionError):
        assert_alike(example, a, np.array([1, np.nan], np.float32), judged)
