"""Imports point downward: the layers of the architecture, read from the source."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT

# From the bottom up; a module may import its own layer and those before it.
LAYERS = (
    ("access", "background", "data_types", "device_profile", "errors", "face", "integers",
      "promise", "settings"),
    ("driver",),
    ("ops",),
    ("graph",),
    ("passes",),
    ("kernels",),
    ("program",),
    ("runtime",),
    ("buffers", "device_info", "limits", "context_state", "tensor_state"),
    ("opening",),
    ("gpu",),
    ("interop", "sharing"),
    ("tensor", "ml_graph"),
    ("context",),
    ("arithmetic", "builder"),
    ("navigator", "dlpack_import"),
    ("tools",),
    ("__init__", "__main__"),
)
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
#: Who may import `vulkan/` (the one place that opens a device) and `codegen/`, which stand beside
#: the layers.
USES_VULKAN = {"opening"}
USES_CODEGEN = {"kernels", "program", "runtime", "opening", "gpu", "tools"}


def imports(path: Path, package: str) -> set[str]:
    """Absolute names of the modules that a file imports (type-checking blocks left out)."""
    found = set()
    tree = ast.parse(path.read_text())
    hidden = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in hidden:
            continue
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1]
            module = ".".join([*base, node.module or ""]).strip(".") if node.level else node.module
            found.update(f"{module}.{alias.name}" for alias in node.names)
    return found


def sources():
    for path in sorted((ROOT / "webnn_vk").rglob("*.py")):
        relative = path.relative_to(ROOT).with_suffix("")
        yield path, ".".join(relative.parts), ".".join(relative.parts[:-1])


def allowed(module: str, name: str) -> bool:
    """Whether a module of the package may import a name."""
    own, parts = module.split(".")[1], name.split(".")
    if parts[0] != "webnn_vk" or len(parts) < 2:
        return True
    target = parts[1]
    if own == "vulkan":
        return target in ("vulkan", "device_profile", "driver")
    if target == "vulkan":
        return own in USES_VULKAN
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


def test_the_rule_can_fail(tmp_path):
    path = tmp_path / "x.py"
    path.write_text("from ..runtime import Timeline\nimport webnn_vk.vulkan.driver\n")
    found = {"webnn_vk.runtime.Timeline", "webnn_vk.vulkan.driver"}
    assert imports(path, "webnn_vk.ops") == found
    assert not any(allowed("webnn_vk.ops.unary", name) for name in found)
    assert all(allowed("webnn_vk.opening", name) for name in found)
    assert allowed("webnn_vk.ops.unary", "webnn_vk.data_types.ALL_TYPES")
    assert not allowed("webnn_vk.vulkan.driver", "webnn_vk.settings.Settings")
    assert not allowed("webnn_vk.runtime.timeline", "webnn_vk.vulkan.driver.open_driver")
    assert not allowed("webnn_vk.ops.unary", "webnn_vk.codegen.spec.KernelSpec")
    assert not allowed("webnn_vk.ops.unary", "webnn_vk.of_no_layer")


def test_every_module_has_a_place():
    placed = set(RANK) | {"vulkan"}
    assert {module.split(".")[1] for _, module, _ in sources()} <= placed


def test_codegen_knows_nothing_of_the_rest():
    for path in sorted((ROOT / "codegen").rglob("*.py")):
        names = imports(path, "webnn_vk.codegen")
        assert not [n for n in names if n.startswith("webnn_vk") and ".codegen" not in n], path


@pytest.mark.parametrize("module", ["webnn_vk", "webnn_vk.codegen"])
def test_imports_are_lazy(module):
    code = (
        f"import sys, {module}; "
        "print([m for m in ('numpy', 'vulkan', 'cffi') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
