"""Reads AMD's assembly: blocks, branches, classes of instructions, widths, on GFX9 to GFX11."""

from collections import Counter

import pytest

from webnn_vk.codegen.isa.listing import Kind, fma_share, loops, main_loop, mix, parse

# Begin, inner loop and end of a matrix product, shortened.
GFX10 = """\
BB0:
	s_mov_b64 s[12:13], exec                                    ; be8c047e
	s_load_dwordx4 s[4:7], s[2:3], 0x0                          ; f4080101 fa000000
	v_mul_lo_u32 v3, v1, s6                                     ; d5690003 00000d01
	v_mad_u32_u24 v4, v1, 16, v0                                ; d5430004 04012101
	s_cbranch_execz BB3                                         ; bf880004
BB1:
	s_clause 0x1                                                ; bfa10001
	buffer_load_dwordx4 v[8:11], v4, s[4:7], 0 offen            ; e0381000 80010804
	buffer_load_dword v12, v3, s[4:7], 0 offen offset:16        ; e0301010 80010c03
	s_waitcnt vmcnt(0)                                          ; bf8c3f70
	ds_write_b128 v5, v[8:11]                                   ; db7c0000 00000805
	s_barrier                                                   ; bf8a0000
BB2:
	ds_read_b128 v[16:19], v6                                   ; dbfc0000 10000006
	ds_read2_b32 v[20:21], v7 offset1:1                         ; d8dc0100 14000007
	s_waitcnt lgkmcnt(0)                                        ; bf8cc07f
	v_fmac_f32_e32 v24, v16, v20                                ; 56302910
	v_fma_f32 v25, v17, v20, v25                                ; d54b0019 04662911
	v_pk_fma_f16 v26, v18, v21, v26                             ; cc0e401a 1c6a2b12
	v_add_nc_u32_e32 v6, 64, v6                                 ; 4a0c0cc0
	s_add_u32 s8, s8, 1                                         ; 80088108
	s_cmp_lt_u32 s8, s9                                         ; bf0a0908
	s_cbranch_scc1 BB2                                          ; bf85fff5
BB3:
	buffer_store_dword v24, v3, s[4:7], 0 offen                 ; e0701000 80011803
	s_endpgm                                                    ; bf810000

/* constant data */
[000000] 00000000 a2f9836e 4e441529 fc2757d1
"""

GFX11 = """\
BB0:
	s_load_b128 s[4:7], s[2:3], null                            ; f4080101 f8000000
	s_delay_alu instid0(VALU_DEP_1)                             ; bf870001
	buffer_load_b128 v[8:11], v4, s[4:7], 0 offen               ; e05c0000 80810804
	buffer_load_d16_b16 v12, v3, s[4:7], 0 offen                ; e0800000 80810c03
	global_load_b64 v[14:15], v[0:1], off                       ; dc560000 0e7c0000
	ds_load_b128 v[16:19], v6                                   ; dbfc0000 10000006
	ds_load_2addr_b64 v[20:23], v7 offset1:1                    ; d9dc0100 14000007
	ds_store_b32 v7, v8                                         ; d8340000 00000807
	v_dual_fmac_f32 v24, v16, v20 :: v_dual_fmac_f32 v25, v17, v21 ; c8002910 18182b11
	v_dual_mov_b32 v1, 0 :: v_dual_fmac_f32 v27, v17, v21       ; ca000080 011a2b11
	v_dual_mul_f32 v1, v2, v3 :: v_dual_mov_b32 v5, 0           ; c8d00702 01040080
	v_dot2_f32_f16 v28, v16, v20, v28                           ; cc13401c 1c722910
	v_fmaak_f32 v0, v2, v3, 0x3f800000                          ; 5a000702 3f800000
	buffer_gl0_inv                                              ; e1ac0000 00000000
	s_endpgm                                                    ; bfb00000
"""


def closes_loop(block):
    """Whether a block branches to itself or backwards."""
    return any(target <= block.number for target in block.targets)


def test_blocks_and_branches():
    blocks = parse(GFX10)
    assert [(b.number, len(b.instructions)) for b in blocks] == [(0, 5), (1, 6), (2, 10), (3, 2)]
    assert [b.targets for b in blocks] == [(3,), (), (2,), ()]
    assert [closes_loop(b) for b in blocks] == [False, False, True, False]


def test_classes_on_gfx10():
    found = mix(parse(GFX10))
    assert found.instructions == 23
    assert found.kinds == {
        Kind.FMA: 3, Kind.VECTOR: 3, Kind.LDS: 3, Kind.MEMORY: 3, Kind.SCALAR_MEMORY: 1,
        Kind.SCALAR: 3, Kind.BRANCH: 2, Kind.WAIT: 3, Kind.CONTROL: 2,
    }
    assert found.multiply_adds == 4
    assert found.lds == Counter({16: 2, 8: 1})
    assert found.loads == Counter({16: 1, 4: 1})
    assert found.stores == Counter({4: 1})


def test_a_loop_alone():
    loop = mix(block for block in parse(GFX10) if closes_loop(block))
    assert (loop.instructions, loop.multiply_adds, loop.lds) == (10, 4, Counter({16: 1, 8: 1}))


def test_names_and_pairs_of_gfx11():
    found = mix(parse(GFX11))
    assert found.instructions == 15
    assert found.kinds[Kind.FMA] == 4 and found.kinds[Kind.VECTOR] == 1
    assert found.kinds[Kind.CONTROL] == 3
    assert found.multiply_adds == 2 + 1 + 2 + 1
    assert found.lds == Counter({16: 2, 4: 1})
    assert found.loads == Counter({16: 1, 8: 1, 2: 1})


@pytest.mark.parametrize(
    ("opcode", "kind", "width", "multiply_adds"),
    [
        ("v_mac_f32_e32", Kind.FMA, 0, 1),
        ("v_madak_f32", Kind.FMA, 0, 1),
        ("v_mad_mix_f32", Kind.FMA, 0, 1),
        ("v_fma_mixlo_f16", Kind.FMA, 0, 1),
        ("v_dot4_i32_i8", Kind.FMA, 0, 4),
        ("v_dot2c_f32_f16", Kind.FMA, 0, 2),
        ("v_mad_u64_u32", Kind.VECTOR, 0, 0),
        ("v_mad_i32_i24", Kind.VECTOR, 0, 0),
        ("v_pk_mad_u16", Kind.VECTOR, 0, 0),
        ("v_mul_f32_e32", Kind.VECTOR, 0, 0),
        ("ds_write2st64_b32", Kind.LDS, 8, 0),
        ("ds_load_2addr_stride64_b32", Kind.LDS, 8, 0),
        ("ds_read_u16_d16_hi", Kind.LDS, 2, 0),
        ("ds_read_u8", Kind.LDS, 1, 0),
        ("ds_add_rtn_u32", Kind.LDS, 4, 0),
        ("ds_bpermute_b32", Kind.LDS, 4, 0),
        ("ds_swizzle_b32", Kind.LDS, 4, 0),
        ("buffer_load_ubyte", Kind.MEMORY, 1, 0),
        ("buffer_load_short_d16_hi", Kind.MEMORY, 2, 0),
        ("buffer_load_d16_u8", Kind.MEMORY, 1, 0),
        ("buffer_load_format_xyzw", Kind.MEMORY, 16, 0),
        ("buffer_atomic_umax", Kind.MEMORY, 4, 0),
        ("buffer_atomic_max_u32", Kind.MEMORY, 4, 0),
        ("global_atomic_cmpswap_x2", Kind.MEMORY, 8, 0),
        ("global_load_dwordx3", Kind.MEMORY, 12, 0),
        ("scratch_load_b96", Kind.MEMORY, 12, 0),
        ("buffer_store_byte", Kind.MEMORY, 1, 0),
        ("s_buffer_load_dwordx8", Kind.SCALAR_MEMORY, 0, 0),
        ("s_waitcnt_vscnt", Kind.WAIT, 0, 0),
        ("s_waitcnt_depctr", Kind.WAIT, 0, 0),
        ("s_and_saveexec_b64", Kind.SCALAR, 0, 0),
        ("s_sendmsg", Kind.CONTROL, 0, 0),
    ],
)
def test_instructions(opcode, kind, width, multiply_adds):
    ((instruction,),) = (block.instructions for block in parse(f"\t{opcode} v0, v1, v2"))
    assert instruction.opcode == opcode
    assert (instruction.kind, instruction.width) == (kind, width)
    assert instruction.multiply_adds == multiply_adds


@pytest.mark.parametrize("text", ["BB0:\n\tx_strange v0", "what is this"])
def test_what_is_no_instruction_is_an_error(text):
    with pytest.raises(ValueError, match="instruction"):
        parse(text)


def test_loops():
    blocks = parse(GFX10)
    assert [[block.number for block in loop] for loop in loops(blocks)] == [[2]]
    loop = mix(main_loop(blocks))
    # v_pk_fma_f16 is one instruction of two.
    assert loop.multiply_adds == 4 and loop.kinds[Kind.FMA] == 3
    assert fma_share(loop) == 3 / 6
    outer = parse(GFX10.replace("BB3:\n", "\ts_cbranch_scc1 BB1\nBB3:\n"))
    assert [[block.number for block in loop] for loop in loops(outer)] == [[1, 2], [2]]
    # The inner one has the same number.
    assert [block.number for block in main_loop(outer)] == [2]
    assert main_loop(parse(GFX11)) == () and fma_share(mix(())) == 0


def test_loops_of_one_latch_each():
    """Two branches back in one block are two loops."""
    text = "BB0:\n\tv_nop\nBB1:\n\ts_cbranch_scc1 BB0\n\ts_branch BB1\n"
    assert [[b.number for b in loop] for loop in loops(parse(text))] == [[0, 1], [1]]


def test_equal_instructions_in_succession_are_counted():
    (block,) = parse(
        "BB0:\n"
        "\tv_fma_f32 v91, v92, v91, 1.0                                ; d54b005b 03cab75c\n"
        "\t(then repeated 2 times)\n"
        "\ts_endpgm                                                    ; bf810000\n"
    )
    assert [i.opcode for i in block.instructions] == ["v_fma_f32"] * 3 + ["s_endpgm"]
