"""Memory that whole models need: intermediates close to the minimum given by their lifetimes,
weights once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import webnn_vk
from bench.models import classic, mobilenet_v2
from tests.support import models
from tests.support.profiles import stored_profile
from webnn_vk import MLGraphBuilder, Settings
from webnn_vk.compiler.program import Program, Target, compile_program
from webnn_vk.compiler.program.arena import Lifetime, liveness_bound
from webnn_vk.compiler.program.program import BarrierStep


def _classic(describe: Callable[[Any], dict[str, Any]]) -> Callable[[Any], Any]:
    def build(context: Any) -> Any:
        builder = MLGraphBuilder(context)
        return models.capture(context, lambda: builder.build(describe(builder)))

    return build


MODELS = {
    "mobilenet_v2": lambda context: models.capture(
        context, lambda: mobilenet_v2.build(context)
    ),
    "bert": _classic(classic.bert(2)),
    "resnet50": _classic(classic.resnet50),
}


@pytest.fixture(scope="module", params=MODELS)
def graph(request: Any) -> Iterator[Any]:
    with webnn_vk.ml.create_context(settings=Settings(device="cpu")).result() as context:
        yield MODELS[request.param](context)


def least_arena(program: Program) -> int:
    """Bytes of the intermediates alive at once, from the first step that uses one to the last."""
    times: dict[int, tuple[int, int]] = {}
    for now, step in enumerate(program.device_steps):
        if not isinstance(step, BarrierStep):
            for place, _, _ in step.accesses():
                if program.slots[place.slot].kind == "arena":
                    first, _ = times.get(place.slot, (now, now))
                    times[place.slot] = (first, now)
    return liveness_bound([Lifetime(program.slots[n].size, *life) for n, life in times.items()])


@pytest.mark.parametrize("profile", ("llvmpipe", "nvidia_ampere"))
def test_memory(graph: Any, profile: str) -> None:
    program, _ = compile_program(graph, Target(stored_profile(profile)))
    assert 0 < least_arena(program) <= sum(program.arenas) <= 1.1 * least_arena(program)
    # A weight is on the device in one form, plain or packed, and not in the CPU's memory.
    assert not program.host_constants() and not program.host_size
    packed = [part.constant for part in program.setup]
    assert len(set(packed)) == len(packed)
    assert program.resident_constants().isdisjoint(packed)
    assert program.resident_constants() | set(packed) == set(range(len(program.constants)))
