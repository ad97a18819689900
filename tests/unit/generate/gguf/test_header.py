"""Headers of GGUF files, compared with the package's own reader, and damaged ones."""

from __future__ import annotations

import struct

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.counting import calls_of, peak_bytes_of
from webnn_vk.generate import InvalidModelError, UnsupportedModelError
from webnn_vk.generate.gguf import header
from webnn_vk.generate.gguf.file import GgufFile
from webnn_vk.generate.gguf.header import read_header

VALUES = {
    gguf.GGUFValueType.UINT8: st.integers(0, 2**8 - 1),
    gguf.GGUFValueType.INT8: st.integers(-(2**7), 2**7 - 1),
    gguf.GGUFValueType.UINT16: st.integers(0, 2**16 - 1),
    gguf.GGUFValueType.INT16: st.integers(-(2**15), 2**15 - 1),
    gguf.GGUFValueType.UINT32: st.integers(0, 2**32 - 1),
    gguf.GGUFValueType.INT32: st.integers(-(2**31), 2**31 - 1),
    gguf.GGUFValueType.UINT64: st.integers(0, 2**64 - 1),
    gguf.GGUFValueType.INT64: st.integers(-(2**63), 2**63 - 1),
    gguf.GGUFValueType.FLOAT32: st.floats(width=32, allow_nan=False),
    gguf.GGUFValueType.FLOAT64: st.floats(allow_nan=False),
    gguf.GGUFValueType.BOOL: st.booleans(),
    gguf.GGUFValueType.STRING: st.text(max_size=9),
}
TYPED = st.sampled_from(list(VALUES)).flatmap(
    lambda kind: st.tuples(st.just(kind), VALUES[kind] | st.lists(VALUES[kind], min_size=1))
)


def bytes_of(path):
    return np.frombuffer(path.read_bytes(), np.uint8)


@settings(max_examples=max(30, settings.default.max_examples // 10))
@given(values=st.lists(TYPED, max_size=6), shapes=st.lists(
    st.lists(st.integers(1, 5), min_size=1, max_size=4), max_size=3))
def test_the_package_reads_the_same(tmp_path_factory, values, shapes):
    path = tmp_path_factory.mktemp("header") / "x.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    for number, (kind, value) in enumerate(values):
        if isinstance(value, list):
            writer.add_key_value(f"k{number}", value, gguf.GGUFValueType.ARRAY, sub_type=kind)
        else:
            writer.add_key_value(f"k{number}", value, kind)
    for number, shape in enumerate(shapes):
        array = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        writer.add_tensor(f"t{number}", array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    reader, own = gguf.GGUFReader(path), read_header(bytes_of(path))
    fields = {n: f for n, f in reader.fields.items() if not n.startswith("GGUF.")}
    assert own.metadata.keys() == fields.keys()
    for name, value in own.metadata.items():
        value = value.tolist() if isinstance(value, np.ndarray) else value
        assert value == fields[name].contents() and type(value) is type(fields[name].contents())
    file = GgufFile(path)
    assert file.names() == [tensor.name for tensor in reader.tensors]
    for tensor in reader.tensors:
        np.testing.assert_array_equal(file.floats(tensor.name), tensor.data)


def entry(name, value=b"", kind=8):
    return struct.pack("<Q", len(name)) + name + struct.pack("<I", kind) + value


def document(*parts, tensors=0, version=3, count=None):
    head = struct.pack("<4sIQQ", b"GGUF", version, tensors, len(parts) if count is None else count)
    return head + b"".join(parts)


FLOATS, TEXTS, ARRAYS = (struct.pack("<IQ", kind, 2**60) for kind in (6, 8, 9))


@pytest.mark.parametrize(("data", "message"), [
    (b"", "no GGUF file"), (b"PK\3\4" + b"0" * 99, "no GGUF file"), (b"GGUF\3\0", "truncated"),
    (document()[:20], "truncated"), (document(version=1), "version 1 is not supported"),
    (document(version=3 << 24), "a big-endian file is not supported"),
    (document(count=2**64 - 1), "truncated"), (document(tensors=2**64 - 1), "truncated"),
    (document(struct.pack("<Q", 2**63) + b"x" * 99), "truncated"),
    (document(entry(b"a", FLOATS, 9)), "truncated"), (document(entry(b"a", TEXTS, 9)), "truncated"),
    (document(entry(b"a", ARRAYS, 9)), "an array of the type 9"),
    (document(entry(b"a", b"", 13)), "unknown type 13"), (document(entry(b"\xff")), "not UTF-8"),
    (document(*[entry(b"\x1b[1m", b"\1", 0)] * 2), "twice"),
    (document(entry(b"general.alignment", struct.pack("<I", 0), 4)), "general.alignment"),
    (document(entry(b"general.alignment", struct.pack("<Q", 2**60), 10)), "general.alignment"),
    (document(struct.pack("<Q", 1) + b"t" + struct.pack("<I", 2**31), tensors=1, count=0),
     "has 2147483648 dimensions"),
    (document(*[struct.pack("<Q", 1) + b"t" + struct.pack("<IQIQ", 1, 4, 0, 0)] * 2, tensors=2,
              count=0), "tensor 't' is stored twice"),
])
def test_damaged_headers(tmp_path, data, message):
    path = tmp_path / "x.gguf"
    path.write_bytes(data)

    def refused():
        with pytest.raises((InvalidModelError, UnsupportedModelError), match=message) as caught:
            GgufFile(path)
        text = str(caught.value)
        assert text.startswith("x.gguf: ") and text.isprintable() and len(text) < 300

    assert calls_of(refused) < 1000 and peak_bytes_of(refused) < 1 << 20


def test_a_header_that_is_too_large(monkeypatch):
    monkeypatch.setattr(header, "MAX_HEADER_BYTES", 100)
    data = document(entry(b"a", struct.pack("<Q", 200) + b"x" * 200))
    with pytest.raises(InvalidModelError, match="more than 100 bytes"):
        read_header(np.frombuffer(data, np.uint8))


def test_a_large_vocabulary_is_read_with_little_work(tmp_path):
    """150,000 tokens: the package's reader takes 52 calls for each, and 500 MB."""
    writer = gguf.GGUFWriter(tmp_path / "x.gguf", "llama")
    writer.add_token_list([f"token {number}" for number in range(150_000)])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()

    tokens, calls = [], []

    def read():
        tokens[:] = GgufFile(tmp_path / "x.gguf").metadata["tokenizer.ggml.tokens"]

    assert peak_bytes_of(lambda: calls.append(calls_of(read))) < 30 << 20
    assert calls[0] < 10 * 150_000
    assert tokens[-1] == "token 149999" and len(tokens) == 150_000


def tensors(tmp_path, kind, shape, length, offset=0):
    """A file with a tensor ``t`` of ``length`` bytes."""
    info = struct.pack("<Q", 1) + b"t" + struct.pack("<I", len(shape))
    info += struct.pack(f"<{len(shape)}QIQ", *shape[::-1], kind, offset)
    data = document(info, tensors=1, count=0)
    path = tmp_path / "x.gguf"
    path.write_bytes(data + bytes(-len(data) % 32 + length))
    return GgufFile(path)


@pytest.mark.parametrize(("kind", "shape", "length", "error", "message"), [
    (0, (3, 4), 47, InvalidModelError, "x.gguf is truncated: tensor 't' ends at byte 144 of 143"),
    (0, (2**62, 2**62), 48, InvalidModelError, "is truncated"),
    (8, (2, 40), 500, InvalidModelError, r"tensor 't' \[2, 40\] has incomplete blocks of 32"),
    (12, (1, 128), 500, InvalidModelError, "blocks of 256"),
    (26, (3, 4), 48, UnsupportedModelError, "tensor 't' is I32; one of F32, F16, BF16, Q8_0"),
    (10, (1, 256), 500, UnsupportedModelError, "tensor 't' is Q2_K"),
    (4_000_000_000, (3, 4), 48, UnsupportedModelError, "tensor 't' is 4000000000"),
])
def test_tensors_that_are_wrong(tmp_path, kind, shape, length, error, message):
    file = tensors(tmp_path, kind, shape, length)
    with pytest.raises(error, match=message) as caught:
        file.floats("t")
    assert str(caught.value).isprintable()


def test_tensors_in_parts(tmp_path, monkeypatch):
    """A large tensor becomes floats part by part."""
    from webnn_vk.generate.gguf import file as module

    monkeypatch.setattr(module, "_PART", 100)
    data = gguf.quantize(np.random.default_rng(1).normal(size=(7, 64)).astype(np.float32),
                         gguf.GGMLQuantizationType.Q5_0)
    file = tensors(tmp_path, 6, (7, 64), 0)
    path = tmp_path / "x.gguf"
    path.write_bytes(path.read_bytes() + data.tobytes())
    file = GgufFile(path)
    expected = gguf.dequantize(data, gguf.GGMLQuantizationType.Q5_0)
    np.testing.assert_array_equal(file.floats("t"), expected)
    assert not file.floats("t").flags.writeable


def test_scalars_and_empty_tensors(tmp_path):
    assert tensors(tmp_path, 0, (), 4).floats("t").shape == ()
    assert tensors(tmp_path, 0, (0, 4), 0).floats("t").shape == (0, 4)
    assert tensors(tmp_path, 8, (0, 32), 0).floats("t").shape == (0, 32)
