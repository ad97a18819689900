"""The result of `inspect` as plain data, and its printed form; no driver is started."""

import pytest

from tests.support.kernels import COPY, templates
from webnn_vk.codegen.inspect import given_constants, module_of_file, module_of_spec
from webnn_vk.codegen.isa import Compiled, IsaError, text
from webnn_vk.codegen.spec import Buffer, Constant, KernelSpec, Param, SpecError
from webnn_vk.codegen.spirv import SpirvError

LOOP = """\
BB0:
\tv_mov_b32_e32 v1, 0                                         ; 7e020280
BB1:
\tbuffer_load_dwordx4 v[8:11], v4, s[4:7], 0 offen            ; e0381000 80010804
\ts_waitcnt vmcnt(0)                                          ; bf8c3f70
\tv_fmac_f32_e32 v24, v16, v20                                ; 56302910
\tv_fmac_f32_e32 v25, v16, v20                                ; 56302910
\ts_cbranch_scc1 BB1                                          ; bf85fff5
BB2:
\tbuffer_store_dword v24, v3, s[4:7], 0 offen                 ; e0701000 80011803
\ts_endpgm                                                    ; bf810000
"""


def test_constants_are_numbers_by_name():
    assert given_constants(["TM=4", "3=0x10", "x=0.5", "y=1e3"]) == {
        "TM": 4, "3": 16, "x": 0.5, "y": 1000.0
    }
    for wrong in ("TM", "TM=", "TM=four"):
        with pytest.raises(SpecError, match="NAME=NUMBER"):
            given_constants([wrong])


def test_a_template_s_module():
    with templates(copy=COPY):
        spec = KernelSpec(
            "copy.comp.j2", (Buffer("a", "float16"), Buffer("out", "float16", "w")), (Param("n"),),
            (Constant("TM"),), options=(("vectors", False),),
        )
        module = module_of_spec(spec, b"code", {"TM": 4}, "copy")
        with pytest.raises(SpecError, match="TN"):
            module_of_spec(spec, b"code", {"TN": 4}, "copy")
    assert (module.bindings, module.push_size, module.texels) == (2, 4, ())
    values = {number: int.from_bytes(value, "little") for number, value in module.constants}
    assert values == {0: 64, 1: 1, 2: 1, 3: 4}


def test_a_file_that_is_no_module():
    with pytest.raises(SpirvError):
        module_of_file(b"no shader at all", {}, "x.spv")


def test_what_is_shown():
    found = Compiled({"VGPRs": 32, "Instructions": 8, "Hash": 1}, LOOP)
    assert text.statistics(found) == [("vector registers", "32"), ("instructions", "8")]
    whole, loop = (text.row(*part) for part in text.parts(LOOP))
    assert dict(zip(text.TITLES, whole, strict=True)) == {
        "part": "all", "instr": "8", "FMA": "2", "vector": "1", "LDS by bytes": "-",
        "loads by bytes": "16×1", "stores by bytes": "4×1", "scalar": "1", "waits": "1",
        "FMAs a lane": "2", "share": "40%",
    }
    assert loop[:3] == ("loop BB1", "5", "2") and loop[-1] == "67%"
    shown = text.report(found).splitlines()
    assert shown[0] == "      32 vector registers" and shown[-1].startswith("loop BB1")
    assert len({len(line) for line in shown[-3:]}) == 1
    assert text.data(found)["parts"][1]["FMA"] == "2"
    with pytest.raises(IsaError, match="out of memory"):
        text.report(Compiled({}, "", "out of memory"))
