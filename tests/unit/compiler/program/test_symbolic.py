"""Parameter blocks with sizes that are known at dispatch."""

import struct

from webnn_vk.compiler.program.symbolic import SizedParams, joined


def test_blocks_behind_each_other():
    """What is known stays as it is; offsets are the sums of the blocks' sizes."""
    sized = SizedParams("<If", (3, 0.5)), SizedParams("<2i", (-1, 7))
    blocks = [b"abcd", bytes(4), sized[0], bytes(4), sized[1]]
    made = joined(blocks)
    assert isinstance(made, SizedParams) and len(made) == sum(map(len, blocks)) == 28
    packed = struct.pack(made.format, *made.values)
    assert packed[:8] == b"abcd\0\0\0\0" and packed[16:20] == bytes(4)
    assert struct.unpack("<If", packed[8:16]) == (3, 0.5)
    assert struct.unpack("<2i", packed[20:]) == (-1, 7)


def test_blocks_without_sizes_are_bytes():
    assert joined([b"ab", b"c"]) == b"abc" and joined([]) == b""
