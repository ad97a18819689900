"""How often the loops of a module turn, from small shaders."""

from __future__ import annotations

import struct

import pytest

from bench.isa.execution import Inputs, Undetermined, executed
from tests.support.gpu_shaders import needs_compiler
from webnn_vk.codegen.compiler import Source, find_compiler

SHADER = """
#version 450
layout(local_size_x = 8, local_size_y = 2) in;
layout(constant_id = 3) const uint COUNT = 5;
layout(push_constant) uniform Push { uint n; int m; };
layout(set = 0, binding = 0) buffer Data { float y[]; };
layout(set = 1, binding = 2) uniform Sizes { uvec4 size; };
shared float kept[16];
float twice(uint count) {
  float s = 0.0;
  for (uint i = 0; i < count; i++) s += y[i] * 2.0;
  return s;
}
void main() {
  float s = 0.0;
  %s
  y[gl_GlobalInvocationID.x] = s;
}
"""


def loops(body: str, constants=(), groups=(4, 1, 1), n: int = 6, m: int = -3):
    """(turns, entered, inner loops) of the loops of a shader with this body."""
    needs_compiler()
    (code,) = find_compiler().compile([Source(SHADER.strip() % body)])
    assert isinstance(code, bytes), code
    inputs = Inputs(
        groups, (8, 2, 1), struct.pack("<Ii", n, m), {(1, 2): struct.pack("<4I", 7, 9, 2, 1)}
    )

    def plain(loop):
        return [(each.turns, each.entered, plain(each)) for each in loop.inner]

    return plain(executed(code, constants, "main", inputs))


@pytest.mark.parametrize(("body", "expected"), [
    ("s = y[0];", []),
    ("for (uint i = 0; i < n; i++) s += y[i];", [(6, 1, [])]),
    ("for (int i = m; i < 4; i += 2) s += y[i + 8];", [(4, 1, [])]),
    ("for (uint i = 0; i < COUNT; i++) s += y[i];", [(5, 1, [])]),
    ("for (uint i = 0; i < size.y; i++) s += y[i];", [(9, 1, [])]),
    # The middle one of 4 groups is the third: 2 · 8 + 4.
    ("for (uint i = 0; i < gl_GlobalInvocationID.x; i++) s += y[i];", [(20, 1, [])]),
    # The first invocation has 0 turns and the middle one 12.
    ("for (uint i = 0; i < gl_LocalInvocationIndex; i++) s += y[i];", [(12, 1, [])]),
    ("for (uint i = 0; i < n; i++) for (uint j = 0; j < i; j++) s += y[j];",
     [(6, 1, [(15, 6, [])])]),
    ("for (uint i = 0; i < n; i++) { if (i == 4u) break; s += y[i]; }", [(4, 1, [])]),
    ("for (uint i = 0; i < n; i++) { if (i % 2u == 0u) continue; s += y[i]; }", [(6, 1, [])]),
    ("uint i = 64; while (i > n) { i >>= 1; s += y[i]; }", [(4, 1, [])]),
    ("s = twice(n) + twice(size.z);", [(6, 1, []), (2, 1, [])]),
    ("if (n > 9u) for (uint i = 0; i < n; i++) s += y[i];", [(0, 0, [])]),
    # What is loaded decides, and no loop depends on it.
    ("if (y[0] > 0.0) s = 1.0; for (uint i = 0; i < n; i++) s += y[i];", [(6, 1, [])]),
    ("switch (size.z) { case 2: for (uint i = 0; i < 3; i++) s += y[i]; break; default: s = 2.0; }",
     [(3, 1, [])]),
    ("uint t[2]; t[0] = n; t[1] = 3; for (uint i = 0; i < t[n - 5]; i++) s += y[i];",
     [(3, 1, [])]),
])
def test_turns(body, expected):
    assert loops(body) == expected


def test_constants_and_push_constants_are_those_of_the_dispatch():
    body = "for (uint i = 0; i < COUNT; i++) s += y[i]; for (int i = 0; i < m; i++) s += y[i];"
    assert loops(body, [(3, struct.pack("<I", 11))], m=2) == [(11, 1, []), (2, 1, [])]


@pytest.mark.parametrize(("body", "message"), [
    ("for (uint i = 0; i < uint(y[0]); i++) s += y[i];", "a loop ends by what is loaded"),
    ("float x = 1.0; while (x < y[0]) x *= 2.0; s = x;", "a loop ends by what is loaded"),
    ("for (uint i = 0; i < n; i++) { if (y[i] > 1.0) break; s += y[i]; }", "a loop ends by"),
    ("if (y[0] > 0.0) for (uint i = 0; i < n; i++) s += y[i];", "whether a loop runs depends"),
    ("kept[0] = 4.0; for (uint i = 0; i < uint(kept[0]); i++) s += y[i];", "a loop ends by"),
])
def test_what_depends_on_data_is_undetermined(body, message):
    with pytest.raises(Undetermined, match=message):
        loops(body)
