"""The CNN, the transformer and the shader of `examples/`: their results, and the exact messages for
likely mistakes."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from tests.support.discriminating import assert_allclose
from tests.support.gpu_shaders import needs_compiler
from tests.support.paths import ROOT

PROGRAMS = ("image_classifier", "transformer_encoder", "shader_and_graph")


def test_the_classifier_is_right(program, device):
    assert program("image_classifier").main() >= 0.97


def test_the_encoder_gives_what_numpy_gives(program, device):
    module = program("transformer_encoder")
    weights = module.random_weights(np.random.default_rng(1))
    ids, mask = module.padded([[3, 14, 15, 92, 65], [35, 89, 79, 32, 38, 46, 26, 43], [3, 14]])
    expected = encoded(module, weights, ids, mask)
    assert_allclose(module.main(), expected, rtol=2e-4, atol=2e-5)


def encoded(module, weights, ids, mask):
    """The encoder in NumPy, in float64."""
    weights = {name: array.astype(np.float64) for name, array in weights.items()}

    def normal(x):
        return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)

    def gelu(x):
        from math import erf

        return x * (1 + np.vectorize(erf)(x / np.sqrt(2))) / 2

    def heads(x):
        return x.reshape(len(ids), module.LENGTH, module.HEADS, module.DEPTH).swapaxes(1, 2)

    x = weights["words"][ids] + weights["positions"]
    for layer in range(module.LAYERS):
        query, key, value = (
            heads(normal(x) @ weights[f"{layer}.{name}"]) for name in ("query", "key", "value")
        )
        scores = query @ key.swapaxes(2, 3) / np.sqrt(module.DEPTH)
        scores = np.where(mask[:, None, None, :] > 0, scores, -np.inf)
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        attended = shares / shares.sum(-1, keepdims=True) @ value
        x = x + attended.swapaxes(1, 2).reshape(x.shape) @ weights[f"{layer}.output"]
        x = x + gelu(normal(x) @ weights[f"{layer}.up"]) @ weights[f"{layer}.down"]
    return (x * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)


def test_the_shader_and_the_graph_share_the_image(program, vulkan):
    needs_compiler()
    found = program("shader_and_graph").main()
    pixels = np.full((48, 64, 3), 20.0)
    pixels[12:36, 16:48] = (250, 200, 120)
    grey = np.pad(pixels @ (0.299, 0.587, 0.114) / 255, 1)
    across = grey[:-2] + 2 * grey[1:-1] + grey[2:]
    down = grey[:, :-2] + 2 * grey[:, 1:-1] + grey[:, 2:]
    length = np.hypot(across[:, 2:] - across[:, :-2], down[2:] - down[:-2])
    assert_allclose(found, length, atol=1e-5)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_programs_run_as_scripts(name, vulkan):
    if name == "shader_and_graph":
        needs_compiler()
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / f"{name}.py"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1


MISTAKES = {
    "an image with its channels last": (
        "image_classifier",
        [(".transpose(0, 3, 1, 2)", "")],
        "TypeError: compute: input 'images': float32[50, 16, 16, 3] where float32[50, 3, 16, 16] "
        "is expected; it looks like NHWC for NCHW, or OHWI for OIHW: np.transpose(array, "
        "(0, 3, 1, 2)) has the shape",
    ),
    "bytes for numbers": (
        "image_classifier",
        [(".astype(np.float32) / 127.5 - 1", "")],
        "TypeError: compute: input 'images': elements are uint8, float32 (or bytes) are expected "
        "for float32[50, 3, 16, 16]; given is uint8[50, 3, 16, 16], which "
        "array.astype(np.float32) converts",
    ),
    "filters with their channels last": (
        "image_classifier",
        [("(16, 3, 5, 5)", "(5, 5, 3, 16)")],
        "TypeError: conv2d [conv0]: input is float32[50, 3, 16, 16] (nchw) and filter is "
        "float32[5, 5, 3, 16] (oihw); with 1 groups the filter needs 3 input channels, not 5; "
        'filter_layout="hwio" would fit',
    ),
    "filters of NumPy's own type": (
        "image_classifier",
        [("(16, 3, 5, 5)).astype(np.float32)", "(16, 3, 5, 5))")],
        "TypeError: constant: no operand has elements of float64; array.astype(np.float32), or "
        "another of float32, float16, int32, uint32, int64, uint64, int8, uint8, converts it",
    ),
    "a dimension to be inferred": (
        "image_classifier",
        [("[BATCH, FEATURES]", "[BATCH, -1]")],
        "TypeError: reshape: new_shape[1]: -1 is outside 0 … 4294967295; WebNN infers no "
        "dimension: here it would be 512",
    ),
    "token ids of a tokenizer's type": (
        "transformer_encoder",
        [("np.int32)\n", "np.int64)\n")],
        "TypeError: compute: input 'ids': elements are int64, int32 (or bytes) are expected for "
        "int32[3, 12]; given is int64[3, 12], which array.astype(np.int32) converts",
    ),
    "weights of NumPy's own type": (
        "transformer_encoder",
        [(".astype(np.float32)", "")],
        "TypeError: create_constant_tensor: elements are float64, float32 (or bytes) are expected "
        "for float32[100, 64]; given is float64[100, 64], which array.astype(np.float32) converts",
    ),
    "an axis from the end": (
        "transformer_encoder",
        [("axes=[2]", "axes=[-1]")],
        "TypeError: layer_normalization: axes[0]: -1 is outside 0 … 4294967295; axes count from "
        "0: of <MLOperand add: float32[3, 12, 64]> that is 2",
    ),
    "a batch for another graph": (
        "transformer_encoder",
        [("encoder.build(3)", "encoder.build(2)")],
        "TypeError: compute: input 'ids': int32[3, 12] where int32[2, 12] is expected",
    ),
    "a tensor used while the shader has it": (
        "shader_and_graph",
        [("        context.dispatch", "            context.dispatch"),
         ("        # The tensor", "            # The tensor")],
        "TypeError: dispatch: the tensor float32[1, 3, 48, 64] is held by <GPUBuffer 'MLTensor' "
        "36864 bytes>; release that first",
    ),
    "a result that can't be read": (
        "shader_and_graph",
        [(", readable=True", "")],
        "TypeError: np.asarray: <MLTensor float32[1, 48, 64]> was not created with readable=True",
    ),
    "a shader without its parameters": (
        "shader_and_graph",
        [("compute.set_push_constants(np.uint32(HEIGHT * WIDTH).tobytes())", "pass")],
        "ValueError: dispatch_workgroups: <GPUComputePipeline of <GPUShaderModule 'unpack' "
        "bindings {0: 'r', 1: 'w'}>> needs set_push_constants first",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes(program, mistake, monkeypatch, request):
    name, edits, message = MISTAKES[mistake]
    monkeypatch.setenv("WEBNN_VK_DEVICE", "cpu")
    if name == "shader_and_graph":
        request.getfixturevalue("vulkan")
        needs_compiler()
    with pytest.raises(Exception) as caught:
        program(name, *edits).main()
    assert f"{type(caught.value).__name__}: {caught.value}" == message
