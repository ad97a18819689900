"""The kernels and constants that are judged for AMD's chips are the ones that the library plans."""

import pytest

from bench.isa.catalogue import catalogue
from bench.isa.kernels import Kernel, NoPlan, of_pack
from bench.isa.spread import plans
from tests.support.profiles import stored_profile


@pytest.mark.explore  # plans the whole archive
def test_constants_come_from_plans():
    profile = stored_profile("amd_navi31").masked(["cooperative_matrix"])
    planned = plans(profile)
    kernels = of_pack(profile, planned)
    # Lanes exchange what they load only on processors.
    fitting = {s for s in catalogue(profile.features) if ("shuffle", True) not in s.options}
    assert {k.spec for k in kernels} == fitting
    assert {k.constants for k in kernels} <= {k.constants for k in planned}
    assert len(kernels) == len({(k.spec, k.constants) for k in kernels})
    without = [k for k in planned if k.spec.template != "softmax.comp.j2"]
    with pytest.raises(NoPlan, match="softmax"):
        of_pack(profile, without)


def test_names_say_types_options_and_constants():
    planned = plans(stored_profile("amd_navi31").masked(["cooperative_matrix"]))
    names = {kernel.name for kernel in planned}
    assert "matmul_tiled | f16x8 f16x8 f16x4 | a_vector b_vector out_vector | LX=16 LY=16 TM=4 " \
        "TN=4 BK=16" in names
    assert "softmax | f32x4 f32x4 | group vectors=kept | LX=32 KEPT=1" in names
    assert "conv_depthwise | f32 f32 f32 f32 | addend | LX=64 TP=4 KH=3 KW=3 SH=1 SW=1 DH=1 DW=1 " \
        "PW=1" in names
    assert Kernel(planned[0].spec, ()).name in planned[0].name
