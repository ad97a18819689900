"""Steps that recordings lack: a GPUDevice and its buffers, and limits."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.conformance.wpt import suite

#: Adds one to each number of a buffer, into another buffer; 16-bit numbers two by two.
_INCREMENT = {
    "Float32Array": ("float", "a[i] + 1.0"),
    "Float16Array": ("uint", "packHalf2x16(unpackHalf2x16(a[i]) + 1.0)"),
}
_CODE = """#version 450
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer A {{ {kind} a[]; }};
layout(binding = 1) writeonly buffer B {{ {kind} b[]; }};
void main() {{ uint i = gl_GlobalInvocationID.x; if (i < a.length()) b[i] = {value}; }}
"""


def gpu_device(replay: Any, step: dict[str, Any]) -> None:
    from webnn_vk import gpu

    adapter = gpu.request_adapter(power_preference=step["gpuDevice"]).result(60)
    replay.ids[step["out"]] = device = adapter.request_device().result(60)
    replay.contexts.append(device)


def increment(replay: Any, step: dict[str, Any]) -> None:
    from tests.support.gpu_shaders import encode, pipeline

    device, (source, target) = replay.ids[step["on"]], (replay.ids[n] for n in step["increment"])
    kind, value = _INCREMENT[step["as"]]
    made = pipeline(device, _CODE.format(kind=kind, value=value))
    groups = -(-source.size // 4 // 64)
    device.queue.submit([encode(device, (made, [source, target], b"", groups))])


def found_in_buffer(replay: Any, step: dict[str, Any], data_type: Any) -> np.ndarray:
    from tests.support.gpu_shaders import contents

    return contents(replay.ids[step["on"]], replay.ids[step["expectBuffer"]], data_type)


def types(replay: Any, step: dict[str, Any]) -> list[str]:
    """The data types that a context allows for an operand of an operator."""
    operator, operand = step["types"].split(".")
    limits = replay.ids[step["of"]].op_support_limits()
    return list(limits[suite.snake(operator)][suite.snake(operand)]["data_types"])
