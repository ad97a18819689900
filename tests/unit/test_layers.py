"""Imports point downward: the layers of the architecture, read from the source."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter

import pytest

import webnn_vk
from tests.support.imports import import_graph, imports, modules
from tests.support.paths import ROOT

# From the bottom up; a module may import its own layer and those before it.
LAYERS = (
    ("cached", "environment", "forks", "headroom", "packages", "pages", "parallel",
     "source_tree"),
    ("errors", "gate"),
    ("access", "background", "data_types", "device_profile", "face", "integers", "notices",
     "promise", "settings"),
    ("driver",),
    ("ops",),
    ("graph",),
    ("passes",),
    ("kernels",),
    ("program",),
    ("runtime",),
    ("tuning",),
    ("buffers", "device_info", "limits"),
    ("context_state",),
    ("tensor_state",),
    ("opening",),
    ("gpu",),
    ("interop",),
    ("sharing",),
    ("tensor",),
    ("ml_graph",),
    ("computing",),
    ("saved_graphs",),
    ("graph_making", "tensor_making"),
    ("pictures",),
    ("profiler",),
    ("context",),
    ("arithmetic",),
    ("builder", "dlpack_import"),
    ("readback",),
    ("navigator",),
    ("typing",),
    ("onnx", "webnn_file"),
    ("onnx_backend",),
    ("examples",),
    ("tools",),
    ("__init__", "__main__"),
)
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
#: What users import by name beside `webnn_vk` itself.
PUBLIC_PACKAGES = ("gpu", "onnx", "typing")
#: Implementations of the driver interface, who may import them (the one place that opens a device),
#: and who may import `codegen/`: all of them stand beside the layers.
DRIVERS = ("vulkan", "kompute", "null")
USES_DRIVERS = {"opening"}
USES_CODEGEN = {
    "kernels", "program", "runtime", "opening", "gpu", "tools", "saved_graphs", "graph_making",
    "profiler", "tuning",
}


def sources():
    """Path, module and package of each source of the package; ``examples/`` is a part of it."""
    for folder, prefix in (("webnn_vk", ()), ("examples", ("webnn_vk",))):
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = (*prefix, *path.relative_to(ROOT).with_suffix("").parts)
            yield path, ".".join(parts), ".".join(parts[:-1])


def allowed(module: str, name: str) -> bool:
    """Whether a module of the package may import a name."""
    own, parts = module.split(".")[1], name.split(".")
    if parts[0] != "webnn_vk" or len(parts) < 2:
        return True
    target = parts[1]
    if own == "examples":
        return target in ("examples", *PUBLIC_PACKAGES, *webnn_vk.__all__)
    if own in DRIVERS:
        return target in (
            own, "device_profile", "driver", "environment", "forks", "parallel",
        )
    if target in DRIVERS:
        return own in USES_DRIVERS
    if target == "codegen":
        return own in USES_CODEGEN
    if target in RANK:
        return RANK[target] <= RANK[own]
    return target.startswith("__") or own == "tools"


def test_imports_point_down():
    wrong = [
        f"{module} imports {name}"
        for path, module, package in sources()
        for name in imports(path, package)
        if not allowed(module, name)
    ]
    assert wrong == []


def test_no_circle_of_modules():
    graph = import_graph()
    assert len(graph) > 100
    # The package itself loads names when they are asked for (PEP 562).
    graph.pop("webnn_vk")
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail("circle: " + " → ".join(reversed(error.args[1])))


def test_a_circle_is_found():
    graph = import_graph()
    graph["webnn_vk.errors"].add("webnn_vk.context")
    with pytest.raises(CycleError):
        TopologicalSorter(graph).prepare()


def private_reads(tree: ast.AST) -> Iterator[str]:
    """Attributes with an underscore that are read of something else than ``self`` and ``cls`` and
    that nothing in the same module defines."""
    defined = set()
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name):
                defined.add(name)
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                defined.add(name)
            case ast.AnnAssign(target=ast.Name(id=name)):
                defined.add(name)
            case ast.Assign(targets=targets):
                defined.update(t.id for t in targets if isinstance(t, ast.Name))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr not in defined:
            own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            if node.attr.startswith("_") and not node.attr.startswith("__") and not own:
                yield f"{node.lineno}: {ast.unparse(node)}"


def test_nobody_reads_another_module_s_private_attributes():
    wrong = [
        f"{name}:{read}"
        for name, path in modules().items()
        for read in private_reads(ast.parse(path.read_text()))
    ]
    assert wrong == []


def test_private_reads_are_found():
    text = "class A:\n    def f(self, b):\n        self._x = b._x\n        return b.c._y, b._f()\n"
    assert list(private_reads(ast.parse(text))) == ["4: b.c._y", "4: b._f"]


def test_the_rule_can_fail(tmp_path):
    path = tmp_path / "x.py"
    path.write_text(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ..runtime import Timeline\n"
        "def f():\n    import webnn_vk.vulkan.driver\n"
    )
    found = {"webnn_vk.runtime.Timeline", "webnn_vk.vulkan.driver"}
    assert imports(path, "webnn_vk.ops") == {*found, "typing.TYPE_CHECKING"}
    assert not any(allowed("webnn_vk.ops.unary", name) for name in found)
    assert all(allowed("webnn_vk.opening", name) for name in found)
    assert allowed("webnn_vk.ops.unary", "webnn_vk.data_types.ALL_TYPES")
    assert not allowed("webnn_vk.vulkan.driver", "webnn_vk.settings.Settings")
    assert not allowed("webnn_vk.runtime.timeline", "webnn_vk.vulkan.driver.open_driver")
    assert not allowed("webnn_vk.runtime.timeline", "webnn_vk.kompute.driver.open_driver")
    assert not allowed("webnn_vk.kompute.driver", "webnn_vk.vulkan.snapshot")
    assert not allowed("webnn_vk.ops.unary", "webnn_vk.codegen.spec.KernelSpec")
    assert not allowed("webnn_vk.ops.unary", "webnn_vk.of_no_layer")
    assert allowed("webnn_vk.tools.demo", "webnn_vk.examples.sentence_encoder.load_model")
    assert not allowed("webnn_vk.navigator", "webnn_vk.examples.sentence_encoder.load_model")
    assert allowed("webnn_vk.examples.sentence_encoder", "webnn_vk.MLGraphBuilder")
    assert allowed("webnn_vk.examples.shader_and_graph", "webnn_vk.gpu.GPUDevice")
    assert not allowed("webnn_vk.examples.sentence_encoder", "webnn_vk.tools.ToolError")
    assert not allowed("webnn_vk.examples.sentence_encoder", "webnn_vk.builder.MLGraphBuilder")


def test_every_module_has_a_place():
    placed = set(RANK) | set(DRIVERS)
    assert {module.split(".")[1] for _, module, _ in sources()} <= placed


def test_codegen_knows_nothing_of_the_rest():
    files = sorted((ROOT / "codegen").rglob("*.py"))
    assert len(files) > 10
    for path in files:
        names = imports(path, "webnn_vk.codegen")
        others = [n for n in names if n.startswith("webnn_vk") and ".codegen" not in n]
        assert set(others) <= {
            "webnn_vk.environment", "webnn_vk.forks", "webnn_vk.parallel",
        }, path


def test_the_environment_is_read_in_one_place():
    readers = [name for name, path in modules().items()
               if re.search(r"\b(environ|getenv)\b", path.read_text())]
    assert readers == ["webnn_vk.environment"]


@pytest.mark.parametrize("module", ["webnn_vk", "webnn_vk.codegen"])
def test_imports_are_lazy(module):
    code = (
        f"import sys, {module}; "
        "print([m for m in ('numpy', 'vulkan', 'cffi') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_build_loads_what_it_needs():
    """A model starts without what only profiles, GPU objects and CPU steps need: each is loaded by
    the call that wants it."""
    needless = (
        "gpu.adapter", "gpu.encoder", "graph.to_onnx", "onnx_engine", "pictures", "profiler.report",
    )
    code = f"""
import sys, webnn_vk
needless = {needless!r}
loaded = lambda: [n for n in needless if any(m.endswith(n) for m in sys.modules)]
context = webnn_vk.ml.create_context(driver="null").result()
builder = webnn_vk.MLGraphBuilder(context)
x = builder.input("x", {{"data_type": "float32", "shape": [8]}})
graph = builder.build({{"y": builder.relu(x)}}).result()
print([line.device for line in graph.report().steps], loaded())
context.profile()
print(loaded())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["['vulkan'] []", "['pictures', 'profiler.report']"]
