"""Shared memory of the kernels: between a write and a read of another place there is a barrier.
Drivers that run the subgroups of a workgroup one after the other compute the same without it."""

from __future__ import annotations

from array import array
from collections.abc import Iterator

import pytest

from bench.isa.catalogue import catalogue
from tests.support.kernels import PRELUDE, compile_spec, templates
from webnn_vk.codegen import spirv
from webnn_vk.codegen.spec import Buffer, KernelSpec, Param

VARIABLE, LOAD, STORE, ACCESS, BARRIER, FUNCTION, CALL = 59, 61, 62, 65, 224, 54, 57
WORKGROUP = 4


def hazards(module: bytes) -> Iterator[str]:
    """Reads of shared memory with a write of another place before them, in the order of the text,
    and no barrier in between. Places are equal if they are computed alike."""
    words = array("I", module)
    shared: set[int] = set()
    made: dict[int, tuple[object, ...]] = {}
    written: dict[int, list[object]] = {}

    def computed(number: int) -> object:
        return made.get(number, number)

    for op, place, end in spirv.instructions(words):
        operands = words[place + 1 : end]
        if op == VARIABLE and operands[2] == WORKGROUP:
            shared.add(operands[1])
        elif op in (BARRIER, FUNCTION, CALL):
            written.clear()  # what is called has barriers of its own
        elif op == ACCESS and operands[2] in shared:
            indices = tuple(computed(number) for number in operands[3:])
            made[operands[1]] = "shared", operands[2], indices
        elif op == STORE:
            target = computed(operands[0])
            if isinstance(target, tuple) and target[0] == "shared":
                written.setdefault(target[1], []).append(target)
        elif op == LOAD:
            source = computed(operands[2])
            if isinstance(source, tuple) and source[0] == "shared":
                if any(target != source for target in written.get(source[1], ())):
                    yield f"word {place}: {source} after {written[source[1]]}"
            made[operands[1]] = "load", source
        elif op in range(124, 210):  # arithmetic: type, result, operands
            made[operands[1]] = op, *(computed(number) for number in operands[2:])


#: Products have loops over places of their own, which look like different places here.
FAMILIES = ("reduce", "norm", "softmax", "scan", "recurrence", "attention")
KERNEL = PRELUDE + """\
shared float parts[64];
void main() {
  uint i = invocation_index();
  parts[gl_LocalInvocationIndex] = i < P.n ? load_a(i) : 0.0;
  float own = parts[gl_LocalInvocationIndex];
  {{ text }}
  if (i < P.n) store_out(i, own + parts[0]);
}
"""


@pytest.mark.parametrize("text", ["barrier();", ""])
def test_a_barrier_left_out_is_seen(text: str) -> None:
    spec = KernelSpec("own.comp.j2", (Buffer("a", "float32"), Buffer("out", "float32", "w")),
                      (Param("n"),))
    with templates(own=KERNEL.replace("{{ text }}", text)):
        assert len(list(hazards(compile_spec(spec)))) == (not text)


@pytest.mark.parametrize("family", FAMILIES)
def test_shared_memory_is_read_after_a_barrier(family: str) -> None:
    seen = 0
    for spec in catalogue(frozenset(), family):
        module = compile_spec(spec)
        seen += any(op == BARRIER for op, _, _ in spirv.instructions(array("I", module)))
        assert list(hazards(module)) == [], spec
    assert seen
