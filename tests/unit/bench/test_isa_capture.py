"""Reads the files of a capturing driver: its log, and the bindings of modules."""

import struct

import pytest

from bench.isa.beside import failures, table
from bench.isa.capture import (
    Capture,
    Captured,
    CaptureError,
    Dispatched,
    Kept,
    Layout,
    read_log,
    read_module,
)

LOG = """\
pipe 0 entry main 0=01000000 7=0000803f
=== run
dispatch 0 9 9 9
=== run
pipe 1 entry other
dispatch 1 4 5 6 push=0001 0.3=ff 1.0=aabb
dispatch 0 2 1 1
"""


def test_the_log_of_the_last_run():
    first = Captured("main", ((0, b"\1\0\0\0"), (7, b"\0\0\x80?")))
    assert read_log(LOG) == Capture(
        {0: first, 1: Captured("other", ())},
        (
            Dispatched(1, (4, 5, 6), b"\0\1", (((0, 3), b"\xff"), ((1, 0), b"\xaa\xbb"))),
            Dispatched(0, (2, 1, 1)),
        ),
    )


def test_what_is_written_is_read_back(tmp_path):
    kept = Kept(read_log(LOG), {0: b"zero", 1: b"one"})
    kept.write(tmp_path / "a" / "b")
    assert Kept.read(tmp_path / "a" / "b") == kept
    (tmp_path / "a" / "b" / "log.txt").write_text("=== run\n")
    with pytest.raises(CaptureError, match="nothing was dispatched"):
        Kept.read(tmp_path / "a" / "b")


@pytest.mark.parametrize(
    "text", ["dispatch 3 1 1 1", "dispatch 3 1 1 1 push=g", "pipe x", "dispatch 0 1 1"]
)
def test_what_is_no_log(text):
    with pytest.raises(CaptureError):
        read_log(text)


def module(*instructions):
    words = [0x07230203, 0x10300, 0, 100, 0]
    for operation, *arguments in instructions:
        words += [(len(arguments) + 1) << 16 | operation, *arguments]
    return struct.pack(f"<{len(words)}I", *words)


LOCAL_SIZE = (16, 1, 17, 8, 4, 2)
BUFFERS = (
    (71, 10, 34, 0), (71, 10, 33, 1),  # a storage buffer in set 0 at binding 1
    (71, 11, 34, 2), (71, 11, 33, 0),  # a uniform buffer in set 2
    (71, 12, 34, 0), (71, 12, 33, 3),  # a storage buffer declared the old way: uniform, BufferBlock
    (71, 22, 3),
    (71, 13, 33, 5),                   # a texel buffer
    (30, 20), (30, 22),
    (32, 30, 12, 20), (32, 31, 2, 20), (32, 32, 2, 22), (32, 33, 0, 21), (32, 34, 4, 20),
    (59, 30, 10, 12), (59, 31, 11, 2), (59, 32, 12, 2), (59, 33, 13, 0),
    (59, 34, 14, 4),                   # shared memory, which is not bound
)


def test_what_a_module_binds():
    assert read_module(module(LOCAL_SIZE, *BUFFERS)) == Layout(
        {0: {1: 7, 3: 7, 5: 4}, 2: {0: 6}}, (8, 4, 2)
    )


def test_workgroup_sizes_that_are_specialised():
    """By the built-in constant, and by ids of the execution mode."""
    sizes = ((71, 1, 1, 7), (50, 9, 1, 16), (43, 9, 2, 2), (43, 9, 3, 1))
    by_constant = module(LOCAL_SIZE, (71, 4, 11, 25), *sizes, (51, 9, 4, 1, 2, 3))
    by_mode = module((331, 1, 38, 1, 2, 3), *sizes)
    for code in (by_constant, by_mode):
        assert read_module(code).local_size == (16, 2, 1)
        layout = read_module(code, ((7, struct.pack("<I", 64)),))
        assert layout.local_size == (64, 2, 1) and layout.invocations == 128


@pytest.mark.parametrize(
    "code", [b"", b"spir" * 9, module(), module(LOCAL_SIZE)[:-3], module(LOCAL_SIZE)[:-4]]
)
def test_what_is_no_module(code):
    with pytest.raises(CaptureError):
        read_module(code)


def test_the_table_has_a_column_for_each_peer():
    def row(workload, who, time=None, error=None):
        bound = time and {"all": time, "whole": 2 * time, "share": 0.5, "port": "lds"}
        return {"workload": workload, "who": who, "bound": bound, "error": error}

    found = [
        row("matmul", "webnn_vk", 2.0), row("matmul", "b", 3.0), row("matmul", "a", 5.0),
        row("softmax", "webnn_vk", 4.0), row("softmax", "a", error="why"),
    ]
    titles, rows = table(found)
    assert titles == ["workload", "ours", "a", "b", "our share", "limited by", "ahead"]
    assert rows == [
        ["matmul", "2.00 (4.0)", "5.00 (10.0)", "3.00 (6.0)", "50%", "lds", "1.50×"],
        ["softmax", "4.00 (8.0)", "?", "-", "50%", "lds", "-"],
    ]
    assert failures(found) == ["  ? a, softmax: why"]
