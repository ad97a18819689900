"""Invalid files: the messages, and the lines that they name."""

import os
import struct

import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.support.contexts import open_context
from tests.support.counting import calls_of
from webnn_vk import MLGraphBuilder, webnn_file
from webnn_vk.api.builder import ShapeBuilder
from webnn_vk.webnn_file import GraphFileError
from webnn_vk.webnn_file.text import parse

FRAME = """\
webnn_graph "g" v1 {{
  inputs {{ x: f32[2, 3]; }}
  consts {{ {consts} }}
  nodes {{
    {nodes}
  }}
  outputs {{ y; }}
}}
"""
HEAD = 'webnn_graph "g" v2 { inputs { x: f32[2, 3]; }\n'


def framed(nodes="y = relu(x);", consts=""):
    return FRAME.format(nodes=nodes, consts=consts)


def made(tmp_path, text, **options):
    path = tmp_path / "g.webnn"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return webnn_file.build_operands(path, ShapeBuilder(), **options)


@pytest.mark.parametrize(("text", "line", "message"), [
    ("", 1, "'webnn_graph' is expected, not 'the end of the line'"),
    ("# only\n# comments\n", 3, "'webnn_graph' is expected"),
    ("webnn_graph g v1 {}", 1, "the graph's name in quotes is expected, not 'g v1 {}'"),
    ('webnn_graph "g v1 {}\n\n', 1, "a string has no end"),
    ('webnn_graph "g" v3 {}', 1, "version 3 is not one of (1, 2)"),
    ('webnn_graph "g" v12345678901 {}', 1, "the version: 1234567890… is too large"),
    ('webnn_graph "g" v1 {} x', 1, "the end of the file is expected, not 'x'"),
    ('webnn_graph "g" v1 {', 1, "one of inputs, consts, nodes, outputs or '}' is expected"),
    ('webnn_graph "g" v1 {\nweights {} }', 2, "one of inputs, consts, nodes, outputs or '}'"),
    ('webnn_graph "g" v1 {\n}', None, "the graph has no output"),
    (b'webnn_graph "g" v1 {\n \xff }', 2, "the text is not valid UTF-8"),
    ('#webnn_vk: input x\nwebnn_graph "g" v1 {}', 1, "a comment of ours has to be as in"),
    (HEAD + 'inputs { x: i8[1]; } nodes { y = relu(x); } outputs { y; } }', 2,
     "x is there already"),
    (HEAD + "inputs { z: f64[1]; } }", 2, "f64 is no data type; one of f32, f16,"),
    (HEAD + "inputs { z: u4[1]; } }", 2, "uint4 is no data type of the WebNN draft"),
    (HEAD + "inputs { z: f32[1,]; } }", 2, "a dimension is expected, not ']"),
    (HEAD + "inputs { z: f32[12345678901]; } }", 2, "a dimension: 1234567890… is too large"),
    (HEAD + "inputs { z: f32[0]; } nodes { y = relu(z); } outputs { y; } }", 2, "z: "),
    (HEAD + "inputs { z: f32[9999999999]; } outputs { z; } }", 2, "z: "),
    (HEAD + "inputs {{ z: f32[{}]; }} outputs {{ z; }} }}".format(", ".join("1" * 65)), 2,
     "more than 64 items in one list"),
    (HEAD + "inputs {{ z: f32[{}]; }} outputs {{ z; }} }}".format(", ".join("1" * 9)), 2, "z: "),
    (HEAD + 'consts { c: f32[dyn("n", 3)]; } }', 2, "constant c: its dimensions have to be"),
    (HEAD + 'inputs { z: f32[dyn("n", 3)]; } outputs { z; } }', 2,
     "dimension 'n' is dynamic, up to 3; give its size: dimensions={'n': …}"),
    (HEAD + 'inputs { z: f32[dyn("n", 3), dyn("n", 4)]; } outputs { z; } }', 2,
     "dimension 'n' has two largest sizes"),
    (HEAD + "outputs { q; } }", 2, "q is not defined before"),
    (HEAD + "nodes { y = relu(x); }\noutputs { y; y; } }", 3, "output 'y' is there already"),
    (HEAD + "outputs { x y } }", 2, None),
    (HEAD + "nodes {\n\n y = relu(x)\n} outputs { y; } }", 5, "';' is expected, not '} outputs"),
])
def test_text(text, line, message, tmp_path):
    if message is None:  # semicolons between outputs may be left out
        with pytest.raises(GraphFileError, match="y is not defined"):
            made(tmp_path, text)
        return
    with pytest.raises(GraphFileError) as caught:
        made(tmp_path, text)
    assert message in str(caught.value)
    assert caught.value.line == line
    assert line is None or str(caught.value).startswith(f"line {line}: ")


@pytest.mark.parametrize(("nodes", "message"), [
    ("y = relu(z);", "z is not defined before"),
    ("y = relu(y);", "y is not defined before"),
    ("x = relu(x); y = x;", "x is there already"),
    ("y = Relu(x);", "no operator is called Relu; did you mean"),
    ("y = conv_transpose2d(x, x);", "did you mean convTranspose2d"),
    ("y = relu(x, x);", "relu has no more operands"),
    ("y = relu();", "relu needs input"),
    ("y = relu(3);", "relu: 3 stands for no argument"),
    ("y = relu(x, alpha=1);", "relu has no alpha; it takes input, label"),
    ("y = elu(x, alpha=1, alpha=2);", "alpha is given twice"),
    ('y = elu(x, alpha="1");', "elu: alpha"),
    ('y = elu(x, alpha="Infinity");', "a finite number is expected, not inf"),
    ("y = elu(x, alpha={a: 1});", "alpha: an object is no value here"),
    ("y = elu(x, alpha=1e999);", "1e999 is too large for a double"),
    ("y = elu(x, alpha=%s);" % ("9" * 400), "is too large for a double"),
    ("y = elu(x, alpha=%s);" % ("9" * 9000), "a number of 9000 characters"),
    ("y = relu(x, label=3);", "label: a string is expected, not 3"),
    ("y = transpose(x, permutation=[0, 0]);", "transpose: permutation"),
    ("y = reshape(x, newShape=[7]);", "reshape: "),
    ("y = matmul(x, x, label=\"deep\");", "matmul [deep]: "),
    ("y = concat(axis=0);", "concat needs inputs"),
    ("y = concat([x, z], axis=0);", "z is not defined before"),
    ("[y, z] = relu(x);", "relu has 1 results, not 2"),
    ("[y, z] = split(x, splits=4000000000, axis=0);", "split has 4000000000 results, not 2"),
    ("[y, z] = x;", "one operand for 2 names"),
    ("[] = relu(x);", "a node without results"),
    ("y = relu(x, a={}1{});".format("[" * 17, "]" * 17), "values are nested more than 16 deep"),
    ("y = relu(x, a=%s);" % ("[" * 100_000), "values are nested more than 16 deep"),
    ("y = relu(x, a={%s});" % ('"a": {' * 100_000), "values are nested more than 16 deep"),
    (f"y = transpose(x, permutation=[{', '.join(['0'] * 65537)}]);", "more than 65536 items"),
    ("y = layerNormalization(x, x, bias=x);", "layer_normalization: bias"),
])
def test_nodes(nodes, message, tmp_path):
    with pytest.raises(GraphFileError) as caught:
        made(tmp_path, framed(nodes))
    assert message in str(caught.value)
    assert caught.value.line == 5
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize(("consts", "message"), [
    ("c: f32[2] @scalar(1) @scalar(2);", "constant c: more than one annotation"),
    ("c: f32[2] @zeros(1);", "@weights, @scalar, @bytes or ';' is expected"),
    ("c: f32[2] @bytes([1, 2, 3]);", "constant c: 3 bytes are given, float32[2] has 8"),
    ("c: u8[2] @bytes([1, 256]);", "a byte, 0 … 255"),
    ("c: u8[2] @bytes([1, 2);", "a byte, 0 … 255"),
    ("c: f32[2147483647] @scalar(0);", "more than 256 MiB together"),
    ("c: f32[2];", "constant c: there is neither g.safetensors nor model.safetensors beside"),
])
def test_constants(consts, message, tmp_path):
    with pytest.raises(GraphFileError) as caught:
        made(tmp_path, framed(consts=consts))
    assert message in str(caught.value)
    assert caught.value.line == 3


@pytest.mark.parametrize("options", [
    {"inputs": {"z": None}}, {"dimensions": {"m": 2}}, {"dimensions": {"n": 9}},
    {"dimensions": {"n": 0}},
])
def test_arguments(options, tmp_path):
    text = HEAD + 'inputs { z2: f32[dyn("n", 3)]; } nodes { y = relu(z2); } outputs { y; } }'
    with pytest.raises(ValueError, match="input 'z'|dimension '[mn]'"):
        made(tmp_path, text, **{"dimensions": {"n": 1}, **options})


# -- weights -----------------------------------------------------------------------------------
CONSTANT = framed("y = add(x, w);", 'w: f32[2, 3] @weights("layer.w");')


def archive(**entries):
    """A file of tensors with a header as given."""
    header = ", ".join(
        f'"{name}": {{"dtype": "{dtype}", "shape": {list(shape)}, "data_offsets": [{a}, {b}]}}'
        for name, (dtype, shape, a, b) in entries.items()
    ).encode()
    return struct.pack("<Q", len(header) + 2) + b"{" + header + b"}"


GOOD = ("F32", (2, 3), 0, 24)


@pytest.mark.parametrize(("data", "message"), [
    (b"", "no safetensors file"),
    (b"\0" * 7, "no safetensors file"),
    (struct.pack("<Q", 2**63) + b"{}", "no safetensors file"),
    (struct.pack("<Q", 10**9) + b"{}", "no safetensors file"),
    (struct.pack("<Q", 4) + b"null", "no safetensors file"),
    (struct.pack("<Q", 9) + b"[[[[[[[[[", "no safetensors file"),
    (struct.pack("<Q", 10**6) + b'{"a":' * 200_000, "no safetensors file"),
    (archive(w=GOOD), "no safetensors file"),  # no data at all
    (archive(w=GOOD) + b"\0" * 23, "no safetensors file"),
    (archive(w=GOOD) + b"\0" * 25, "no safetensors file"),
    (archive(w=GOOD, v=GOOD) + b"\0" * 24, "no safetensors file"),  # overlapping
    (archive(w=GOOD, v=("F32", (2, 3), 28, 52)) + b"\0" * 52, "no safetensors file"),  # a hole
    (archive(w=("F32", (2, 4), 0, 24)) + b"\0" * 24, "no safetensors file"),
    (archive(w=("F32", (2**40, 2**40), 0, 24)) + b"\0" * 24, "no safetensors file"),
    (archive(w=("F99", (2, 3), 0, 24)) + b"\0" * 24, "no safetensors file"),
    (archive(w=GOOD) + b"\0" * 24, "no tensor 'layer.w'; it has none like it"),
    (archive(**{"layer.w": ("F16", (2, 3), 0, 12)}) + b"\0" * 12,
     "tensor 'layer.w' of g.safetensors is F16 [2, 3], the graph has float32[2, 3]"),
    (archive(**{"layer.w": ("F32", (3, 2), 0, 24)}) + b"\0" * 24,
     "tensor 'layer.w' of g.safetensors is F32 [3, 2], the graph has float32[2, 3]"),
    (archive(**{"layer_w": GOOD, "layer::w": ("F32", (2, 3), 24, 48)}) + b"\0" * 48,
     "no tensor 'layer.w'; it has none like it"),
    (archive(**{"layer__w": GOOD}) + b"\0" * 24, "no tensor 'layer.w'"),
])
def test_damaged_weights(data, message, tmp_path):
    (tmp_path / "g.safetensors").write_bytes(data)
    if "layer_w" in message or (b"layer_w" in data and b"layer::w" in data):
        # One of them resembles the name.
        assert made(tmp_path, CONSTANT)
        return
    with pytest.raises(GraphFileError) as caught:
        made(tmp_path, CONSTANT)
    assert message in str(caught.value)
    assert "constant w: " in str(caught.value) and caught.value.line == 3


def test_weights_by_name_and_by_likeness(tmp_path):
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    for stored in ("layer.w", "layer_w"):
        save_file({stored: array, "other": array}, tmp_path / "model.safetensors")
        outputs = made(tmp_path, CONSTANT)
        assert list(outputs) == ["y"]
    save_file({"layer_w": array, "layer::w".replace("::", "."): array + 1},
              tmp_path / "model.safetensors")
    assert made(tmp_path, CONSTANT)


def test_where_weights_may_lie(tmp_path):
    folder, outside = tmp_path / "model", tmp_path / "outside"
    folder.mkdir()
    outside.mkdir()
    save_file({"layer.w": np.zeros((2, 3), np.float32)}, outside / "w.safetensors")
    link = folder / "g.safetensors"
    link.symlink_to(outside / "w.safetensors")
    with pytest.raises(GraphFileError, match="outside of the graph's folder or no plain file"):
        made(folder, CONSTANT)
    # The caller may name any file.
    assert made(folder, CONSTANT, weights=outside / "w.safetensors")
    assert made(folder, CONSTANT, weights="../outside/w.safetensors")
    link.unlink()
    link.symlink_to(folder / "nothing")
    with pytest.raises(GraphFileError, match="a link to nothing"):
        made(folder, CONSTANT)
    link.unlink()
    link.symlink_to(link)
    with pytest.raises(GraphFileError, match="a link to nothing"):
        made(folder, CONSTANT)
    link.unlink()
    os.mkfifo(link)
    with pytest.raises(GraphFileError, match="no plain file"):
        made(folder, CONSTANT)
    with pytest.raises(GraphFileError, match="no plain file"):
        made(folder, CONSTANT, weights=link)
    link.unlink()
    link.mkdir()
    with pytest.raises(GraphFileError, match="no plain file"):
        made(folder, CONSTANT)
    with pytest.raises(GraphFileError, match="no plain file"):
        made(folder, CONSTANT, weights="/dev/zero")
    with pytest.raises(GraphFileError, match="no plain file|can't be read"):
        made(folder, CONSTANT, weights="missing.safetensors")


def test_a_graph_that_is_no_plain_file(tmp_path):
    os.mkfifo(tmp_path / "g.webnn")
    with pytest.raises(GraphFileError, match="no plain file"):
        webnn_file.build_operands(tmp_path / "g.webnn", ShapeBuilder())
    with pytest.raises(GraphFileError, match="no plain file"):
        webnn_file.build_operands("/dev/zero", ShapeBuilder())
    with pytest.raises(FileNotFoundError):
        webnn_file.build_operands(tmp_path / "none.webnn", ShapeBuilder())


@pytest.mark.parametrize(("head", "part", "count"), [
    ("", "#", 1 << 20), ("", "\n", 1 << 20), ("", "# \n", 1 << 18), ('"', "a", 1 << 20),
    ('webnn_graph "', '\\"', 1 << 19), ('webnn_graph "g" v1 {', "inputs {}", 1 << 16),
    ('webnn_graph "g" v1 { nodes {', "a = b; ", 1 << 17),
    ('webnn_graph "g" v1 { nodes { a = b(', "1, ", 1 << 18),
    ('webnn_graph "g" v1 { consts { a: u8[9] @bytes([', "1, ", 1 << 18),
    ("", "webnn_graph ", 1 << 16), ('webnn_graph "g" v', "1", 1 << 20), ("", "{", 1 << 20),
])
def test_long_texts_take_work_that_grows_with_them(head, part, count):
    def refused(count):
        with pytest.raises(GraphFileError):
            parse(head + count * part)

    count //= 16
    # Up to 15 calls per character were seen, and a few to raise an error.
    assert calls_of(lambda: refused(count)) < 100 + 20 * count * len(part)
    # Sixteen times as much: what is quadratic in C takes longer than a test may.
    refused(16 * count)


def test_too_much_of_everything():
    with pytest.raises(GraphFileError, match="more than 200000 declarations and nodes"):
        parse('webnn_graph "g" v1 { nodes {' + "a = b;" * 200_001 + "} }")


# -- numbers -----------------------------------------------------------------------------------
NUMBERED = """\
webnn_graph "g" v{version} {{
  inputs {{
    x: f32[3, 4];
    d: f32[{dimension}, 4];
    z: f32[dyn("n", {dynamic}), 4];
  }}
  consts {{
    c: f32[{constant}] @scalar({scalar});
    u: u8[2] @bytes([1,
      {byte}]);
  }}
  nodes {{
    e = elu(x,
      alpha={alpha}, metadata={{a: {remark}}});
    s = slice(x, starts=[0, 0],
      sizes=[1, {size}], strides=[1, 1]);
    t = triangular(x,
      diagonal={diagonal}, label="a: b");
    y = softmax(z,
      {axis});
    [p] = split(x,
      splits={splits});
  }}
  outputs {{ y; e; s; t; p; }}
}}
"""
FINE = {"version": 2, "dimension": 3, "dynamic": 8, "constant": 2, "scalar": 1, "byte": 2,
        "alpha": 1, "remark": 1, "size": 2, "diagonal": 0, "axis": 1, "splits": 1}
ODD = ["-1", "0", "-0", "2147483648", "9223372036854775808", "18446744073709551616", "9" * 400,
       "-" + "9" * 400, "9" * 600, "1e999", "-1e999", "1e-999", "nan", "1.5"]
#: Numbers that are accepted there.
TAKEN = {
    "dimension": ["0", "-0"], "byte": ["0"], "size": ["0", "-0", "1e-999"],
    "diagonal": ["-1", "0", "-0", "1e-999"], "axis": ["0", "-0", "1e-999"],
    "scalar": [v for v in ODD if v not in ("9" * 600, "1e999", "-1e999", "nan")],
    "alpha": [v for v in ODD if len(v) < 100 and v not in ("1e999", "-1e999", "nan")],
    "remark": [v for v in ODD if v not in ("9" * 600, "1e999", "-1e999")],
}


@pytest.mark.parametrize("place", FINE)
def test_numbers(place, tmp_path):
    """Each is an error with its own line where it isn't accepted, whatever digits there are."""
    path, own = tmp_path / "g.webnn", NUMBERED[: NUMBERED.index(f"{{{place}}}")].count("\n") + 1
    # What is wrong only together with the input has the line of the statement.
    lines = (own, own - 1) if place in ("size", "splits") else (own,)
    with open_context("cpu", experimental=["dynamic-shapes"]) as context:
        for value in ODD:
            path.write_text(NUMBERED.format(**FINE | {place: value}))
            try:
                webnn_file.build_operands(path, MLGraphBuilder(context))
                assert value in TAKEN.get(place, ()), value
            except GraphFileError as error:
                assert value not in TAKEN.get(place, ()), value
                assert error.line in lines, (value, str(error))
                assert len(str(error)) < 1000


@pytest.mark.parametrize(("dimension", "message"), [
    ('dyn("n", 2147483648)', "a dimension's largest size: 1 … 2147483647 is expected, not 214748"),
    ('dyn("n", 0)', "a dimension's largest size: 1 … 2147483647 is expected, not 0"),
    ('dyn("n", 1.5)', "a dimension's largest size: an integer is expected, not 1.5"),
    ('dyn("", 3)', "dimension: a name is expected, not ''"),
    ("-1", "a dimension: at least 0 is expected, not -1"),
])
def test_named_dimensions(dimension, message, tmp_path):
    (tmp_path / "g.webnn").write_text(HEAD + f"inputs {{ z: f32[\n{dimension}]; }} }}")
    with open_context("cpu", experimental=["dynamic-shapes"]) as context:
        with pytest.raises(GraphFileError) as caught:
            webnn_file.build_operands(tmp_path / "g.webnn", MLGraphBuilder(context))
    assert message in str(caught.value) and caught.value.line in (2, 3)
