"""Weights in files beside a model, and in the model's own file: mapped, never copied, and refused
outside of the model's folder."""

import os
from pathlib import Path

import hypothesis
import hypothesis.strategies as st
import numpy as np
import onnx
import pytest
from google.protobuf.message import DecodeError
from onnx import TensorProto, helper

from tests.support.onnx_models import info, model, take
from webnn_vk.onnx import InvalidModelError
from webnn_vk.onnx.embedded import OWN_FILE, without_weights
from webnn_vk.onnx.reading import read_model
from webnn_vk.onnx.weights import ExternalData, to_array

node = helper.make_node


# -- external data ---------------------------------------------------------------------------------
def external(tmp_path, location, length=8, offset=None, size=8):
    """A model beside a file of weights, which it finds at ``location``."""
    folder = tmp_path / "model"
    folder.mkdir(exist_ok=True)
    (folder / "weights.bin").write_bytes(np.arange(size // 4, dtype=np.float32).tobytes())
    (tmp_path / "secret.bin").write_bytes(bytes(64))
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2])
    tensor.data_location = TensorProto.EXTERNAL
    entries = {"location": location, "length": str(length)}
    if offset is not None:
        entries["offset"] = str(offset)
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)
    proto = model([node("Add", ["x", "w"], ["y"])], [info("x", [2])], [info("y", [2])])
    proto.graph.initializer.append(tensor)
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def weight_of(path):
    read = read_model(path)
    return to_array(read.graph.initializer[0], read.external)


def test_external_data_is_mapped_not_read(tmp_path):
    array = weight_of(external(tmp_path, "weights.bin", offset=8, size=32))
    np.testing.assert_array_equal(array, [2, 3])
    assert not array.flags.writeable
    assert not array.flags.owndata


@pytest.mark.parametrize(
    "location", ["../secret.bin", "x/../../secret.bin", "/etc/passwd", "", ".", "no.bin", "a\0b"]
)
def test_external_data_outside_of_the_folder_is_refused(tmp_path, location):
    with pytest.raises(InvalidModelError, match="refused|no file|no name"):
        take(external(tmp_path, location))


def test_links_that_lead_out_are_refused(tmp_path):
    path = external(tmp_path, "link.bin")
    (path.parent / "link.bin").symlink_to(tmp_path / "secret.bin")
    with pytest.raises(InvalidModelError, match="outside of the model's folder"):
        take(path)


@pytest.mark.parametrize(
    ("length", "offset"), [(8, 4), (8, -8), (2**62, 0), (4, 0), (8, 2**63), (-8, 0)]
)
def test_external_data_past_its_file(tmp_path, length, offset):
    with pytest.raises(InvalidModelError, match="tensor 'w'"):
        take(external(tmp_path, "weights.bin", length, offset))


def test_external_data_needs_the_path(tmp_path):
    proto = onnx.load(external(tmp_path, "weights.bin"), load_external_data=False)
    with pytest.raises(InvalidModelError, match="load the model by its path"):
        take(proto)


def test_external_data_that_is_no_plain_file(tmp_path):
    path = external(tmp_path, "odd")
    odd = path.parent / "odd"
    for make in (
        lambda: os.mkfifo(odd), odd.mkdir, lambda: odd.symlink_to("/dev/zero"),
        lambda: odd.symlink_to(odd), lambda: odd.symlink_to(tmp_path / "no"),
        lambda: odd.symlink_to("/proc/self/mem"), lambda: odd.symlink_to(".."),
        lambda: odd.symlink_to("../secret.bin"),
    ):
        make()
        with pytest.raises(InvalidModelError, match="tensor 'w': .*(refused|no file)"):
            take(path)
        odd.rmdir() if odd.is_dir() and not odd.is_symlink() else odd.unlink()
    # A link inside of the folder is fine; so is a file with holes, however long.
    odd.symlink_to("weights.bin")
    assert weight_of(path).tolist() == [0, 1]
    odd.unlink()
    with odd.open("wb") as file:
        file.truncate(1 << 42)
    assert weight_of(path).tolist() == [0, 0]


LOCATIONS = st.sampled_from([
    "weights.bin", "./weights.bin", "x/../weights.bin", "../model/weights.bin", "../secret.bin",
    "..", "/", "//", "~", "", "\0own", "weights.bin\0", "weights.bin/", "C:\\weights.bin", "-", "*",
    "/proc/self/mem", "/dev/stdin", "file:///etc/passwd", "a" * 5000, "../" * 2000 + "etc/passwd",
]) | st.text(max_size=20)
NUMERALS = st.sampled_from([
    "0", "8", "-8", "4", "16", "24", "1e1", "0x8", "8.0", " 8 ", "8_0", "", "nan", "٨", "9" * 5000,
    str(2**63), str(2**64), str(-(2**63)), "+8",
]) | st.text(max_size=5) | st.integers().map(str)


@hypothesis.given(data=st.data())
@hypothesis.settings(max_examples=max(150, hypothesis.settings.default.max_examples))
def test_hostile_external_data(data, tmp_path_factory):
    """Anything in what says where a tensor lies: bytes of the folder's file, or an error."""
    folder = tmp_path_factory.getbasetemp() / "hostile"
    if not folder.exists():
        external_folder(folder)
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2])
    tensor.data_location = TensorProto.EXTERNAL
    for key, values in (("location", LOCATIONS), ("offset", NUMERALS), ("length", NUMERALS),
                        ("checksum", NUMERALS), ("location", LOCATIONS)):
        if data.draw(st.integers(0, 3)):
            tensor.external_data.add(key=key, value=data.draw(values))
    tensor.dims[:] = data.draw(st.sampled_from([[2], [1, 2], [0], [], [2**40], [-2], [2**62, 4]]))
    stored = ExternalData(folder / "model")
    try:
        array = to_array(tensor, stored)
    except InvalidModelError as error:
        assert len(str(error)) < 1000 and str(error).isprintable()
    else:
        assert array.size <= 2
        whole = (folder / "model" / "weights.bin").read_bytes()
        assert array.tobytes() in whole


def external_folder(folder):
    (folder / "model" / "x").mkdir(parents=True)
    (folder / "model" / "weights.bin").write_bytes(np.arange(6, dtype=np.float32).tobytes())
    (folder / "secret.bin").write_bytes(b"secret!!" * 4)


# -- links of the Hugging Face Hub's cache ---------------------------------------------------------
BLOB = np.array([7, 8], np.float32)


def cached(tmp_path, location, target, folder="snapshots/abc"):
    """A model in the Hub's cache, its weights a link to ``target``."""
    (tmp_path / "folder").mkdir()
    path = external(tmp_path / "folder", location)
    model = tmp_path / "cache" / folder / "model.onnx"
    link = model.parent / location
    link.parent.mkdir(parents=True)
    path.rename(model)
    (tmp_path / "cache" / "blobs" / "more").mkdir(parents=True)
    cache = tmp_path / "cache"
    for place in ("blobs/7f", "blobs/more/7f", "7f", model.parent.parent / "7f"):
        (cache / place).write_bytes(BLOB.tobytes())
    os.mkfifo(cache / "blobs" / "pipe")
    link.symlink_to(str(target).replace("TMP", str(tmp_path)))
    return model


@pytest.mark.parametrize(("location", "target", "folder"), [
    ("w.bin", "../../blobs/7f", "snapshots/abc"),
    ("w.bin", "TMP/cache/blobs/7f", "snapshots/abc"),
    ("onnx/w.bin", "../../../blobs/7f", "snapshots/abc"),
    ("w.bin", "../../../../blobs/7f", "snapshots/abc/onnx/deep"),
    ("w.bin", "../../snapshots/abc/../../blobs/7f", "snapshots/abc"),
])
def test_links_to_blobs_of_the_hub_s_cache_are_read(tmp_path, location, target, folder):
    path = cached(tmp_path, location, target, folder)
    assert weight_of(path).tolist() == [7, 8]
    # Also where the cache is reached by a link, and by a link to a link.
    (tmp_path / "home").symlink_to(tmp_path / "cache")
    assert weight_of(tmp_path / "home" / folder / "model.onnx").tolist() == [7, 8]
    link = path.parent / location
    link.rename(link.with_name("first"))
    link.symlink_to("first")
    assert weight_of(path).tolist() == [7, 8]


@pytest.mark.parametrize(("location", "target", "folder"), [
    ("w.bin", "../../7f", "snapshots/abc"),
    ("w.bin", "../../blobs/more/7f", "snapshots/abc"),
    ("w.bin", "../../blobs/pipe", "snapshots/abc"),
    ("w.bin", "../../blobs", "snapshots/abc"),
    ("w.bin", "../7f", "snapshots/abc"),
    ("w.bin", "/proc/self/mem", "snapshots/abc"),
    ("w.bin", "../blobs/7f", "snapshots"),  # no revision
    ("w.bin", "../../blobs/7f", "others/abc"),
    ("w.bin", "../../../../blobs/7f", "snapshots/abc/snapshots/def"),  # of the outer cache
])
def test_links_elsewhere_are_refused(tmp_path, location, target, folder):
    with pytest.raises(InvalidModelError, match="outside of the model's folder or no plain file"):
        take(cached(tmp_path, location, target, folder))


def test_a_blob_that_leads_elsewhere_is_refused(tmp_path):
    """Links behind the first one, folders that are links, and paths that leave the folder."""
    path = cached(tmp_path, "w.bin", "../../blobs/7f")
    blob, secret = tmp_path / "cache" / "blobs" / "7f", tmp_path / "cache" / "7f"
    blob.unlink()
    blob.symlink_to(secret)
    with pytest.raises(InvalidModelError, match="refused"):
        take(path)
    blob.unlink()
    blob.parent.rename(tmp_path / "elsewhere")
    (tmp_path / "cache" / "blobs").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "7f").write_bytes(BLOB.tobytes())
    with pytest.raises(InvalidModelError, match="refused"):
        take(path)


@pytest.mark.parametrize("location", ["../../blobs/7f", "blobs/7f", "../w.bin"])
def test_blobs_are_read_by_links_alone(tmp_path, location):
    path = cached(tmp_path, "w.bin", "../../blobs/7f")
    proto = onnx.load(path, load_external_data=False)
    proto.graph.initializer[0].external_data[0].value = location
    path.write_bytes(proto.SerializeToString())
    (path.parent / "blobs").symlink_to("../../blobs")
    (path.parent.parent / "w.bin").symlink_to("../blobs/7f")
    with pytest.raises(InvalidModelError, match="refused"):
        take(path)


@pytest.mark.parametrize("part", ["file", "folder", "pipe"])
@pytest.mark.timeout(20)
def test_what_changes_while_a_file_is_opened(tmp_path, monkeypatch, part):
    """A blob, or its folder, becomes a link once it was examined: what is opened counts."""
    path = cached(tmp_path, "w.bin", "../../blobs/7f")
    blobs, secret = tmp_path / "cache" / "blobs", tmp_path / "secret"
    secret.mkdir()
    (secret / "7f").write_bytes(bytes(8))
    examined = Path.is_file

    def swap(self):
        found = examined(self)
        if self.name == "7f":
            if part == "folder":
                blobs.rename(tmp_path / "old")
                blobs.symlink_to(secret)
            else:
                self.unlink()
                os.mkfifo(self) if part == "pipe" else self.symlink_to(secret / "7f")
        return found

    monkeypatch.setattr(Path, "is_file", swap)
    with pytest.raises(InvalidModelError, match=r"tensor 'w': 'w.bin' can't be read: \w+"):
        weight_of(path)


# -- weights in the file itself --------------------------------------------------------------------
def test_embedded_weights_are_read_where_they_lie(tmp_path, rng):
    w = rng.normal(size=(64, 64)).astype(np.float32)
    proto = model([node("MatMul", ["x", "w"], ["y"])], [info("x", [1, 64])], [info("y", [1, 64])],
                  {"w": w, "small": np.ones(3, np.float32)})
    path = tmp_path / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    read = read_model(path)
    stored = {t.name: t for t in read.graph.initializer}
    assert not stored["w"].raw_data
    assert len(stored["small"].raw_data) == 12
    array = to_array(stored["w"], read.external)
    np.testing.assert_array_equal(array, w)
    assert not array.flags.owndata
    assert [n.op_type for n in read.graph.node] == ["MatMul"]


@pytest.mark.parametrize("kind", ["raw", "float_data", "double_data"])
def test_bytes_of_weights_are_not_copied_wherever_a_file_has_them(kind):
    w = np.arange(2048, dtype=np.float64 if kind == "double_data" else np.float32)
    data_type = helper.np_dtype_to_tensor_dtype(w.dtype)
    values = w.tobytes() if kind == "raw" else w
    tensor = helper.make_tensor("w", data_type, [2048], values, raw=kind == "raw")
    assert tensor.HasField("raw_data") == (kind == "raw")
    proto = model([node("Neg", ["w"], ["y"])], [], [info("y", [2048], data_type)])
    proto.graph.initializer.append(tensor)
    data = proto.SerializeToString()
    (stored,) = (read := read_model(data)).graph.initializer
    array = to_array(stored, read.external)
    np.testing.assert_array_equal(array, w)
    assert np.shares_memory(array, np.frombuffer(data, np.uint8))
    # Elements of another type, or twice, are for protobuf to judge.
    tensor.data_type = TensorProto.COMPLEX64
    proto.graph.initializer[0].CopyFrom(tensor)
    assert kind == "raw" or without_weights(memoryview(proto.SerializeToString())) is None


def test_a_model_can_not_name_its_own_bytes_elsewhere():
    proto = model([node("Add", ["x", "w"], ["y"])], [info("x", [2])], [info("y", [2])])
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2])
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=OWN_FILE)
    proto.graph.initializer.append(tensor)
    with pytest.raises(InvalidModelError, match="load the model by its path"):
        take(proto.SerializeToString())


@hypothesis.given(st.binary(max_size=64), st.integers(0, 2**13), st.integers(0, 2**13))
def test_the_walk_over_a_file_agrees_with_protobuf(junk, start, end):
    """Damaged anywhere, the small model is what protobuf makes of the whole one, or there is
    none."""
    w = np.arange(2048, dtype=np.float32)
    whole = bytearray(model([node("Neg", ["w"], ["y"])], [], [info("y", [2048])],
                            {"w": w}).SerializeToString())
    whole[min(start, end) : max(start, end)] = junk
    data = bytes(whole)
    small = without_weights(memoryview(data))
    if small is None:
        return
    try:
        expected = onnx.ModelProto.FromString(data)
    except DecodeError:
        return  # the small model is as damaged, or its bytes do not fit: said later
    made = onnx.ModelProto.FromString(small)
    assert [t.name for t in made.graph.initializer] == [t.name for t in expected.graph.initializer]
    assert list(made.graph.node) == list(expected.graph.node)


def test_locations_that_are_no_text(tmp_path):
    path = external(tmp_path, "abcd.bin")
    path.write_bytes(path.read_bytes().replace(b"abcd", b"\xff\xfe\xfd\xfc"))
    with pytest.raises(InvalidModelError, match="UTF-8"):
        take(path)
