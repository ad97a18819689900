"""Thousands of damaged files: an error that says so, or a graph; nothing else, and with little
work."""

import random
import shutil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import selection
from tests.support.counting import calls_of
from tests.support.graphs import graph_input, graph_of
from webnn_vk import webnn_file
from webnn_vk.api.builder import ShapeBuilder
from webnn_vk.compiler.ir import Emitter
from webnn_vk.webnn_file import GraphFileError, weights
from webnn_vk.webnn_file.writing import document

HEAD = b"""\
webnn_graph "g" v2 @quantized {
  inputs { image: f32[dyn("n", 4), 3, 8, 8]; ids: i64[5]; h: f32[2, 4]; }
  consts { b: f32[2] @bytes([0, 0, 0, 64, 0, 0, 0, 65]); half: f32[] @scalar(0.5); }
  nodes { y = add(h, half, label="stem"); [left, right] = split(y, splits=2, axis=0);
"""


def seeds(folder):
    """Pairs of text and weights that contain every construct."""
    rng = np.random.default_rng(3)

    def constant(*shape):
        return emit.constant(rng.normal(size=shape).astype(np.float32))

    emit = Emitter()
    image, ids = graph_input("image:0", (2, 3, 8, 8)), graph_input("ids", (5,), "int64")
    h = graph_input("h", (2, 4))
    y = emit.relu(emit.conv2d(image, constant(4, 3, 3, 3), bias=constant(4), padding=[1] * 4))
    parts = emit.split(y, [1, 3], axis=1, label='the "parts"')
    table = emit.constant(rng.normal(size=(7, 20)).astype(np.float16))
    picked = emit.cast(emit.gather(table, ids), "float32")
    cell = emit.gru_cell(h, constant(12, 4), constant(12, 4), h, 4, bias=constant(12))
    outputs = {
        "left": parts[0], "right": emit.concat([parts[1], parts[0]], 1), "picked": picked,
        "h": emit.clamp(cell, min_value=-np.inf, max_value=2.5), "again": picked,
    }
    graph = graph_of(emit, outputs, image, ids, h)
    text, arrays = document(graph, "seed")
    weights.write(folder / "seed.safetensors", arrays)
    return text.encode(), (folder / "seed.safetensors").read_bytes()


@pytest.fixture(scope="module")
def seed(tmp_path_factory):
    return seeds(tmp_path_factory.mktemp("seed"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("fuzz")
    yield path
    shutil.rmtree(path)


def attempt(folder, text, archive) -> bool:
    """Whether the files make a graph; any error except GraphFileError is a failure."""
    (folder / "g.webnn").write_bytes(text)
    (folder / "g.safetensors").write_bytes(archive)
    taken = False

    def build():
        nonlocal taken
        try:
            webnn_file.build_operands(folder / "g.webnn", ShapeBuilder())
            taken = True
        except GraphFileError as error:
            assert len(str(error)) < 2000 and str(error).isprintable()

    # The undamaged files take 10,000 calls.
    assert calls_of(build) < 100_000
    return taken


#: Building blocks of a text.
TOKENS = [
    b"{", b"}", b"[", b"]", b"(", b")", b",", b";", b"=", b":", b'"', b"\\", b"#", b"\n", b"@",
    b"-", b".", b"e9", b"0", b"4294967296", b"99999999999999999999", b"1e400", b"null",
    b"true", b"nan", b"dyn(\"n\", 3)", b"@scalar(", b"@bytes([", b"@weights(", b"inputs {",
    b"consts {", b"nodes {",
    b"outputs {", b"f32[", b"i4[", b"left", b"split(", b"\xff", b"\0", "\u202e".encode(),
    b"#webnn_vk: ", b"label=", b"axis=", b"metadata={",
]


def damaged(data: bytes, rng: random.Random) -> bytes:
    """A few changes of the kinds that damage files."""
    made = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4, 16))):
        at = rng.randrange(len(made) + 1)
        other = min(len(made), at + rng.choice((1, 2, 8, 40, 300)))
        match rng.randrange(7):
            case 0 | 1 if at < len(made):
                made[at] ^= 1 << rng.randrange(8)
            case 2:
                del made[at:other]
            case 3:
                made[at:at] = rng.choice(TOKENS)
            case 4:
                made[at:other] = rng.choice(TOKENS)
            case 5:
                made[at:at] = made[at:other]
            case 6:
                del made[at:]
    return bytes(made)


def test_damaged_texts_and_weights(seed, folder, request):
    text, archive = seed
    assert attempt(folder, text, archive)
    rng = selection.chance("damaged texts")
    taken = 0
    count = 4_000 if request.config.option.explore else 800
    for i in range(count):
        # Only damage to the header of the weights matters.
        end = 8 + int.from_bytes(archive[:8], "little")
        if i % 3:
            taken += attempt(folder, damaged(text, rng), archive)
        else:
            taken += attempt(folder, text, damaged(archive[:end], rng) + archive[end:])
    # Some damage is harmless (labels, names, numbers); most is not.
    assert 0 < taken < count / 2


@given(data=st.data())
@settings(max_examples=max(200, settings.default.max_examples))
def test_texts_of_odd_tokens(data, folder):
    tokens = data.draw(st.lists(st.sampled_from(TOKENS) | st.binary(max_size=4), max_size=40))
    head = data.draw(st.sampled_from((b"", b'webnn_graph "g" v1 {', HEAD)))
    attempt(folder, head + b" ".join(tokens), b"")


@given(cut=st.integers(0, 10**6))
def test_truncated_weights(cut, seed, folder):
    text, archive = seed
    assert not attempt(folder, text, archive[: cut % len(archive)])


def test_every_line_left_out(seed, folder):
    text, archive = seed
    lines = text.splitlines(keepends=True)
    for i in range(len(lines)):
        attempt(folder, b"".join(lines[:i] + lines[i + 1 :]), archive)
