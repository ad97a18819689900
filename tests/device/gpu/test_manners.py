"""How the objects appear in interactive use: dir(), reprs, HTML."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.gpu_shaders import ALL, SCALE
from webnn_vk import gpu

pytestmark = pytest.mark.usefixtures("compiler")


@pytest.fixture
def objects(adapter: Any, device: Any) -> dict[str, Any]:
    """One of each kind, by its repr."""
    buffer = device.create_buffer(size=512, usage=ALL, label="a <b>")
    module = device.create_shader_module(code=SCALE, label="scale")
    pipeline = device.create_compute_pipeline(module=module, constants={0: 64})
    group = device.create_bind_group(entries=[buffer])
    encoder = device.create_command_encoder(label="work")
    with encoder.begin_compute_pass() as compute:
        pass
    command = encoder.finish()
    module_text = "<GPUShaderModule 'scale' bindings {0: 'r', 1: 'w'}>"
    made = {
        f"<GPUAdapter {adapter.info}>": adapter,
        f"<GPUDevice {adapter.info.name}>": device,
        f"<GPUQueue of <GPUDevice {adapter.info.name}>>": device.queue,
        "<GPUBuffer 'a <b>' 512 bytes>": buffer,
        module_text: module,
        f"<GPUComputePipeline of {module_text}>": pipeline,
        "<GPUBindGroup bindings [0]>": group,
        "<GPUCommandEncoder 'work' finished>": encoder,
        "<GPUComputePass ended>": compute,
        "<GPUCommandBuffer 'work' over 0 buffers>": command,
    }
    if "timestamp-query" in device.features:
        queries = device.create_query_set(type="timestamp", count=2)
        made["<GPUQuerySet of 2 timestamps>"] = queries
    return made


def test_reprs_are_short(objects: dict[str, Any]) -> None:
    for expected, thing in objects.items():
        assert repr(thing) == expected and len(expected) < 160


def test_dir_is_free_of_internals(objects: dict[str, Any]) -> None:
    for thing in objects.values():
        names = dir(thing)
        assert not [n for n in names if n.startswith("_") and not n.endswith("__")], thing
        ours = [c for c in type(thing).__mro__ if c.__module__.startswith("webnn_vk")]
        own = {n for c in ours for n in vars(c) if not n.startswith("_")}
        assert own and own <= set(names)
    kinds = {type(thing).__name__ for thing in objects.values()}
    others = {"GPUBufferBinding", "GPUBufferUsage", "GPUComputePassTimestampWrites",
              "GPUDeviceLostInfo", "GPUSemaphore"}
    made = {name for name in gpu.__all__ if name.startswith("GPU")}
    assert kinds | {"GPUQuerySet"} | others == made


def test_html_for_notebooks(objects: dict[str, Any], adapter: Any, device: Any) -> None:
    shown = {
        type(thing).__name__: thing._repr_html_()
        for thing in objects.values() if hasattr(thing, "_repr_html_")
    }
    for html in shown.values():
        assert html.startswith("<table>") and html.count("<tr>") == html.count("</tr>") > 0
    assert "<td>a &lt;b&gt;</td>" in shown["GPUBuffer"] and "<b>" not in shown["GPUBuffer"]
    assert "<td>STORAGE</td>" not in shown["GPUBuffer"] and "STORAGE" in shown["GPUBuffer"]
    assert "max_buffer_size" in shown["GPUDevice"] and "<td>no</td>" in shown["GPUDevice"]
    assert shown["GPUAdapter"] == adapter.info._repr_html_()
    gone = device.create_buffer(size=4, usage=ALL)
    gone.destroy()
    assert "<td>destroyed</td>" in gone._repr_html_()
