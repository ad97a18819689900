"""Models with weights of 4 and 8 bits beside an independent implementation with the same numbers,
which the package ``gguf`` rounds."""

from __future__ import annotations

import os
import subprocess
import sys

import gguf
import numpy as np
import pytest

from tests.support.built_archive import built_archive, kernels_of
from tests.support.discriminating import assert_allclose
from tests.support.gguf_files import WIDE, Kind, write_gguf
from tests.support.paths import ROOT
from tests.support.reference_decoder import CONFIGS, logits, random_weights, write_folder
from webnn_vk import MLContext, MLGraphBuilder
from webnn_vk.api.builder import graph_of
from webnn_vk.compiler.program import Target, compile_program
from webnn_vk.generate import Model
from webnn_vk.generate.gguf.blocks import BLOCK_TYPES

#: Largest difference of logits, beside the largest logit.
BOUND = 2e-5
#: Mean difference (of squares) from the logits of the float weights, beside their deviation:
#: weights are random, of one distribution, and rows are short.
ROUNDING = {"int4": 0.7, "int8": 0.06}
KINDS = {"int4": Kind.Q4_0, "int8": Kind.Q8_0}
IDS = np.random.default_rng(6).integers(0, 40, 40).tolist()


def rounded(weights, kind):
    """The weights with all matrices but position tables rounded. Rows are filled up with zeros to
    whole blocks; of GPT-2's products, columns are."""
    made = {}
    for name, array in weights.items():
        if array.ndim != 2 or name.endswith("wpe.weight"):
            made[name] = array
            continue
        own = array.T if ".c_" in name else array
        filled = np.pad(own, ((0, 0), (0, -own.shape[1] % 32)))
        back = gguf.dequantize(gguf.quantize(filled, kind), kind)[:, : own.shape[1]]
        made[name] = back.T if ".c_" in name else back
    return made


def assert_close(result, expected):
    assert_allclose(result, expected, rtol=0, atol=BOUND * np.abs(expected).max())


@pytest.mark.sample(0.5)
@pytest.mark.parametrize(("name", "dtype"), [
    ("llama", "int4"), ("llama3", "int8"), ("qwen2", "int4"), ("qwen3", "int8"), ("gpt2", "int4"),
    ("gpt2", "int8"),
])
def test_rounded_folders(context: MLContext, tmp_path, name, dtype):
    """With tied and untied tables, biases, and rows that are no whole blocks."""
    config, weights = CONFIGS[name], random_weights(CONFIGS[name], 1)
    write_folder(tmp_path, config, weights)
    model = Model.load(tmp_path, context, dtype=dtype)
    assert model.dtype == dtype
    expected = logits(config, rounded(weights, KINDS[dtype]), IDS)
    assert_close(model.logits(IDS), expected)
    assert len(model.generate_tokens(IDS, 8)) == 8
    exact = logits(config, weights, IDS)
    difference = np.sqrt(np.square(expected - exact).mean()) / exact.std()
    assert 0.05 * ROUNDING[dtype] < difference < ROUNDING[dtype]


@pytest.mark.sample(0.5)
@pytest.mark.parametrize("kind", sorted(BLOCK_TYPES))
def test_types_of_files_stay_as_they_are(context: MLContext, tmp_path, kind):
    kept = write_gguf(tmp_path / "m.gguf", WIDE, random_weights(WIDE, 1), Kind[kind])
    model = Model.load(tmp_path / "m.gguf", context)
    assert_close(model.logits(IDS), logits(WIDE, kept, IDS))
    if context.device_info.is_vulkan:
        assert "block_matmul" in {o for s in model.report().steps for o in s.operators}


def test_a_file_and_a_folder_rounded_alike(context: MLContext, tmp_path):
    """llama.cpp's rounding and ours give the same logits, bit by bit."""
    weights = random_weights(WIDE, 1)
    write_folder(tmp_path / "folder", WIDE, weights)
    for dtype, kind in KINDS.items():
        write_gguf(tmp_path / "m.gguf", WIDE, weights, kind)
        made = [
            Model.load(tmp_path / "m.gguf", context).logits(IDS),
            Model.load(tmp_path / "folder", context, dtype=dtype).logits(IDS),
        ]
        np.testing.assert_array_equal(*made)


def test_types_of_one_product_may_differ(context: MLContext, tmp_path):
    """Queries, keys and values, and a bias; as in files that mix types by tensor."""
    config = {**WIDE, "attention_bias": True}
    weights = random_weights(config, 1)
    mixed = {"q_proj": Kind.Q4_0, "k_proj": Kind.F32, "v_proj": Kind.Q8_0}
    kept = write_gguf(
        tmp_path / "m.gguf", config, weights,
        lambda name: next((k for part, k in mixed.items() if part in name), Kind.Q4_1),
    )
    model = Model.load(tmp_path / "m.gguf", context)
    assert_close(model.logits(IDS), logits(config, kept, IDS))


def test_the_type_that_is_asked_for(cpu_context: MLContext, tmp_path):
    """Floats on request; of more bits than asked for, matrices are rounded again."""
    weights = random_weights(WIDE, 1)
    kept = write_gguf(tmp_path / "m.gguf", WIDE, weights, Kind.Q8_0)
    for dtype, numbers in (
        ("float32", kept), ("int8", kept), ("int4", rounded(kept, Kind.Q4_0)),
    ):
        model = Model.load(tmp_path / "m.gguf", cpu_context, dtype=dtype)
        assert_close(model.logits(IDS), logits(WIDE, numbers, IDS))
    with pytest.raises(ValueError, match="dtype is 'int2'; one of float32, float16, int4, int8"):
        Model.load(tmp_path / "m.gguf", cpu_context, dtype="int2")


@pytest.mark.parametrize("kind", [Kind.Q4_0, Kind.Q4_1, Kind.Q8_0])
def test_memory(context: MLContext, tmp_path, kind):
    """Constants take as many bytes as the file, + 10 %, in the graphs of one token and of many
    together: no float form, and nothing twice."""
    config = {**WIDE, "vocab_size": 4000, "tie_word_embeddings": True}
    if not context.device_info.is_vulkan:
        pytest.skip("the CPU device computes with floats")
    path = tmp_path / "m.gguf"
    write_gguf(path, config, random_weights(config, 1), kind)
    model = Model.load(path, context, context_length=64)
    tensors, most = {}, 0
    for tokens in (1, 16):
        builder = MLGraphBuilder(context)
        outputs, _ = model._engine.decoder.outputs(builder, tokens, every=False)
        graph = graph_of(outputs)
        inline = sum(
            v.descriptor.byte_length for node in graph.nodes for v in dict.fromkeys(node.inputs)
            if v.data is not None
        )
        most = max(most, inline)
        tensors |= {
            v.source: v.descriptor.byte_length for node in graph.nodes for v in node.inputs
            if v.source is not None
        }
    assert sum(tensors.values()) + most <= 1.1 * path.stat().st_size


_PROCESS = """
import math, sys
from tests.support import host_memory
if sys.argv[2] == "counted":
    host_memory.start()
import webnn_vk
from webnn_vk.generate import Model

def peak():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmHWM"))

context = webnn_vk.ml.create_context().result()
assert context.device_info.is_vulkan
if sys.argv[2] == "counted":
    held = host_memory.held()
    host_memory.begin_peak()
model = Model.load(sys.argv[1], context, context_length=512)
assert len(model.generate_tokens(range(9), 2)) == 2
decoder = model._engine.decoder
print(len(decoder.names()) * math.prod(decoder.cache_shape()) * 4)
if sys.argv[2] == "counted":
    print(host_memory.peak() - held, context._state.device.memory_in_use())
else:
    print(peak(), 0)
"""


@pytest.mark.full
@pytest.mark.parametrize(("way", "room"), [
    ("counted", 160e6), pytest.param("resident", 200e6, marks=pytest.mark.explore),
])
@pytest.mark.parametrize("form", [pytest.param("folder", marks=pytest.mark.explore), "Q8_0"])
def test_memory_of_a_process(vulkan_context: MLContext, tmp_path, form, way, room):
    """The most that a process has had, by what it asked for or as the system counts it: the file
    and 10 %, the cache, and some room, of which uploads stage 64 MiB. lavapipe's device memory is
    this memory too. The driver's cache has the kernels, whatever ran before: a first process takes
    12 MB more for its compiler."""
    if way == "resident" and not sys.platform.startswith("linux"):
        pytest.skip("/proc")
    config = {
        **WIDE, "vocab_size": 8000, "hidden_size": 1024, "intermediate_size": 3072,
        "tie_word_embeddings": True, "num_hidden_layers": 2 if form == "folder" else 5,
    }
    weights, path = random_weights(config, 1), tmp_path / "m.gguf"
    if form == "folder":
        write_folder(tmp_path, config, weights)
        size = (tmp_path / "model.safetensors").stat().st_size
    else:
        write_gguf(path, config, weights, Kind[form])
        size = path.stat().st_size
    assert size > 60e6
    del weights
    for _ in range(1 + (way == "resident")):
        done = subprocess.run(
            [sys.executable, "-c", _PROCESS, str(tmp_path if form == "folder" else path), way],
            cwd=ROOT, capture_output=True, text=True, check=False,
            # The validation layer has memory of its own.
            env=os.environ | {"WEBNN_VK_DEVICE": "vulkan", "WEBNN_VK_VALIDATE": "0"},
        )
        assert done.returncode == 0, done.stderr
    cache, host, device = map(int, done.stdout.split())
    assert host + device <= 1.1 * size + cache + room, (
        f"host {host / 1e6:.0f} MB, device {device / 1e6:.0f} MB, file {size / 1e6:.0f} MB"
    )


def test_gpus_read_packed_weights(context: MLContext, tmp_path):
    """Compiled for a GPU, by one kernel each, in the graphs of one token and of many."""
    from tests.support.profiles import stored_profile

    if not context.device_info.is_vulkan:
        pytest.skip("the CPU device computes with floats")
    write_folder(tmp_path, WIDE, random_weights(WIDE, 1))
    decoder = Model.load(tmp_path, context, dtype="int4", context_length=64)._engine.decoder
    for tokens, kernel in ((1, "matvec_blocks"), (128, "matmul_tiled")):
        builder = MLGraphBuilder(context)
        outputs, _ = decoder.outputs(builder, tokens, every=True)
        program, _ = compile_program(graph_of(outputs), Target(stored_profile("nvidia_ampere")))
        kernels = [s.kernel for s in program.report.steps if "block_matmul" in s.operators]
        assert kernels == [kernel] * (4 * WIDE["num_hidden_layers"] + 1)


@pytest.mark.full
@pytest.mark.parametrize(
    ("dtype", "activations"), [
        pytest.param(None, None, marks=pytest.mark.explore),
        pytest.param("int4", None, marks=pytest.mark.explore), ("int4", "float16"),
    ]
)
def test_without_a_compiler(context: MLContext, tmp_path, dtype, activations):
    """The shader archive has the kernels of weights in panels and of packed ones."""
    from tests.support.profiles import stored_profile

    if not context.device_info.is_vulkan:
        pytest.skip("the CPU device computes with floats")
    write_folder(tmp_path, WIDE, random_weights(WIDE, 1))
    model = Model.load(tmp_path, context, dtype, context_length=64, activations=activations)
    decoder, known = model._engine.decoder, kernels_of(built_archive(tmp_path))
    for profile in map(stored_profile, ("nvidia_ampere", "llvmpipe")):
        for tokens in (1, 128):
            builder = MLGraphBuilder(context)
            outputs, _ = decoder.outputs(builder, tokens, every=True)
            target = Target(profile, available=known, has_compiler=False)
            program, _ = compile_program(graph_of(outputs), target)
            operators = [o for step in program.report.steps for o in step.operators]
            products = [o for o in operators if o in ("block_matmul", "matmul", "gemm")]
            assert len(products) == 4 * WIDE["num_hidden_layers"] + 1
            assert (dtype == "int4") == ("block_matmul" in products)
            assert program.report.count("cpu") == 0
