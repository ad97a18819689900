"""load_ and store_ of every data type, native and emulated, run on a Vulkan device."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from tests.support.kernels import COPY, PRELUDE, compile_spec, driver, run, templates, validate
from webnn_vk.codegen.spec import Buffer, KernelSpec, Param
from webnn_vk.codegen.spirv import info

TYPES = ("float32", "float16", "int32", "uint32", "int64", "uint64", "int8", "uint8")
NATIVE = {
    "float16": "float16", "int8": "int8", "uint8": "int8", "int64": "int64", "uint64": "int64",
}
HALVES = np.arange(65536, dtype=np.uint16)


def _variants() -> Iterator[tuple[str, bool, int, int]]:
    for data_type, native, width, portions in itertools.product(
        TYPES, (False, True), (1, 4), (1, 3)
    ):
        if native and data_type not in NATIVE:
            continue
        if width == 4 and data_type.endswith("64"):
            continue
        yield data_type, native, width, portions


VARIANTS = list(_variants())


@pytest.fixture(autouse=True, scope="module")
def _templates() -> Iterator[None]:
    with templates(
        copy=COPY,
        to_half=PRELUDE + "void main() { uint i = invocation_index();"
        " if (i < P.n) store_out(i, uintBitsToFloat(load_a(i))); }",
        from_half=PRELUDE + "void main() { uint i = invocation_index();"
        " if (i < P.n) store_out(i, floatBitsToUint(load_a(i))); }",
        add=PRELUDE + "void main() { uint i = invocation_index();"
        " if (i < P.n) store_a(i, w_add(load_a(i), A_a(1))); }",
        half_scalar=PRELUDE + "void main() { uint i = invocation_index();"
        " if (i < P.n) store_out(i, load_a(i)); }",
    ):
        yield


def _features(data_type: str, native: bool) -> frozenset[str]:
    feature = NATIVE.get(data_type)
    if not native or feature is None:
        return frozenset()
    if feature not in driver().profile.features:
        pytest.skip(f"the device has no {feature}")
    return frozenset({feature})


def _samples(data_type: str, count: int) -> np.ndarray:
    generator = np.random.default_rng(sum(map(ord, data_type)))
    dtype = np.dtype(data_type)
    return np.frombuffer(generator.bytes(count * dtype.itemsize), dtype)


@pytest.mark.parametrize(("data_type", "native", "width", "portions"), VARIANTS)
def test_copy(data_type: str, native: bool, width: int, portions: int) -> None:
    """Random bits come back unchanged, the elements beyond n stay unchanged."""
    for vectors in (False, True)[: 2 if width == 4 else 1]:
        _check_copy(data_type, native, width, portions, vectors)


@pytest.mark.parametrize("width", [1, 4])
@pytest.mark.parametrize("data_type", ["float32", "int32", "uint32"])
def test_copy_from_texels(data_type: str, width: int) -> None:
    """Texels of every format, whole and element by element."""
    for vectors in (False, True)[: 2 if width == 4 else 1]:
        _check_copy(data_type, False, width, 1, vectors, "texel")


def _check_copy(
    data_type: str, native: bool, width: int, portions: int, vectors: bool, load: str = "storage"
) -> None:
    features = _features(data_type, native)
    item = np.dtype(data_type).itemsize
    portion = 256
    length = 2 * portion + 103 if portions == 3 else 1003
    spec = KernelSpec(
        "copy.comp.j2",
        (
            Buffer("a", data_type, "r", width, portions, load),
            Buffer("out", data_type, "w", width, portions),
        ),
        (Param("n"),),
        options=(("vectors", vectors),),
        features=features,
    )
    module = compile_spec(spec)
    validate(module)
    a = _samples(data_type, length + 1)[: length // 4 * 4 if vectors else length]
    before = np.full(length + 1, 77, np.dtype(data_type))
    count = len(a) // 4 if vectors else length
    starts = [i * portion * item for i in range(portions)]
    constants = {"PORTION_a": portion, "PORTION_out": portion} if portions > 1 else {}
    result = run(
        spec, {"a": a}, {"out": before}, count, constants=constants,
        portions={"a": starts, "out": starts},
    )["out"]
    written = len(a)
    # Compared as bits, so that NaN counts; a float16 NaN may become quiet on its way through
    # float32.
    _assert_same_bits(result[:written], a)
    assert (result[written:] == 77).all()


def _assert_same_bits(result: np.ndarray, expected: np.ndarray) -> None:
    if expected.dtype.kind == "f":
        nan = np.isnan(expected)
        assert np.isnan(result[nan]).all()
        result, expected = result[~nan], expected[~nan]
    word = np.dtype(f"u{expected.dtype.itemsize}")
    np.testing.assert_array_equal(result.view(word), expected.view(word))


@pytest.mark.parametrize("width", [1, 4])
@pytest.mark.parametrize("native", [False, True])
def test_every_half_loads_exactly(native: bool, width: int) -> None:
    """All 65,536 patterns, denormals, infinities and NaN payloads included."""
    spec = KernelSpec(
        "from_half.comp.j2", (Buffer("a", "float16", "r", width), Buffer("out", "uint32", "w")),
        (Param("n"),), features=_features("float16", native),
    )
    out = np.zeros(65536, np.uint32)
    result = run(spec, {"a": HALVES}, {"out": out}, 65536)["out"]
    expected = HALVES.view(np.float16).astype(np.float32)
    np.testing.assert_array_equal(result, expected.view(np.uint32))


@pytest.mark.parametrize("native", [False, True])
def test_every_half_comes_back(native: bool) -> None:
    """Loading and storing changes no half, except NaN, which stays NaN."""
    spec = KernelSpec(
        "half_scalar.comp.j2", (Buffer("a", "float16"), Buffer("out", "float16", "w")),
        (Param("n"),), features=_features("float16", native),
    )
    a = HALVES.view(np.float16)
    result = run(spec, {"a": a}, {"out": np.zeros(65536, np.float16)}, 65536)["out"]
    _assert_same_bits(result, a)


def _float_samples() -> np.ndarray:
    """float32 bits: around every half, on every tie, beyond the largest, denormals, random."""
    halves = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float32)
    with np.errstate(over="ignore"):
        ties = ((halves[:-1].astype(np.float64) + halves[1:]) / 2).astype(np.float32)
    edges = np.array([65504, 65519.996, 65520, 65536, 1e38, np.inf, 2**-25, 2**-26], np.float32)
    near = np.concatenate([halves, ties, edges]).view(np.uint32).astype(np.int64)
    near = np.concatenate([near - 1, near, near + 1])
    near = near[(near >= 0) & (near <= 0x7F800001)]
    dense = np.arange(0, 0x7F800000, 40961, dtype=np.int64)
    nans = np.array([0x7F800001, 0x7FC00000, 0x7FFFFFFF, 0x7F802000], np.int64)
    bits = np.unique(np.concatenate([near, dense, nans])).astype(np.uint32)
    return np.concatenate([bits, bits | np.uint32(0x80000000)])


@pytest.mark.parametrize("native", [False, True])
def test_half_is_stored_rounded_to_even(native: bool) -> None:
    """As NumPy's astype(float16): ties, overflow, denormal halves, NaN with its payload."""
    bits = _float_samples()
    spec = KernelSpec(
        "to_half.comp.j2", (Buffer("a", "uint32"), Buffer("out", "float16", "w")), (Param("n"),),
        features=_features("float16", native),
    )
    result = run(spec, {"a": bits}, {"out": np.zeros(len(bits), np.float16)}, len(bits))["out"]
    with np.errstate(over="ignore", invalid="ignore"):
        expected = bits.view(np.float32).astype(np.float16)
    np.testing.assert_array_equal(result.view(np.uint16), expected.view(np.uint16))


@pytest.mark.parametrize("data_type", ["int8", "uint8", "float16"])
@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("width", [1, 4])
def test_neighbouring_stores_do_not_race(data_type: str, native: bool, width: int) -> None:
    """Each invocation changes its own element of a shared word, in place, many times."""
    spec = KernelSpec(
        "add.comp.j2", (Buffer("a", data_type, "rw", width),), (Param("n"),),
        features=_features(data_type, native),
    )
    start = np.arange(40000).astype(data_type) if data_type != "float16" else (
        (np.arange(40000) % 1000).astype(np.float16)
    )
    expected = (start + np.array(1, start.dtype)).astype(data_type)
    for _ in range(3):
        result = run(spec, {}, {"a": start}, len(start), constants={"LX": 32})["a"]
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(("data_type", "native", "width", "portions"), VARIANTS)
def test_only_granted_capabilities_are_used(
    data_type: str, native: bool, width: int, portions: int
) -> None:
    """Without features: no capability except Shader. With a feature: the storage (or Int64) alone.
    """
    feature = NATIVE.get(data_type) if native else None
    spec = KernelSpec(
        "copy.comp.j2",
        (
            Buffer("a", data_type, "r", width, portions),
            Buffer("out", data_type, "w", width, portions),
        ),
        (Param("n"),), options=(("vectors", False),),
        features=frozenset({feature} - {None}),
    )
    module = compile_spec(spec)
    validate(module)
    granted = {
        "float16": "StorageBuffer16BitAccess", "int8": "StorageBuffer8BitAccess", "int64": "Int64",
    }
    expected = {"Shader"}
    if feature is not None and (width == 1 or feature == "int64"):
        expected.add(granted[feature])
    assert info(module).capabilities == expected
