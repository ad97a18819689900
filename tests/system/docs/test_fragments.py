"""Snippets that show part of a program also run, with the names that they assume. Every snippet of
the documentation is run by some test."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import webnn_vk
from tests.support import exported_decoder
from tests.support.bridge import BridgedDriver
from tests.support.command_line import affine
from tests.support.commands import blocks
from tests.support.contexts import open_over
from tests.support.drivers import require_vulkan
from tests.support.kompute import require_kompute
from tests.support.paths import ROOT
from tests.system.docs import test_adding, test_guides, test_snippets

DOCS = ROOT / "docs"
#: How many of a page's snippets other tests run, and which tests.
ELSEWHERE = {
    **{
        name: (len(blocks(DOCS / f"{name}.md", "python")), "tests/system/docs/test_guides.py")
        for name in test_guides.FOLLOWED
    },
    "adding-an-operator": (len(test_adding.SNIPPETS), "tests/system/docs/test_adding.py"),
    "distributed": (4, "tests/system/distributed/test_engines.py"),
    "generation": (4, "tests/unit/docs/test_generation.py"),
    "gpu": (2, "tests/system/docs/test_gpu.py"),
    "profiling": (1, "tests/unit/docs/test_profiling.py"),
    "webnn-file": (1, "tests/unit/docs/test_webnn_file.py"),
}
GUIDES = set(test_guides.FOLLOWED)
#: How many snippets of a page run here, after the snippets of the other tests.
HERE = {"drivers": 1, "gpu": 2, "interop": 4, "onnx": 3}


def snippet(page: str, number: int) -> str:
    return blocks(DOCS / f"{page}.md", "python")[number]


class Around(dict[str, Any]):
    """Names available to a snippet: those that it sets, and those that its reader already has, each
    created from the others on first use."""

    def __init__(self, **made: Callable[[Around], Any]) -> None:
        super().__init__()
        self._made = made

    def __missing__(self, name: str) -> Any:
        self[name] = self._made[name](self)
        return self[name]

    def given(self, **names: Any) -> Around:
        """With additional names."""
        self.update(names)
        return self


def run(code: str, around: Around) -> None:
    """Runs a snippet, with `await` as in a notebook."""
    compiled = compile(code, "<snippet>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    result = eval(compiled, {}, around)
    if inspect.iscoroutine(result):
        asyncio.run(result)


def tensor(context: Any, *shape: int) -> Any:
    about = {"data_type": "float32", "shape": list(shape), "readable": True, "writable": True}
    return context.create_tensor(about).result()


def doubled(context: Any, name: str, result: str, *shape: int) -> Any:
    """A graph: result = 2 * name."""
    builder = webnn_vk.MLGraphBuilder(context)
    x = builder.input(name, {"data_type": "float32", "shape": list(shape)})
    return builder.build({result: x * 2}).result()


def test_every_snippet_is_run():
    found = {path.relative_to(DOCS).with_suffix("").as_posix(): len(blocks(path, "python"))
             for path in DOCS.rglob("*.md")}
    whole = {page: len(parts) for page, parts in test_snippets.PAGES.items()}
    parts = {page: ELSEWHERE.get(page, (0,))[0] + HERE.get(page, 0) for page in ELSEWHERE | HERE}
    assert {page: count for page, count in found.items() if count} == {**whole, **parts}
    assert set(parts) == test_snippets.ELSEWHERE
    for page, (_, path) in ELSEWHERE.items():
        named = (f"{page}.md", f'"{page}"')
        assert any(name in (ROOT / path).read_text(encoding="utf-8") for name in named)


def test_no_snippet_is_of_an_unknown_language():
    """A snippet that isn't run is output, a shell command (test_commands), part of a guide
    (test_guides), JavaScript (tests/system/javascript) or not a program."""
    others = {**dict.fromkeys(GUIDES, {"diff", "glsl"}), "javascript": {"js"}}
    for path in DOCS.rglob("*.md"):
        opened = re.findall(r"^```(.*)\n(?:.*\n)*?```$", path.read_text("utf-8"), re.MULTILINE)
        known = {"python", "sh", "text", ""} | others.get(path.stem, set())
        assert set(opened) <= known, path


@pytest.mark.device
def test_kompute(monkeypatch: pytest.MonkeyPatch):
    require_kompute()
    monkeypatch.setenv("WEBNN_VK_DEVICE", "vulkan")
    around = Around(webnn=lambda _: webnn_vk)
    run(snippet("drivers", 0), around)
    with around["context"] as context:
        assert "kompute" in str(context.device_info).lower()


def test_a_tensor_of_a_context_in_a_shader(vulkan):
    from webnn_vk import gpu

    device = gpu.request_adapter().result().request_device().result()
    around = Around(
        webnn_vk=lambda _: webnn_vk, device=lambda _: device,
        graph=lambda a: doubled(a["context"], "image", "scores", 1, 3, 224, 224),
        scores=lambda a: tensor(a["context"], 1, 3, 224, 224),
    )
    run(snippet("gpu", 2), around)
    with around["context"] as context:
        assert not context.read_tensor(around["scores"]).result().any()


def test_semaphores(vulkan):
    """While another context uses a device of its own."""
    from webnn_vk import gpu
    from webnn_vk.driver.vulkan.driver import open_driver

    context, _ = open_over(BridgedDriver)
    around = Around(
        context=lambda _: context, graph=lambda _: doubled(context, "x", "y", 4),
        x=lambda _: tensor(context, 4), y=lambda _: tensor(context, 4),
        tensor=lambda _: tensor(context, 4),
    )
    other = BridgedDriver(open_driver(gpu.request_adapter().result()._physical))
    context.write_tensor(around["x"], np.ones(4, np.float32))
    code = snippet("gpu", 3)
    assert code.count("\n...") == 1
    run(code.replace("\n...", "\ntheirs(semaphore)"), around.given(theirs=their_turn(other)))
    assert context.read_tensor(around["y"]).result(60).tolist() == [4, 4, 4, 4]
    context.destroy()
    other.close()


def their_turn(driver: BridgedDriver) -> Callable[[Any], None]:
    """Work that waits for 1 and then signals 2, on a device of its own."""

    def begin(semaphore: Any) -> None:
        shared = driver.sharing.import_semaphore(semaphore.export_fd())

        def work() -> None:
            if shared.wait(1, 60):
                shared.signal(2)

        threading.Thread(target=work).start()

    return begin


def test_numpy_and_dlpack():
    with webnn_vk.ml.create_context(accelerated=False).result() as context:
        class Torch:
            """The calls that the page makes on a PyTorch tensor."""

            def cpu(self) -> np.ndarray:
                return np.full(4, 3, np.float32)

        around = Around(
            context=lambda _: context, tensor=lambda _: tensor(context, 4), numpy=lambda _: np,
            other=lambda _: tensor(context, 4), graph=lambda _: doubled(context, "x", "y", 4),
            webnn_vk=lambda _: webnn_vk, torch_tensor=lambda _: Torch(),
        )
        run(snippet("interop", 0), around)
        assert context.read_tensor(around["other"]).result().tolist() == [2, 0, 0, 0]
        run(snippet("interop", 1), around)
        assert around["array"].tolist() == [1, 0, 0, 0]
        assert context.read_tensor(around["tensor"]).result().tolist() == [3, 3, 3, 3]


def test_weights_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    np.repeat(np.arange(30522, dtype=np.float32), 384).tofile("model.bin")
    with webnn_vk.ml.create_context(accelerated=False).result() as context:
        builder = webnn_vk.MLGraphBuilder(context)
        around = Around(
            context=lambda _: context, builder=lambda _: builder, numpy=lambda _: np,
            ids=lambda _: builder.constant(np.array([7, 30521], np.int32)),
        )
        run(snippet("interop", 2), around)
        graph = builder.build({"rows": around["rows"]}).result()
        rows = context.compute(graph, {})["rows"]
        assert rows.shape == (2, 384) and rows[:, 0].tolist() == [7, 30521]


@pytest.mark.device
def test_wgpu():
    require_vulkan()
    wgpu = pytest.importorskip("wgpu")
    if not [a for a in wgpu.gpu.enumerate_adapters_sync() if a.info["backend_type"] == "Vulkan"]:
        pytest.skip("wgpu finds no Vulkan adapter")
    around = Around(
        wgpu=lambda _: wgpu, webnn_vk=lambda _: webnn_vk,
        graph=lambda a: doubled(a["context"], "image", "scores", 1, 3, 224, 224),
        scores=lambda a: tensor(a["context"], 1, 3, 224, 224),
    )
    run(snippet("interop", 3), around)
    with around["context"] as context:
        assert not context.read_tensor(around["scores"]).result().any()
    around["device"].destroy()


def test_onnx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WEBNN_VK_DEVICE", "cpu")
    affine(tmp_path / "model.onnx", input="image")

    def operand(around: Around) -> Any:
        builder = webnn_vk.MLGraphBuilder(around["context"])
        return builder.relu(builder.input("x", {"data_type": "float32", "shape": [4]}))

    around = Around(y=operand)
    run(snippet("onnx", 0), around)
    assert around["scores"].shape == (1, 3, 224, 224) and (around["scores"] == 1).all()
    onnx.save(exported_decoder.decoder(), "decoder.onnx")
    sizes = {name: getattr(exported_decoder, name.upper()) for name in ("layers", "size")}
    run(snippet("onnx", 1), around.given(**sizes, heads=exported_decoder.KV, prompt=[3, 17, 5]))
    assert len(around["tokens"]) == 10
    assert around["logits"].shape == (1, 1, exported_decoder.VOCABULARY)
    run(snippet("onnx", 2), around)
    assert [node.op_type for node in around["model"].graph.node] == ["Mul", "Add"]
    assert {"model.onnx", "compiled.onnx", "large.onnx"} <= {p.name for p in tmp_path.iterdir()}
    around["context"].destroy()


def test_the_example_of_a_docstring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    """The only docstring with an example."""
    monkeypatch.chdir(tmp_path)
    text = inspect.getdoc(webnn_vk.MLContext.profile) or ""
    (code,) = re.findall(r"::\n\n((?:    .*\n)+)", text)
    with webnn_vk.ml.create_context(accelerated=False).result() as context:
        run(inspect.cleandoc("\n" + code), Around(
            context=lambda _: context, graph=lambda _: doubled(context, "x", "y", 4),
            inputs=lambda _: {"x": np.ones(4, np.float32)}, print=lambda _: print,
        ))
    assert "mul" in capsys.readouterr().out and (tmp_path / "report.html").is_file()
