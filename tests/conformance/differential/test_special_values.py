"""NaN, infinities, huge numbers and denormals in the operands of every operator that takes floats:
Vulkan compared with the NumPy reference, as `tests/support/special_values.py` (and
``docs/operators.md``) promise. Alone and between other operators, in float32 and float16, fused or
unfused, on the unchanged device or on a simulated GPU: each operator by one of the four in turn,
exploring by all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from tests.conformance.differential.bounds import _finite
from tests.conformance.differential.drafting import examples
from tests.conformance.differential.example import Example
from tests.conformance.ways import DEVICES, WAYS, limits_of
from tests.support.contexts import open_context
from tests.support.running import device_profile
from tests.support.special_values import Promise, promise_of, takes_floats
from webnn_vk import MLContext, MLGraphBuilder
from webnn_vk.compiler.ops import ALL_OPERATORS
from webnn_vk.compiler.types.data_types import LOW_PRECISION

KINDS = ("nan", "infinite", "huge", "denormal")
#: Operators after the tested one, by name.
BEHIND = {
    "nothing": lambda b, y, c: y,
    "relu": lambda b, y, c: b.relu(y),
    "clamp": lambda b, y, c: b.clamp(y, min_value=-2, max_value=3),
    "sum": lambda b, y, c: b.add(y, c),
    "max": lambda b, y, c: b.max(y, c),
}
#: For sums that overflow, only these show an infinity or a NaN.
BEHIND_HUGE = ("nothing", "sum")
#: Examples of a graph, each with special values of every kind, which share its pipelines. Of
#: operators with many of these, only one.
BATCH = 2
LARGE = {"attention", "block_matmul", "gru", "gru_cell", "lstm", "lstm_cell"}
NAMES = sorted(name for name, record in ALL_OPERATORS.items() if takes_floats(record))
TURNS = [(device, way) for way in ("default", "unfused") for device in DEVICES]


@pytest.fixture(scope="module")
def devices(vulkan) -> Iterator[Mapping[str, Mapping[str, MLContext]]]:
    """By device: contexts that compute with fusions and without."""
    with ExitStack() as stack:
        yield {
            device: {
                way: stack.enter_context(open_context(
                    limits=limits_of(device, device_profile()), skip_passes=WAYS[way].skipped,
                ))
                for way in ("default", "unfused")
            }
            for device in DEVICES
        }


class _Halving:
    """A builder whose float inputs are halved before they are used."""

    def __init__(self, builder: MLGraphBuilder) -> None:
        self._builder = builder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._builder, name)

    def input(self, name: str, described: Mapping[str, Any]) -> Any:
        made = self._builder.input(name, described)
        if not described["data_type"].startswith("float"):
            return made
        half = self._builder.constant(np.array(0.5, described["data_type"]))
        return self._builder.mul(made, half)


def run(
    context: MLContext, batch: Sequence[Example], behind: Sequence[str | None]
) -> list[list[np.ndarray]]:
    """The outputs of each example; between other operators if that mode is named."""
    builder = MLGraphBuilder(context)
    outputs: dict[str, Any] = {}
    feeds: dict[str, np.ndarray] = {}
    counts = []
    for i, (example, last) in enumerate(zip(batch, behind, strict=True)):
        made, arrays = example.add_to(
            builder if last is None else _Halving(builder), f"{i}."  # type: ignore[arg-type]
        )
        if last is not None:
            made = [
                BEHIND[last](builder, y, builder.constant(np.array(1.5, y.data_type)))
                if y.data_type.startswith("float") else y
                for y in made
            ]
        feeds |= arrays
        outputs |= {f"{i}.{k}": operand for k, operand in enumerate(made)}
        counts.append(len(made))
    with builder.build(outputs).result() as graph:
        used = {name: array for name, array in feeds.items() if name in graph.inputs}
        results = context.compute(graph, used)
    return [[results[f"{i}.{k}"] for k in range(n)] for i, n in enumerate(counts)]


def _special(kind: str, dtype: np.dtype) -> np.ndarray:
    limits = np.finfo(dtype)
    number = {
        "nan": np.nan, "infinite": np.inf, "huge": 0.9 * float(limits.max),
        "denormal": float(limits.tiny) / 64,
    }[kind]
    return np.array([number, -number], dtype)


#: Operands of `block_matmul` that no pass gives such values. Kernels scale the sum of a block once,
#: and one huge number makes many huge terms.
_OF_BLOCKS = {("scale", "infinite"), ("scale", "huge"), ("offset", "huge")}


def _floats(example: Example) -> list[str]:
    """The operands of floats."""
    def first(arrays: Any) -> np.ndarray:
        return arrays[0] if isinstance(arrays, list) else arrays

    return [n for n, arrays in example.operands.items() if first(arrays).dtype.kind == "f"]


def _placed(rng: np.random.Generator, example: Example, kind: str) -> tuple[Example, str] | None:
    """The example with special values at a few places of one of its operands, and the operand."""
    floats = [
        n for n in _floats(example)
        if not (example.operator == "block_matmul" and (n, kind) in _OF_BLOCKS)
    ]
    if not floats:
        return None
    name = str(rng.choice(floats))
    sums = promise_of(ALL_OPERATORS[example.operator]) is not Promise.ELEMENTS

    def place(array: np.ndarray) -> np.ndarray:
        flat = array.reshape(-1).copy()
        # Whether two huge terms of a sum overflow depends on the order of additions.
        count = 1 if kind == "huge" and sums else max(1, flat.size // 32)
        flat[rng.integers(flat.size, size=count)] = rng.choice(_special(kind, flat.dtype), count)
        return flat.reshape(array.shape)

    arrays = example.operands[name]
    placed = [place(a) for a in arrays] if isinstance(arrays, list) else place(arrays)
    return replace(example, operands={**example.operands, name: placed}), name


def _flushed(example: Example) -> Example:
    """With 0 for denormal numbers."""
    def flush(arrays: Any) -> Any:
        if isinstance(arrays, list):
            return [flush(a) for a in arrays]
        if arrays.dtype.kind != "f":
            return arrays
        tiny = np.finfo(arrays.dtype).tiny
        return np.where(np.abs(arrays) < tiny, np.copysign(0, arrays), arrays).astype(arrays.dtype)

    return replace(example, operands={n: flush(a) for n, a in example.operands.items()})


def wrong(example: Example, kind: str, where: str, got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """By element, whether a result breaks the promise. Other tests check precision."""
    if want.dtype.kind != "f":
        different = np.asarray(got.astype(np.int64) - want.astype(np.int64)) != 0
        if example.operator == "encode":  # any NaN is as good
            kind_of = LOW_PRECISION[example.arguments["data_type"]].numpy
            either = [np.isnan(x.view(kind_of).astype(np.float32)) for x in (got, want)]
            different &= ~np.logical_and(*either)
        return different
    a, e = _finite(got), _finite(want)
    with np.errstate(invalid="ignore"):
        far = np.abs(a - e) > 0.02 * np.abs(e) + 0.02
    found = np.asarray((np.isnan(got) != np.isnan(want)) | (far & ~np.isnan(e)))
    promise = promise_of(ALL_OPERATORS[example.operator])
    if kind == "huge" and promise is not Promise.ELEMENTS:
        found &= np.isfinite(got)
    if kind in ("nan", "infinite") and where == "filter" and promise is Promise.CONVOLUTIONS:
        found &= ~np.isnan(got)  # over the padding
    return found


def _of_weight_zero(example: Example, cpu: MLContext, behind: str | None) -> np.ndarray:
    """For each element of an attention, whether the weight of a value that is not finite can be 0
    in one kernel, which makes it NaN or leaves it out, and a tiny number in another."""
    value = example.operands["value"]
    wide = {n: a.astype(np.float32) if a.dtype.kind == "f" else a
            for n, a in example.operands.items()}
    # With these values the result is the weights.
    wide["value"] = np.zeros((*value.shape[:-1], value.shape[-2]), np.float32)
    wide["value"][...] = np.eye(value.shape[-2])
    ((weights,),) = run(cpu, [replace(example, operands=wide)], [behind and "nothing"])
    with np.errstate(invalid="ignore"):
        tiny = ~(weights > 2 * np.finfo(value.dtype).tiny)
    return np.matmul(tiny.astype(np.float32), (~np.isfinite(value)).astype(np.float32)) > 0


def _check(
    context: MLContext, way: str, cpu: MLContext, drawn: Sequence[Example], kind: str, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    # The same for all kinds, if that shows anything.
    chosen = [str(rng.choice([*BEHIND])) for _ in drawn]
    placed = [p for example in drawn if (p := _placed(rng, example, kind)) is not None]
    if not placed:
        return
    batch = [example for example, _ in placed]
    chained = [
        "sum" if kind == "huge" and name not in BEHIND_HUGE else name
        for name in chosen[: len(batch)]
    ]
    # Alone, there is nothing to fuse, and large ones take too long to compile twice.
    for behind in ([None] * len(batch), chained)[way == "unfused" or batch[0].operator in LARGE:]:
        wanted = [run(cpu, batch, behind)]
        if kind == "denormal":
            wanted.append(run(cpu, [_flushed(example) for example in batch], behind))
        got = run(context, batch, behind)
        for i, (example, where) in enumerate(placed):
            for k, array in enumerate(got[i]):
                broken = np.logical_and.reduce([
                    wrong(example, kind, where, array, each[i][k]) for each in wanted
                ])
                if broken.any() and (example.operator, where) == ("attention", "value"):
                    broken &= ~_of_weight_zero(example, cpu, behind[i])
                if broken.any():
                    at = tuple(int(n) for n in np.argwhere(broken)[0])
                    raise AssertionError(
                        f"{np.count_nonzero(broken)} elements of output {k}, {way}, before "
                        f"{behind[i]}, {kind} in {where}: at {list(at)} {array[at]!r}, not "
                        f"{wanted[0][i][k][at]!r}\n{example.in_full()}"
                    )


@pytest.mark.device
@pytest.mark.parametrize(("name", "device", "way"), [
    pytest.param(
        name, device, way, marks=[] if (i + k) % len(TURNS) == 0 else [pytest.mark.explore]
    )
    for i, name in enumerate(NAMES) for k, (device, way) in enumerate(TURNS)
])
@pytest.mark.timeout(900)
def test_as_promised(
    name: str, device: str, way: str, devices: Any, cpu_context: MLContext
) -> None:
    batch = 1 if name in LARGE else BATCH

    @settings(
        max_examples=max(1, settings.default.max_examples // 64), deadline=None, database=None,
        phases=(Phase.generate,), suppress_health_check=list(HealthCheck), print_blob=False,
    )
    @given(
        st.lists(
            examples(name, ("ordinary",)).filter(_floats), min_size=batch, max_size=batch
        ),
        st.integers(0, 2**32 - 1),
    )
    def check(drawn: list[Example], seed: int) -> None:
        assume(not all(example.is_one() for example in drawn))
        for kind in KINDS:
            _check(devices[device][way], way, cpu_context, drawn, kind, seed)

    check()


def test_a_broken_promise_is_seen() -> None:
    """Special results that nothing in the row explains, and lost NaN."""
    row = np.array([1e25, -1e25, 3e25, 2], np.float32)
    example = Example("rms_normalization", {"input": row}, {"axes": [0]})
    right, nan = np.zeros(4, np.float32), np.full(4, np.nan, np.float32)
    # As max(NaN, 0) does with the variance.
    invented = row / np.sqrt(np.float32(1e-5))
    for kind, got, want, count in (
        ("huge", right, right, 0), ("huge", invented, right, 4), ("huge", nan, right, 0),
        ("nan", nan, nan, 0), ("nan", invented, nan, 4), ("nan", right, nan, 4),
        ("nan", nan, right, 4), ("infinite", right, -right, 0), ("infinite", nan, right, 4),
    ):
        assert np.count_nonzero(wrong(example, kind, "input", got, want)) == count, (kind, got)
    encoded = np.array([0x7FFF, 0xFFC0, 0x3F80], np.uint16)
    example = Example("encode", {"input": row}, {"data_type": "bfloat16"})
    assert not wrong(example, "nan", "input", encoded, encoded[[1, 0, 2]]).any()
    swapped = wrong(example, "nan", "input", encoded, encoded[[2, 1, 0]])
    assert swapped.tolist() == [True, False, True]
    assert wrong(example, "nan", "input", encoded, encoded + np.uint16(1))[2]
    largest = np.array([np.inf, -np.inf], np.float32)
    example = Example("max", {"a": largest, "b": largest}, {})
    assert wrong(example, "infinite", "a", -largest, largest).all()
    assert wrong(example, "huge", "a", np.full(2, np.nan, np.float32), largest).all()
