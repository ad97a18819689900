"""What is known not to pass: cases of ONNX's backend suite, and vectors in ONNX Runtime.

Their tests fail if an entry passes. docs/onnx.md and docs/cpu-engine.md list them.
"""

from __future__ import annotations

from dataclasses import dataclass

_ROUNDED = (
    "our result is within the tolerance of the exact result; the expected one was rounded in "
    "between"
)


@dataclass(frozen=True)
class Exceptions:
    """Cases within the predicate that don't pass on some devices ("engine" is the CPU device with
    ONNX Runtime), and why."""

    reason: str
    devices: tuple[str, ...]
    suite: str
    names: tuple[str, ...]


#: The complete list: everything else passes on every device. An entry that passes, or doesn't
#: exist, fails tests/conformance/onnx/test_backend.py.
EXCEPTIONS = (
    Exceptions(_ROUNDED, ("cpu", "vulkan"), "node", (
        "test_attention_4d_causal_fp16", "test_attention_4d_causal_fp16_expanded",
    )),
    Exceptions(_ROUNDED, ("cpu", "vulkan", "engine"), "node", (
        "test_dft_inverse", "test_dft_inverse_opset19",
    )),
    Exceptions(
        "as in PyTorch and ONNX Runtime, `align_corners` counts with the new length rounded down; "
        "the expected result counts with the fraction, and has no corner",
        ("cpu", "vulkan", "engine"), "node", (
            "test_resize_downsample_scales_cubic_align_corners",
            "test_resize_downsample_scales_linear_align_corners",
        ),
    ),
)
#: Cases that pass or fail on the CPU device with ONNX Runtime as on ONNX Runtime itself.
AS_ONNX_RUNTIME = {
    ("light", "light_squeezenet"): "all channels are equal (1e10) before a softmax; on some "
    "processors ONNX Runtime rounds them differently",
}
#: Conformance vectors whose exported model ONNX Runtime refuses or computes wrongly, and why. The
#: model itself is right: ONNX's checker and our importer accept it, with the same results.
WRONG_IN_ONNX_RUNTIME = {
    "qdq_subgraph: quantized averagePool2d":
        "its optimiser creates a QLinearAveragePool that it then rejects",
    "subgraph: batchNormalization default + sigmoid":
        "its Sigmoid is constant below -18",
}


def failing(device: str) -> dict[tuple[str, str], str]:
    """The reason why a case, by suite and name, doesn't pass on a device."""
    return {
        (group.suite, name): group.reason
        for group in EXCEPTIONS if device in group.devices for name in group.names
    }
