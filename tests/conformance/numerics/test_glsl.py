"""The interpreter itself: its results, the freedom of devices, and the operations that it refuses.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.conformance.numerics.glsl import Device, Library, UndefinedBehaviour


def run(text: str, *arguments: tuple[str, object], **device: object) -> np.ndarray:
    """`f` of the text on arguments given as (GLSL type, numbers)."""
    kinds = {"float": np.float32, "int": np.int32, "uint": np.uint32}
    values = [(kind, np.array(numbers, kinds[kind])) for kind, numbers in arguments]
    return Library(text, Device(**device)).call("f", *values)[1]


def test_statements() -> None:
    text = """
    struct Pair { uint first; uint second; };
    const int STEPS[3] = int[3](1, 10, 100);
    Pair swapped(Pair p) { return Pair(p.second, p.first); }
    int g(int x) { return x < 0 ? -x : x; }
    int g(uint x) { return int(x) + 1000; }
    int f(int x) {
      if (x == 5) return 5000; // a comment
      int sum = 0;
      for (int i = 0; i < g(x); ++i) {
        sum += STEPS[i % 3 == 0 ? 0 : 1];
        if (sum > 30) return -1;
      }
      Pair p = swapped(Pair(1u, 2u));
      p.second <<= 2;
      return sum + g(p.second) - g(p.first);
    }
    """.replace("i % 3 == 0", "(i & 1) == 0")
    assert run(text, ("int", [0, 1, -2, 3, 5, 9])).tolist() == [2, 3, 13, 14, 5000, -1]


def test_integers_wrap() -> None:
    text = "uint f(uint a, uint b) { return a * b - (a >> 3) + ~b; }"
    a, b = [0xFFFFFFFF, 123456789], [0xFFFFFFF0, 987654321]
    want = [(x * y - (x >> 3) + (~y)) & 0xFFFFFFFF for x, y in zip(a, b, strict=True)]
    assert run(text, ("uint", a), ("uint", b)).tolist() == want


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("uint f(uint x) { return 1u << int(x); }", [1, 32]),
        ("const uint T[2] = uint[2](1u, 2u); uint f(uint x) { return T[int(x)]; }", [0, 2]),
        ("uint f(uint x) { return 7u / x; }", [1, 0]),
        ("uint f(uint x) { return uint(float(x) * 2.0); }", [1, 0x90000000]),
        ("uint f(uint x) { return uint(1.0 / float(x)); }", [1, 0]),
        ("uint f(uint x) { if (x != 0u) return 1u; }", [1, 0]),
    ],
)
def test_undefined(text: str, numbers: list[int]) -> None:
    """Only where a lane reaches it."""
    assert run(text, ("uint", numbers[:1])).size
    with pytest.raises(UndefinedBehaviour):
        run(text, ("uint", numbers))
    guarded = text.replace("uint x) {", f"uint x) {{ if (x == {numbers[1]}u) return 0u;")
    if numbers[1]:
        assert run(guarded, ("uint", numbers)).tolist()[1] == 0


def test_types_are_checked() -> None:
    for body in ("x + 1", "x + 1.0", "-1", "g(1)"):
        with pytest.raises((TypeError, LookupError)):
            text = f"uint g(uint x) {{ return x; }} uint f(uint x) {{ return {body}; }}"
            run(text, ("uint", [1]))


def test_rounding() -> None:
    """The neighbours that Vulkan allows, and an exact result unchanged."""
    text = "float f(float a, float b) { return a + b; }"
    a, b = ("float", [1.0, -1.0, 1.0]), ("float", [2.0**-60, -(2.0**-60), 0.5])
    up = np.nextafter(np.float32(1), np.float32(2))
    down = -up
    assert run(text, a, b).tolist() == [1, -1, 1.5]
    assert run(text, a, b, rounding="up").tolist() == [up, -1, 1.5]
    assert run(text, a, b, rounding="down").tolist() == [1, down, 1.5]
    assert run(text, a, b, rounding="zero").tolist() == [1, -1, 1.5]
    ones = ("float", np.ones(1000)), ("float", np.full(1000, 2.0**-60))
    assert set(run(text, *ones, rounding="random").tolist()) == {1.0, float(up)}


def test_division() -> None:
    text = "float f(float a, float b) { return a / b; }"
    a = np.random.default_rng(1).uniform(1, 2, 4000)
    exact = np.float32(a).astype(np.float64) / np.float64(np.float32(3))

    def errors(**device: object) -> np.ndarray:
        got = run(text, ("float", a), ("float", np.full(4000, 3)), **device)
        return (got - exact) / np.spacing(exact.astype(np.float32))

    assert np.abs(errors()).max() <= 0.5
    assert 2 < np.abs(errors(division="random")).max() <= 2.5
    assert errors(division=-2.0).max() < 0


def test_flushing_and_contraction() -> None:
    text = "float f(float a, float b) { return a * b; }"
    tiny = ("float", [1e-40, 1e-20]), ("float", [1.0, 1e-20])
    assert run(text, *tiny).tolist() == [np.float32(1e-40), np.float32(1e-20) * np.float32(1e-20)]
    assert run(text, *tiny, flush=True).tolist() == [0, 0]
    x = ("float", [1 + 2.0**-12])
    product = "float f(float x) { float r = x * x - 1.0; return r; }"
    assert run(product, x).tolist() == [2.0**-11]
    assert run(product, x, contract=True).tolist() == [2.0**-11 + 2.0**-24]
    product = product.replace("float r", "precise float r")
    assert run(product, x, contract=True).tolist() == [2.0**-11]


def test_not_a_number_is_not_computed_with() -> None:
    """Infinities pass only as bits."""
    text = "float f(float x) { return x * 2.0; }"
    assert np.isfinite(run(text, ("float", [np.inf, np.nan, 3e38]))).all()
    assert run(text, ("float", [np.inf]), finite=False).tolist() == [np.inf]
    passed = "float f(float x) { return uintBitsToFloat(floatBitsToUint(x)); }"
    assert run(passed, ("float", [np.inf])).tolist() == [np.inf]
