"""Random networks contain the patterns that passes look for: otherwise the comparison would test
nothing."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.conformance import ways
from tests.conformance.differential.graphs import RandomGraph
from tests.conformance.differential.networks import networks
from tests.support.profiles import stored_profile
from tests.support.selection import chance
from webnn_vk.compiler.program import Target, compile_program

#: Every pass finds a pattern within about forty networks; if not, another lot is drawn.
NETWORKS, LOTS = 50, 30
#: Only on devices that also use the CPU; only in graphs that donate inputs.
_NOTHING_TO_DO = {"order", "donate"}
_FOR_SOFTWARE = {"unread_pixels"}


def test_every_pass_finds_something() -> None:
    idle = {
        "gpu": set(ways.ALL_PASSES) - _NOTHING_TO_DO - _FOR_SOFTWARE,
        "software": set(_FOR_SOFTWARE),
    }

    @settings(
        max_examples=NETWORKS, deadline=None, database=None, phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(networks())
    def look(graph: RandomGraph) -> None:
        for device, names in idle.items():
            if not names:
                continue
            profile = ways.as_device(device, stored_profile("llvmpipe"))
            whole, _ = compile_program(graph.graph(), Target(profile))
            for name in sorted(names):
                without, _ = compile_program(graph.graph(), Target(profile, skip=(name,)))
                if (without.segments, without.setup) != (whole.segments, whole.setup):
                    names.remove(name)

    for number in range(LOTS):
        if any(idle.values()):
            seed(chance("networks", number).getrandbits(64))(look)()
    assert not any(idle.values()), idle
