"""The library functions in a kernel's text."""

import re

import numpy as np
import pytest

from tests.support.kernels import PRELUDE, compile_spec, templates
from webnn_vk.codegen.render import render
from webnn_vk.codegen.spec import Buffer, KernelSpec

BODY = "void main() { uint i = invocation_index(); store_out(i, {{ expression }}); }\n"


def text_of(expression: str, data_type: str = "float32", **options: object) -> str:
    spec = KernelSpec(
        "library.comp.j2",
        (Buffer("a", data_type), Buffer("out", data_type, "w")),
        options=(("expression", expression), *options.items()),
    )
    with templates(library=PRELUDE + BODY):
        text = render(spec)
        assert compile_spec(spec)
        return text


def defined(text: str) -> set[str]:
    return set(re.findall(r"^\w+ (w_\w+)\(", text, re.MULTILINE))


@pytest.mark.parametrize(
    ("expression", "functions"),
    [
        ("load_a(i) + 1.5", set()),
        ("w_add(load_a(i), 2.5)", {"w_add"}),
        ("w_floor(load_a(i))", {"w_floor", "w_trunc"}),
        ("w_exp(load_a(i))", {"w_exp", "w_exp_parts", "w_scaled", "w_shifted"}),
    ],
)
def test_reached_functions_only(expression: str, functions: set[str]) -> None:
    text = text_of(expression)
    assert defined(text) == functions
    assert "//<functions>" not in text
    assert ("const uint W_INF" in text) == ("w_exp" in expression)


def test_comments_reach_nothing() -> None:
    """A function that only a comment names is not included."""
    names = defined(text_of("w_to_half_float(3u) + load_a(i)"))
    assert names == {"w_to_half_float"} | ({"w_float_to_half"} & names)


def test_64_bit_functions_only_where_used() -> None:
    assert "struct I64" in text_of("w_neg(load_a(i))", "int64")
    assert "I64" not in text_of("w_neg(load_a(i))", "int32")
    assert "struct I64" in text_of("w_to_float(w_to_i64(load_a(i)))", int64=True)


def test_definitions_precede_uses() -> None:
    text = text_of("w_gelu(w_pow(load_a(i), w_tan(load_a(i))))")
    seen: set[str] = set()
    for line in text.splitlines():
        match = re.match(r"\w+ (w_\w+)\(", line)
        seen |= {match.group(1)} if match else set()
        assert set(re.findall(r"\bw_\w+(?=\()", line.split("//")[0])) <= seen, line
    assert {"w_gelu", "w_pow", "w_tan"} <= seen


def test_precise_reaches_the_module() -> None:
    """Expressions that must not be contracted are decorated: a driver may not turn two roundings
    into one."""
    spec = KernelSpec(
        "library.comp.j2", (Buffer("a", "float32"), Buffer("out", "float32", "w")),
        options=(("expression", "w_add(w_mul(load_a(i), load_a(i)), 1.0)"),),
    )
    with templates(library=PRELUDE + BODY):
        words = np.frombuffer(compile_spec(spec), np.uint32).tolist()
    decorated, computed, at = [], {}, 5
    while at < len(words):
        length, opcode = words[at] >> 16, words[at] & 0xFFFF
        if opcode == 71 and words[at + 2] == 42:  # OpDecorate … NoContraction
            decorated.append(words[at + 1])
        elif opcode in (129, 133):  # OpFAdd, OpFMul
            computed[words[at + 2]] = opcode
        at += length
    assert sorted(computed[i] for i in decorated) == [129, 133]
    assert len(computed) == 2
