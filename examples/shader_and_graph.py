"""A compute shader of our own and a graph that work on the same memory.

The shader unpacks an image's bytes into the graph's input tensor, the graph finds edges in it. No
copy of the image is made on the way, and the host waits for the result alone.

    python examples/shader_and_graph.py
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

import webnn_vk as webnn
from webnn_vk import gpu

HEIGHT, WIDTH = 48, 64

# Bytes red, green, blue of each pixel in turn to three planes of numbers from 0 to 1.
UNPACK = """#version 450
layout(local_size_x = 64) in;
layout(push_constant) uniform Size { uint pixels; };
layout(binding = 0) readonly buffer Bytes { uint words[]; };
layout(binding = 1) writeonly buffer Planes { float planes[]; };
void main() {
    uint pixel = gl_GlobalInvocationID.x;
    if (pixel >= pixels) return;
    for (uint channel = 0; channel < 3; channel++) {
        uint at = pixel * 3 + channel;
        uint byte = words[at / 4] >> 8 * (at % 4) & 0xFF;
        planes[channel * pixels + pixel] = float(byte) / 255.0;
    }
}
"""


def edge_graph(context: webnn.MLContext) -> webnn.MLGraph:
    """The length of the brightness' gradient at each pixel."""
    builder = webnn.MLGraphBuilder(context)
    image = builder.input("image", {"data_type": "float32", "shape": [1, 3, HEIGHT, WIDTH]})
    luma = np.array([0.299, 0.587, 0.114], np.float32).reshape(1, 3, 1, 1)
    sobel = np.array([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]], np.float32)
    grey = builder.conv2d(image, builder.constant(luma), label="grey")
    gradients = builder.conv2d(
        grey, builder.constant(np.stack([sobel, sobel.T])[:, None]), padding=[1] * 4, label="sobel"
    )
    edges = builder.reduce_l2(gradients, axes=[1], label="length")
    return builder.build({"edges": edges}).result()


def find_edges(device: gpu.GPUDevice, pixels: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """Edges of an image [HEIGHT, WIDTH, 3], as numbers [HEIGHT, WIDTH]."""
    usage = gpu.GPUBufferUsage.STORAGE
    with webnn.ml.create_context(device).result() as context:
        graph = edge_graph(context)
        image = context.create_exportable_tensor(graph.inputs["image"], device).result()
        result = webnn.MLTensorDescriptor(**graph.outputs["edges"], readable=True)
        edges = context.create_tensor(result).result()

        module = device.create_shader_module(code=UNPACK, label="unpack")
        pipeline = device.create_compute_pipeline(module=module)
        source = device.create_buffer_with_data(data=pixels, usage=usage)
        with context.export_to_gpu(image) as planes:
            encoder = device.create_command_encoder()
            with encoder.begin_compute_pass() as compute:
                compute.set_pipeline(pipeline)
                compute.set_bind_group(0, device.create_bind_group(entries=[source, planes]))
                compute.set_push_constants(np.uint32(HEIGHT * WIDTH).tobytes())
                compute.dispatch_workgroups(-(-HEIGHT * WIDTH // 64))
            device.queue.submit([encoder.finish()])
        # The tensor is the context's again, and its next work comes after the shader's.
        context.dispatch(graph, {"image": image}, {"edges": edges})
        found: npt.NDArray[np.float32] = np.asarray(edges)[0]
        return found


def main() -> npt.NDArray[np.float32]:
    """Find the edges of a bright square on a dark ground."""
    pixels = np.full((HEIGHT, WIDTH, 3), 20, np.uint8)
    pixels[12:36, 16:48] = (250, 200, 120)
    adapter = gpu.request_adapter().result()
    with adapter.request_device().result() as device:
        edges = find_edges(device, pixels)
        print(f"{(edges > 1).sum()} of {edges.size} pixels are edges, by {adapter.info}")
        return edges


if __name__ == "__main__":
    main()
