"""Imports point downward: the layers of the architecture, read from the source."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter

import pytest

import webnn_vk
from tests.support.imports import import_graph, imports, modules, parsed
from tests.support.paths import ROOT

#: From the bottom up: a module may import its own folder and those before it. Modules beside the
#: package's folders are named individually.
LAYERS = (
    "support", "driver",
    "compiler.types", "compiler.ops", "compiler.ir", "compiler.passes", "compiler.kernels",
    "compiler.program",
    "runtime", "gpu", "profiler", "api", "onnx", "webnn_file", "generate", "distributed", "bridge",
    "onnx_backend", "typing", "examples", "tools", "__init__", "__main__",
)
#: Modules that users import by name besides `webnn_vk` itself.
PUBLIC_PACKAGES = ("distributed", "generate", "gpu", "onnx", "typing")
#: Implementations of the driver interface. Only the module that opens devices imports them.
DRIVERS = ("driver.vulkan", "driver.kompute", "driver.null")
OPENS_DRIVERS = "runtime.device_selection"
#: The lowest folder that may import ``codegen/``.
USES_CODEGEN = "compiler.kernels"


def sources():
    """Path, module and package of each source of the package; ``examples/`` is a part of it."""
    for folder, prefix in (("webnn_vk", ()), ("examples", ("webnn_vk",))):
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = (*prefix, *path.relative_to(ROOT).with_suffix("").parts)
            yield path, ".".join(parts), ".".join(parts[:-1])


def test_no_property_holds_a_lock():
    """A fork could find functools.cached_property's locked (`webnn_vk.support.cached_property`)."""
    paths = [path for folder in ("webnn_vk", "codegen") for path in (ROOT / folder).rglob("*.py")]
    assert len(paths) > 300
    found = [
        path.name for path in paths
        if re.search(r"functools\.cached_property\b(?!``)|from functools import .*cached_property",
                     path.read_text(encoding="utf-8"))
    ]
    assert found == []


def layer(name: str) -> str:
    """The layer of a module or of a name in it: "compiler.ops" for webnn_vk.compiler.ops.unary."""
    parts = name.split(".")[1:]
    return ".".join(parts[: 2 if parts[0] == "compiler" else 1])


def allowed(module: str, name: str) -> bool:
    """Whether a module of the package may import a name."""
    parts = name.split(".")
    if parts[0] != "webnn_vk" or len(parts) < 2:
        return True
    own, target = layer(module), layer(name)
    if own == "examples":
        return target in ("examples", *PUBLIC_PACKAGES, *webnn_vk.__all__)
    if target == "codegen":
        return own == "codegen" or LAYERS.index(own) >= LAYERS.index(USES_CODEGEN)
    if own == "codegen":
        return target == "support"
    driver = next((d for d in DRIVERS if name.startswith(f"webnn_vk.{d}.")), None)
    if driver is not None:
        return module.startswith((f"webnn_vk.{driver}", f"webnn_vk.{OPENS_DRIVERS}"))
    if target not in LAYERS:  # a name of the package itself
        return target in webnn_vk.__all__ or target.startswith("__") or own == "tools"
    return LAYERS.index(target) <= LAYERS.index(own)


def test_imports_point_down():
    wrong = [
        f"{module} imports {name}"
        for path, module, package in sources()
        for name in imports(path, package)
        if not allowed(module, name)
    ]
    assert wrong == []


FOLDERS = [name.replace(".", "/") for name in ("compiler", *LAYERS)]


@pytest.mark.parametrize("folder", [f for f in FOLDERS if (ROOT / "webnn_vk" / f).is_dir()])
def test_every_folder_says_what_it_may_import(folder):
    """In the docstring of its ``__init__``, as docs/architecture.md and the layers above do."""
    tree = ast.parse((ROOT / "webnn_vk" / folder / "__init__.py").read_text(encoding="utf-8"))
    assert re.search(r"\b([Ii]mport(s|ing)?)\b", ast.get_docstring(tree) or ""), folder


def test_no_circle_of_modules():
    graph = import_graph()
    assert len(graph) > 100
    # The package itself loads names on first use (PEP 562).
    graph.pop("webnn_vk")
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail("circle: " + " → ".join(reversed(error.args[1])))


def test_a_circle_is_found():
    graph = import_graph()
    graph["webnn_vk.support.errors"].add("webnn_vk.api.context")
    with pytest.raises(CycleError):
        TopologicalSorter(graph).prepare()


def private_definitions(tree: ast.AST) -> set[str]:
    """Names that a module defines, attributes of ``self`` and ``cls`` included."""
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
    return defined


def private_reads(tree: ast.AST, defined: set[str]) -> Iterator[str]:
    """Attributes with an underscore, read from objects other than ``self`` and ``cls``, that are
    not among those defined."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr not in defined:
            own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            private = node.attr.startswith("_") and not node.attr.startswith("__")
            if private and not own and ast.unparse(node) != "os._exit":
                yield f"{node.lineno}: {ast.unparse(node)}"


def test_private_attributes_are_read_within_a_folder_only():
    trees = {name: parsed(path) for name, path in modules().items()}
    defined: dict[str, set[str]] = {}
    for name, tree in trees.items():
        if "." in name:
            defined.setdefault(layer(name), set()).update(private_definitions(tree))
    wrong = [
        f"{name}:{read}"
        for name, tree in trees.items()
        for read in private_reads(tree, defined[layer(name)] if "." in name else set())
    ]
    assert wrong == []


def test_private_reads_are_found():
    text = "class A:\n    def f(self, b):\n        self._x = b._x\n        return b.c._y, b._f()\n"
    tree = ast.parse(text)
    assert list(private_reads(tree, private_definitions(tree))) == ["4: b.c._y", "4: b._f"]


def test_the_rule_can_fail(tmp_path):
    path = tmp_path / "x.py"
    path.write_text(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ...runtime import Timeline\n"
        "def f():\n    import webnn_vk.driver.vulkan.driver\n"
    )
    found = {"webnn_vk.runtime.Timeline", "webnn_vk.driver.vulkan.driver"}
    assert imports(path, "webnn_vk.compiler.ops") == {*found, "typing.TYPE_CHECKING"}
    assert not any(allowed("webnn_vk.compiler.ops.unary", name) for name in found)
    assert all(allowed("webnn_vk.runtime.device_selection", name) for name in found)
    assert allowed("webnn_vk.compiler.ops.unary", "webnn_vk.compiler.types.data_types.ALL_TYPES")
    assert not allowed("webnn_vk.driver.vulkan.driver", "webnn_vk.compiler.ops.OPERATORS")
    assert not allowed("webnn_vk.runtime.timeline", "webnn_vk.driver.vulkan.driver.open_driver")
    assert not allowed("webnn_vk.runtime.timeline", "webnn_vk.driver.kompute.driver.open_driver")
    assert not allowed("webnn_vk.driver.kompute.driver", "webnn_vk.driver.vulkan.snapshot")
    assert not allowed("webnn_vk.compiler.ops.unary", "webnn_vk.codegen.spec.KernelSpec")
    assert not allowed("webnn_vk.compiler.ops.unary", "webnn_vk.of_no_layer")
    assert allowed("webnn_vk.tools.demo", "webnn_vk.examples.sentence_encoder.load_model")
    assert not allowed("webnn_vk.api.navigator", "webnn_vk.examples.sentence_encoder.load_model")
    assert allowed("webnn_vk.examples.sentence_encoder", "webnn_vk.MLGraphBuilder")
    assert allowed("webnn_vk.examples.shader_and_graph", "webnn_vk.gpu.GPUDevice")
    assert not allowed("webnn_vk.examples.sentence_encoder", "webnn_vk.tools.ToolError")
    assert not allowed("webnn_vk.examples.sentence_encoder", "webnn_vk.api.builder.MLGraphBuilder")


def test_every_module_has_a_place():
    assert {layer(module) for _, module, _ in sources()} - {"compiler.__init__"} == set(LAYERS)


def test_hardly_a_module_stands_beside_the_folders():
    assert len(list((ROOT / "webnn_vk").glob("*.py"))) <= 6


def test_codegen_imports_support_only():
    names = {
        name for path in sorted((ROOT / "codegen").rglob("*.py"))
        for name in imports(path, "webnn_vk.codegen")
    }
    wrong = {n for n in names if not allowed("webnn_vk.codegen.x", n)}
    assert len(names) > 50 and wrong == set()
    assert not allowed("webnn_vk.codegen.x", "webnn_vk.driver.device_profile")


def test_the_environment_is_read_in_one_place():
    readers = [name for name, path in modules().items()
               if re.search(r"\b(environ|getenv)\b", path.read_text())]
    assert readers == ["webnn_vk.support.environment"]


@pytest.mark.parametrize("module", ["webnn_vk", "webnn_vk.codegen"])
def test_imports_are_lazy(module):
    code = (
        f"import sys, {module}; "
        "print([m for m in ('numpy', 'vulkan', 'cffi') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_build_loads_what_it_needs():
    """A model starts without the modules for profiles, GPU objects and CPU steps: each is loaded by
    the call that needs it."""
    needless = (
        "gpu.adapter", "gpu.encoder", "ir.to_onnx", "onnx_engine", "pictures", "profiler.report",
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


def test_reading_an_onnx_file_loads_what_it_needs():
    """Sessions, exports, messages and references are loaded by the call that needs them."""
    needless = (
        "difflib", "html.entities", "numpy.polynomial", "webnn_vk.compiler.ir.to_onnx",
        "webnn_vk.onnx.exporting", "webnn_vk.onnx.session",
    )
    code = f"""
import sys, webnn_vk
context = webnn_vk.ml.create_context(driver="null").result()
from webnn_vk.onnx import load
loaded = lambda: [name for name in {needless!r} if name in sys.modules]
print(loaded())
from webnn_vk.onnx import Session, export
print(loaded())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", str(list(needless[3:]))]
