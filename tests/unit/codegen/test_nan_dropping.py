"""GLSL's ``max``, ``min`` and ``clamp`` of floats may drop a NaN: if one operand is NaN, the result
is undefined. The library's ``w_max`` and ``w_min`` keep it. Calls whose operands are never NaN, or
for which the choice doesn't matter, are listed here with the reason."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.support.paths import ROOT

SHADERS = ROOT / "shaders"
_CALL = re.compile(r"(?<![\w.])(?:min|max|clamp)\(|\bsubgroup(?:Min|Max)\(")
#: Calls and numbers that make an operand look like an integer.
_INTEGER = re.compile(r"\b\d+u\b|\b0x[0-9a-f]+u?\b|\b(?:u?int|w_order|order_of|w_key)\(")
_NAME = re.compile(r"\w*$")
_SEEN_THROUGH = frozenset(
    ("", "min", "max", "clamp", "int", "uint", "w_order", "order_of", "w_key")
)
_SIZES = "numbers of elements, rows, columns"
_BITS = "magnitudes as bits: integers"
_TOP = (
    "the largest score, wrong where one is a NaN: `magnitude` has seen that in the bits, and the "
    "whole row becomes NaN at the end"
)

#: Per file: calls whose operands don't look like integers -> why no NaN is lost there.
EXPLAINED = {
    "attention.comp.j2": {
        "min(piece * span, end)": _SIZES, "min(begin + span, end)": _SIZES,
        "min(m_tile + BM + ahead, keys)": _SIZES,
        "min(load_length(0u), P.keys)": _SIZES,
        "min(P.rows, keys)": _SIZES,
        "max(now, tops[(y0 + i) * LX + l])": "keys in order: integers",
        "max(top[i], highest[i])": "keys in order: integers",
        "subgroupMax(largest)": "keys in order: integers",
        'min(BN, end - {{ "min(t0, end)" if parted else "t0" }})': _SIZES,
        "min(t0, end)": _SIZES,
        "max(top[i], tops[(z * BM + y0 + i) * LX])": "keys in order: integers",
        "min(v_at[e] + c, last)": "positions",
    },
    "attention_tiled.comp.j2": {
        "max(x, -88.0)": "a NaN's weight is anything: `magnitude` makes the row NaN",
        "min(load_length(0u), P.keys)": _SIZES,
        "min(P.behind, keys)": _SIZES,
        "min(m_tile + BM + ahead, keys)": _SIZES,
        "min(m_tile + ahead, last)": _SIZES,
        "min(m_tile + y + i * LY + ahead, last)": _SIZES,
        "max(bits.x, bits.y)": _BITS,
        "max(bits.z, bits.w)": _BITS,
        "max(max(bits.x, bits.y), max(bits.z, bits.w))": _BITS,
        "max(max(max(bits.x, bits.y), max(bits.z, bits.w)), magnitude[i])": _BITS,
        "max(score[i].x, score[i].y)": _TOP,
        "max(score[i].z, score[i].w)": _TOP,
        "max(max(score[i].x, score[i].y), max(score[i].z, score[i].w))": _TOP,
        "max(largest, numbers[(y + i * LY) * (LX / 4u) + l])": _TOP,
        "max(largest.x, largest.y)": _TOP,
        "max(largest.z, largest.w)": _TOP,
        "max(max(largest.x, largest.y), max(largest.z, largest.w))": _TOP,
        "min(BN, end - t0)": _SIZES,
    },
    "recurrence.comp.j2": {"min(SHUFFLE, VECTORS - from_k)": _SIZES},
    "conv.comp.j2": {"min(P.SH, P.OH)": _SIZES, "min(P.SW, P.OW)": _SIZES},
    "lib/attention_tiles.glsl.j2": {"min(t0 + e / DV, last)": _SIZES},
    "lib/exp_nonpositive.glsl.j2": {
        "max(x, -104.0)": "compared with x behind it: of a NaN comes 0. Those who call it have "
        "looked for NaN among the same numbers in integers, and multiply by one or leave them out",
    },
    "lib/float.glsl.j2": {
        "max(floatBitsToUint(a) & ~W_SIGN, floatBitsToUint(b) & ~W_SIGN)": _BITS,
    },
    "lib/float_half.glsl.j2": {
        "max(ua, ub)": _BITS,
        "min(floatBitsToUint(x) & ~W_SIGN, floatBitsToUint(limit))": _BITS,
    },
    "lib/integer.glsl.j2": {
        "min(a, b)": "of integers", "max(a, b)": "of integers",
        "max(x, {{ t }}(0))": "of integers",
    },
    "lib/low_precision.glsl.j2": {"min(r, largest)": _BITS},
    "lib/positions.glsl.j2": {"min(P.items, P.outer - s.outer)": _SIZES},
    "matmul.comp.j2": {"min(TM, P.M - m0)": _SIZES, "min(first + GROUP, rows * TN)": _SIZES},
    "matmul_coopmat.comp.j2": {"min(e %% (%s / V) * V, rows_left - V)": _SIZES},
    "reduce.comp.j2": {
        "max(a, b)": "of keys: integers", "min(P.len, first + P.chunk)": _SIZES,
    },
    "scan.comp.j2": {"min(P.len, first + P.chunk)": _SIZES},
    "softmax.comp.j2": {"max(a, b)": "of keys: integers"},
    "softmax_kept.comp.j2": {"max(a, b)": "of keys: integers"},
}


def _closing(text: str, start: int) -> int:
    """The position of the bracket that matches the one before ``start``."""
    depth = 0
    for end in range(start, len(text)):
        depth += (text[end] in "([") - (text[end] in ")]")
        if not depth:
            return end
    raise AssertionError(f"not closed: {text[start:]}")


def _operands(call: str) -> str:
    """A call without indices, and without the arguments of other functions."""
    shown, at = "", 0
    while at < len(call):
        name = _NAME.search(call[:at])
        assert name is not None
        if call[at] == "[" or (call[at] == "(" and name.group() not in _SEEN_THROUGH):
            at = _closing(call, at)
        else:
            shown += call[at]
        at += 1
    return shown


def _calls(text: str) -> list[str]:
    """The calls in a text whose operands don't look like integers."""
    text = re.sub(r"\{#.*?#\}", "", re.sub(r"//.*", "", text), flags=re.DOTALL)
    calls = (
        text[m.start() : _closing(text, m.end() - 1) + 1] for m in _CALL.finditer(text)
    )
    return [call for call in calls if not _INTEGER.search(_operands(call))]


@pytest.mark.parametrize(
    "file", sorted(p.relative_to(SHADERS).as_posix() for p in SHADERS.rglob("*.j2"))
)
def test_no_template_drops_a_nan(file: str) -> None:
    calls = set(_calls((SHADERS / file).read_text(encoding="utf-8")))
    assert calls == set(EXPLAINED.get(file, {})), (
        "use w_max, w_min or w_relu, or say in EXPLAINED why no NaN is lost"
    )


def _expressions(file: Path) -> list[str]:
    """The texts of a module that call functions of the library."""
    strings = (
        node.value for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    return [text for text in strings if "w_" in text or "{input}" in text]


def test_no_expression_of_an_operator_drops_a_nan() -> None:
    compiler = ROOT / "webnn_vk" / "compiler"
    files = [p for folder in ("ops", "kernels") for p in (compiler / folder).glob("*.py")]
    expressions = {text: file.name for file in files for text in _expressions(file)}
    assert "w_relu({input})" in expressions
    for text, file in expressions.items():
        assert not _calls(text), f"{file}: {text}"


def test_calls_on_floats_are_found() -> None:
    """Also those whose operands are read at positions, which are integers."""
    for call in (
        "max(sums.y * P.share - rest * rest, 0.0)", "max(x, rows[4u * i])", "max(v, 0.0)",
        "min(load_x(at + 4u), load_x(at + uint(i)))", "clamp(v, P.low, P.high)",
        "subgroupMax(v)",
    ):
        assert _calls(f"float y = {call};") == [call]
    for call in ("min(i, P.M - 1u)", "max(top, order_of(x))", "clamp(x, 0, int(n) - 1)"):
        assert not _calls(f"uint y = {call};")
