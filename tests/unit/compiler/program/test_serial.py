"""Programs written to files and read again, and files that the library never wrote."""

from __future__ import annotations

import json
import zlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import webnn_vk
from tests.support import models
from tests.support.graphs import graph_input, graph_of
from tests.support.packing import Transposed, show
from tests.support.profiles import stored_profile
from tests.support.program_text import describe
from tests.support.saving import save_program as save
from webnn_vk import Settings
from webnn_vk.compiler.ir import Emitter, Value
from webnn_vk.compiler.kernels.dispatch import Packed
from webnn_vk.compiler.program import Target, compile_program
from webnn_vk.compiler.program.assemble import assemble
from webnn_vk.compiler.program.constants import FileRange
from webnn_vk.compiler.program.serial import DATA, TEXT, load
from webnn_vk.compiler.types.data_types import MLOperandDescriptor

PROFILE = stored_profile("nvidia_ampere")


def small(**target: Any):
    """A program with constants, a copy, CPU steps (infinite arguments among them) and a split."""
    emit = Emitter()
    a = graph_input("a", (2, 6))
    c = emit.constant(np.arange(12, dtype=np.float32).reshape(2, 6))
    low, high = emit.split(emit.add(emit.tanh(a), c), 2, axis=1)
    y = emit.clamp(emit.concat([low, high], 1), min_value=float("-inf"), max_value=3.5)
    z = emit.reduce_sum(emit.mul(y, c), axes=[1])
    graph = graph_of(emit, {"y": y, "z": z, "again": y}, a)
    return compile_program(graph, replace(Target(PROFILE), **target))


def packed():
    data = np.arange(20, dtype=np.float32).reshape(4, 5)
    value = Value(MLOperandDescriptor("float32", (4, 5)), data=data)
    forms = [Packed(value, Transposed(2, True))]
    return assemble(show(PROFILE, forms, [value]), PROFILE)


@pytest.fixture(scope="module")
def recurrent():
    with webnn_vk.ml.create_context(settings=Settings(device="cpu")).result() as context:
        graph = models.lstm(context)
    return compile_program(graph, Target(PROFILE))


def returned(program, constants, folder):
    save(program, constants, folder)
    saved = load(folder)
    assert saved.modules == dict.fromkeys(program.kernels, b"")
    return saved.program, saved.constants


@pytest.mark.parametrize(
    "make",
    [small, packed, lambda: small(force_cpu=("clamp", "concat")), lambda: small(profile=None)],
    ids=["device", "packed", "mixed", "cpu"],
)
def test_what_is_written_is_read(make, tmp_path):
    program, constants = make()
    again, store = returned(program, constants, tmp_path)
    without_times = replace(program.report, build_seconds={})
    assert again == replace(program, report=without_times)
    assert len(store) == len(constants)
    for number in range(len(store)):
        assert isinstance(store[number], FileRange)
        np.testing.assert_array_equal(store.read(number), constants.read(number))
    assert describe(again) == describe(program)


def test_a_recurrent_graph(recurrent, tmp_path):
    program, _ = returned(*recurrent, tmp_path)
    assert describe(program) == describe(recurrent[0])
    # Large constants begin at pages.
    text = json.loads((tmp_path / TEXT).read_text())
    assert all(offset % 4096 == 0 for *_, offset, length in text["constants"] if length >= 4096)


def test_constants_that_are_gone_or_elsewhere(tmp_path):
    program, constants = small()
    constants.release(0)
    with pytest.raises(LookupError, match="constant 0 was released"):
        save(program, constants, tmp_path)
    value = Value(MLOperandDescriptor("float32", (4,)), source="a tensor's memory")
    emit = Emitter()
    a = graph_input("a", (4,))
    graph = graph_of(emit, {"y": emit.add(a, value)}, a)
    program, constants = compile_program(graph, Target(PROFILE))
    data = np.arange(4, dtype=np.float32).view(np.uint8)
    save(program, constants, tmp_path, fetch={"a tensor's memory": data}.__getitem__)
    store = load(tmp_path).constants
    np.testing.assert_array_equal(store.read(0), data)


def places(data: Any, path: tuple[Any, ...] = ()):
    """Every position in a JSON value, including the value itself."""
    yield path
    if isinstance(data, dict):
        for key in data:
            yield from places(data[key], (*path, key))
    elif isinstance(data, list):
        for i, item in enumerate(data):
            yield from places(item, (*path, i))


def at(data: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        data = data[key]
    return data


WRONG = [None, True, -1, 2**40, 1.5, "x", "", [], {}, [[]], "../../etc/passwd"]


@pytest.mark.parametrize("kind", ["mixed", "packed"])
def test_a_file_with_anything_changed_is_read_or_refused(kind, tmp_path):
    """Every position of the file replaced by wrong values: a ValueError, or a valid program."""
    program, constants = packed() if kind == "packed" else small(force_cpu=("clamp", "concat"))
    save(program, constants, tmp_path)
    original = (tmp_path / TEXT).read_text()
    refused = accepted = 0
    for path in places(json.loads(original)):
        for number, wrong in enumerate(WRONG):
            # Each of the many deeply nested positions gets one.
            if len(path) > 2 and number != zlib.crc32(repr(path).encode()) % len(WRONG):
                continue
            data = json.loads(original)
            if path:
                at(data, path[:-1])[path[-1]] = wrong
            else:
                data = wrong
            (tmp_path / TEXT).write_text(json.dumps(data))
            try:
                load(tmp_path)
                accepted += 1
            except ValueError:
                refused += 1
    # Texts of reports and figures may be anything of their type.
    assert refused > 5 * accepted > 0


def test_refusals_say_why(tmp_path):
    save(*small(force_cpu=("clamp",)), tmp_path)
    original = json.loads((tmp_path / TEXT).read_text())

    def refuse(change, message):
        data = json.loads(json.dumps(original))
        change(data)
        (tmp_path / TEXT).write_text(json.dumps(data))
        with pytest.raises(ValueError, match=message):
            load(tmp_path)

    def step(data, kind):
        return next(s for _, steps in data["segments"] for s in steps if s[0] == kind)

    def output(data):
        return next(slot for slot in data["slots"] if slot[0] == "output")

    refuse(lambda d: d.update(version=1), "version 1; 7 is what this reads")
    refuse(lambda d: d.update(format="other"), "is no webnn_vk program")
    refuse(lambda d: d.pop("slots"), "KeyError: 'slots'")
    refuse(lambda d: step(d, "dispatch")[4][0].__setitem__(2, 1 << 20), "leaves slot")
    refuse(lambda d: step(d, "dispatch")[4].pop(), "ranges, . are needed")
    refuse(lambda d: step(d, "dispatch").__setitem__(1, 99), "there is no kernel 99")
    refuse(lambda d: step(d, "dispatch")[5].__setitem__(0, 0), "groups")
    refuse(lambda d: step(d, "operator").__setitem__(1, "eval"), "no operator is called 'eval'")
    refuse(lambda d: step(d, "operator")[2].pop("min_value"), "takes the arguments")
    refuse(lambda d: step(d, "operator")[4][0].__setitem__(2, [6, 2]), "other results")
    refuse(lambda d: output(d).__setitem__(1, 1 << 20), r"slot \d+ \(output\) leaves its")
    refuse(lambda d: output(d).__setitem__(2, "nothing"), "no tensor is called 'nothing'")
    refuse(lambda d: d["arenas"].clear(), "no arena 0")
    refuse(lambda d: d["segments"].pop(), "nothing writes the outputs")
    refuse(lambda d: d["kernels"][0].__setitem__("template", "../x.j2"), "template")
    refuse(lambda d: d["kernels"][0]["features"].append("magic"), "features magic")
    refuse(lambda d: d["constants"][0].__setitem__(2, 1 << 30), f"{DATA} of .* bytes has no")
    refuse(lambda d: d.pop("compiled"), "KeyError: 'compiled'")
    refuse(lambda d: d["compiled"].update(graph=1), "1 in .* is no str")
    refuse(lambda d: d["compiled"].update(originals=[[[99, ""]]]), "refers to other constants")
    refuse(lambda d: d["compiled"].update(originals=[[[0, 1]]]), "1 in .* is no str")
    (tmp_path / TEXT).write_text("[" * 100_000)
    with pytest.raises(ValueError):
        load(tmp_path)
    (tmp_path / TEXT).write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError):
        load(tmp_path)


def texels():
    """A product on a device that reads it through uniform texel buffers."""
    emit = Emitter()
    a, b = graph_input("a", (16, 64)), graph_input("b", (64, 64))
    graph = graph_of(emit, {"y": emit.matmul(a, b)}, a, b)
    return compile_program(graph, Target(stored_profile("llvmpipe")))


def test_texel_buffers_stay_texel_buffers(tmp_path):
    program, constants = texels()
    loaded, _ = returned(program, constants, tmp_path)
    (kernel,) = loaded.kernels
    assert kernel.texels == ((0, "rgba32f"), (1, "rgba32f"))
    assert "a:float32:rx4 by texel" in describe(loaded)


def test_texels_begin_and_end_with_a_texel(tmp_path):
    program, constants = texels()
    save(program, constants, tmp_path)
    text = json.loads((tmp_path / TEXT).read_text())
    step = next(s for _, steps in text["segments"] for s in steps if s[0] == "dispatch")
    for offset, size in ((0, 4095), (8, 4080)):
        step[4][0][1:] = offset, size
        (tmp_path / TEXT).write_text(json.dumps(text))
        with pytest.raises(ValueError, match="is no range of rgba32f texels"):
            load(tmp_path)
    step[4][0][1:] = 16, 4080
    (tmp_path / TEXT).write_text(json.dumps(text))
    load(tmp_path)
