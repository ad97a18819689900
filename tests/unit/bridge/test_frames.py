"""Frames: what was written is read, and damage is found."""

import math
import os
import struct
import threading
import zlib

import cbor2
import numpy as np
import pytest

from tests.support.counting import calls_of, peak_bytes_of
from webnn_vk.bridge import frames
from webnn_vk.bridge.frames import DamagedFrame, Frame, Kind, read_frame, write_frame

HEADER = ["operator", [3, -1, 2**63, 1.5, "ä", None, True, {"axes": [0, 1]}]]


def through_pipe(data: bytes) -> list[Frame | None]:
    """The frames read from bytes, until the end."""
    read, write = os.pipe()

    def fill() -> None:
        with os.fdopen(write, "wb") as file:
            file.write(data)

    writer = threading.Thread(target=fill)
    writer.start()
    found = []
    try:
        while (frame := read_frame(read)) is not None:
            found.append(frame)
    finally:
        os.close(read)
        writer.join()
    return found


def written(*sent: Frame) -> bytes:
    read, write = os.pipe()
    collected = []

    def collect() -> None:
        with os.fdopen(read, "rb") as file:
            collected.append(file.read())

    reader = threading.Thread(target=collect)
    reader.start()
    for frame in sent:
        write_frame(write, frame)
    os.close(write)
    reader.join()
    return collected[0]


def sealed(header: bytes, raw: bytes = b"", kind: int = 2, request: int = 1) -> bytes:
    """A frame with a right checksum around any header."""
    rest = struct.pack("<IQIBxxx", len(header), len(raw), request, kind) + header
    return struct.pack("<I", zlib.crc32(rest)) + rest + raw


def test_frames_arrive_as_sent():
    raw = np.arange(2**18, dtype=np.float32)  # more than a pipe holds
    sent = [Frame(Kind.CALL, 7, HEADER), Frame(Kind.START, 2**32 - 1, None, raw)]
    first, second = through_pipe(written(*sent))
    assert first == sent[0]
    assert second[:3] == sent[1][:3]
    assert second.raw.view(np.float32).tolist() == raw.tolist()


def test_raw_bytes_may_have_any_shape():
    raw = np.arange(12, dtype=np.int16).reshape(3, 4).T
    (frame,) = through_pipe(written(Frame(Kind.VALUE, 1, None, raw)))
    assert frame.raw.view(np.int16).tolist() == raw.reshape(-1).tolist()


def test_numbers_keep_their_kind():
    values = [0, -1, 2**64 - 1, -(2**70), 2**511, 0.0, -0.0, 1e300, math.inf]
    encoded = [  # cbor2 shortens infinities, JavaScript's client does not
        b"\xfb" + struct.pack(">d", v) if isinstance(v, float) else cbor2.dumps(v) for v in values
    ]
    (frame,) = through_pipe(sealed(b"\x89" + b"".join(encoded)))
    assert [(type(v), str(v)) for v in frame.header] == [(type(v), str(v)) for v in values]


def test_every_damaged_bit_of_head_and_header_is_found():
    data = written(Frame(Kind.CALL, 7, HEADER))
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(DamagedFrame):
            through_pipe(bytes(damaged))


def test_every_end_inside_a_frame_is_found():
    data = written(Frame(Kind.CALL, 7, HEADER, np.ones(5, np.uint8)))
    assert through_pipe(b"") == []
    for end in range(1, len(data)):
        with pytest.raises(DamagedFrame):
            through_pipe(data[:end])


@pytest.mark.parametrize("head, what", [
    ((frames.MAX_HEADER + 1, 0), "too large"), ((0, frames.MAX_RAW + 1), "too large"),
])
def test_lengths_have_limits(head, what):
    rest = struct.pack("<IQIBxxx", *head, 1, 2)
    with pytest.raises(DamagedFrame, match=what):
        through_pipe(struct.pack("<I", zlib.crc32(rest)) + rest)


@pytest.mark.parametrize("header", [
    b"", b"\xff", b"\x81" * 5000, b"\x9b" + b"\xff" * 8, cbor2.dumps(1) + b"\x1c",
    cbor2.dumps({1: 2}), cbor2.dumps(b"bytes"), cbor2.dumps(["a", {"b": b""}]),
    cbor2.dumps(cbor2.CBORTag(35, "a+")), cbor2.dumps(cbor2.CBORTag(0, "2020-01-01T00:00:00Z")),
    cbor2.dumps(cbor2.CBORSimpleValue(99)), cbor2.dumps(cbor2.undefined),
    cbor2.dumps(cbor2.CBORTag(28, [cbor2.CBORTag(29, 0)])),
    cbor2.dumps(2**512), b"\xc2\x18\x20", b"\xc2\xc2\x41\x01", b"\x41\x00",  # integers; bytes
    b"\x9f\xff", b"\x5f\xff", b"\xbf\xff", b"\x61\xff", b"\x78\x05abc",  # lengths, text
    b"\xa2\x61a\x01\x61a\x02", b"\x81" * 40 + b"\x00", b"\xf9\x00\x00", b"\xfa" + bytes(4),
    b"\x9a\xff\xff\xff\xff\x00", b"\x9a\x00\x01\x86\xa0" + b"\x80" * 100_000,
])
def test_headers_have_plain_values_only(header):
    with pytest.raises(DamagedFrame):
        through_pipe(sealed(header))


def test_the_work_of_a_header_is_bounded():
    """Of empty lists, and of references to what came before, each twice."""
    lists = b"\x9a" + (2**20 - 6).to_bytes(4, "big") + b"\x80" * (2**20 - 6)
    assert peak_bytes_of(lambda: refused(lists)) < 16e6
    shared: object = 0
    for _ in range(40):
        shared = [shared, shared]
    references = cbor2.dumps(shared, value_sharing=True)
    assert len(references) < 500
    assert calls_of(lambda: refused(references)) < 1000


def refused(header: bytes) -> None:
    with pytest.raises(DamagedFrame):
        frames._decoded(header)


@pytest.mark.parametrize("name", ["take", "_decoded"])
def test_frames_that_memory_does_not_hold(monkeypatch, name):
    """They are read to their end: the next one is as it was sent."""
    raw = np.arange(2**20 + 5, dtype=np.uint8)  # more than is skipped at a time
    sent = [Frame(Kind.CALL, 1, HEADER, raw), Frame(Kind.POLL, 2, None, raw[:9])]
    data, where = written(*sent), frames.RawMemory if name == "take" else frames
    own, shortages = getattr(where, name), iter([MemoryError("no room")])

    def short(*given):
        for error in shortages:
            raise error
        return own(*given)

    monkeypatch.setattr(where, name, short)
    first, second = through_pipe(data)
    assert first[:2] == (Kind.CALL, 1) and first.raw is None
    assert type(first.header) is MemoryError and str(first.header) == "no room"
    assert second[:3] == sent[1][:3] and second.raw.tolist() == list(range(9))


def test_raw_memory_is_used_again():
    memory = frames.RawMemory()
    first = memory.take(100)
    first[:] = 7
    assert memory.take(60).tolist() == [7] * 60
    assert memory.take(200).size == 200 and memory.take(0).size == 0
    large = memory.take(frames.RawMemory._KEPT + 1)
    assert large.size == frames.RawMemory._KEPT + 1 and not np.shares_memory(large, memory.take(1))
