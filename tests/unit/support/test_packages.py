"""Extras are complete, and a feature names all of its missing packages at once."""

from __future__ import annotations

import ast
import importlib.metadata
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.support.paths import ROOT
from webnn_vk.support import packages

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]

#: Which features' packages the files of a folder, or a file, may import besides the dependencies.
USES = {
    "webnn_vk/bridge": ("bridge",),
    "webnn_vk/distributed": ("onnx", "ray", "spark"),
    "webnn_vk/generate": ("generation",),
    "webnn_vk/generate/gguf": ("generation", "gguf"),
    "webnn_vk/onnx": ("onnx",),
    "webnn_vk/onnx_backend.py": ("onnx",),
    "webnn_vk/compiler/ir": ("onnx",),
    "webnn_vk/compiler/types/data_types.py": ("low-precision",),
    "webnn_vk/runtime": ("cpu",),
    "webnn_vk/webnn_file": ("weights",),
    "webnn_vk/profiler/pictures": ("pictures",),
    "webnn_vk/tools": ("onnx", "cpu", "ray", "reading"),
    "bench": ("charts", "cpu", "onnx", "ray", "reading", "wgpu"),
    "docs/hooks": ("site",),
    "examples/ray_service.py": ("ray",),
    "examples/sentence_encoder.py": ("search",),
    "examples": ("reading",),
}
#: Imports that no extra has: the file's first lines say so, or it works without them.
BESIDE = {
    "bench/llama_cpp.py": {"gguf", "safetensors"},  # an extra: generate
    "bench/ncnn_decoder.py": {"ncnn", "safetensors"},  # an extra: generate; what is measured
    "bench/ncnn_recurrent.py": {"ncnn"},  # what is measured, where it is installed
    "bench/serving.py": {"tokenizers"},  # an extra: generate
    "bench/gpu/pytorch.py": {"torch"},  # what is measured
    "bench/gpu/session.py": {"pynvml"},  # nvidia-smi is asked without it
    "bench/gpu/stages/decoder.py": {"safetensors"},  # an extra: generate
    "bench/gpu/stages/llama.py": {"gguf"},  # an extra: generate
    "bench/gpu/stages/models.py": {"torchvision", "transformers"},  # what is measured
    "bench/gpu/stages/ort.py": {"workloads"},  # not in this repository
    "bench/gpu/stages/real.py": {"torch", "torchvision", "transformers"},  # the references
    "examples/chat_service.py": {"fastapi", "pydantic", "uvicorn"},
    "examples/docs_decoder/train.py": {"safetensors", "tokenizers", "torch"},
    "examples/service.py": {"fastapi", "pydantic"},
    "webnn_vk/distributed/gpus.py": {"pynvml"},  # in both extras, and asked for when it is needed
    "webnn_vk/distributed/serve.py": {"starlette"},  # of Ray Serve
    "webnn_vk/driver/kompute/binding.py": {"kp"},  # built by scripts/install-kompute
    "webnn_vk/onnx/reading.py": {"google"},  # protobuf, a dependency of onnx
}
DEPENDENCIES = {Requirement(text).name for text in PROJECT["dependencies"]}


def names(requirements: list[str]) -> set[str]:
    """The packages of a list, including our own extras and the packages' requirements."""
    found: set[str] = set()
    for requirement in map(Requirement, requirements):
        if requirement.name == "webnn_vk":
            for extra in requirement.extras:
                found |= names(EXTRAS[extra])
        elif requirement.name not in found:
            found |= {requirement.name, *_needed_by(requirement)}
    return found


def _needed_by(requirement: Requirement) -> set[str]:
    found = set()
    for text in importlib.metadata.requires(requirement.name) or []:
        needed = Requirement(text)
        marker = needed.marker
        if marker is None or any(marker.evaluate({"extra": e}) for e in ("", *requirement.extras)):
            found.add(needed.name)
    return found


@pytest.mark.parametrize("feature", packages.FEATURES)
def test_an_extra_brings_what_its_feature_imports(feature):
    extra, modules = packages.FEATURES[feature]
    lacking = {packages.package_of(module) for module in modules} - names(EXTRAS[extra])
    assert lacking == set()


def test_every_extra_is_in_all():
    assert names(EXTRAS["all"]) == set().union(
        *(names(listed) for extra, listed in EXTRAS.items()
          if extra not in ("all", "dev", "ray", "spark", "test"))  # these two are large
    )


def sources() -> Iterator[tuple[Path, str]]:
    for folder in ("webnn_vk", "codegen", "examples", "bench", "docs/hooks"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path, path.relative_to(ROOT).as_posix()


def foreign(path: Path) -> set[str]:
    """The packages that a file imports anywhere, except Python's own and this one."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            found.add(node.module.split(".")[0])
    return found - set(sys.stdlib_module_names) - {"__future__", "webnn_vk", "bench", "tests"}


def declared(name: str) -> set[str]:
    """The modules that a file may import."""
    (place,) = [p for p in (name, *map(str, Path(name).parents)) if p in USES][:1] or [""]
    features = USES.get(place, ())
    return DEPENDENCIES | BESIDE.get(name, set()) | {
        module.split(".")[0] for feature in features for module in packages.FEATURES[feature][1]
    }


def test_what_is_imported_is_declared():
    files = dict(sources())
    wrong = {name: foreign(path) - declared(name) for path, name in files.items()}
    assert {name: modules for name, modules in wrong.items() if modules} == {}
    # Every line of the tables is still used.
    used = {p for name in files.values() for p in (name, *map(str, Path(name).parents))}
    assert USES.keys() | BESIDE.keys() <= used
    assert all(foreign(ROOT / name) >= modules for name, modules in BESIDE.items())


@pytest.fixture
def absent(monkeypatch):
    """Takes modules away."""

    def take(*modules: str) -> None:
        for module in modules:
            monkeypatch.setitem(sys.modules, module, None)

    return take


def test_all_that_is_missing_is_named_at_once(absent):
    assert packages.problem("this needs", *packages.FEATURES) == ""
    absent("onnx", "fast_sugiyama", "safetensors")
    assert packages.problem("this needs", "onnx") == (
        "this needs the package onnx: pip install 'webnn_vk[onnx]'"
    )
    with pytest.raises(ImportError) as caught:
        packages.require("this needs", "onnx", "pictures", "weights", "wgpu")
    assert str(caught.value) == (
        "this needs the packages onnx, fast-sugiyama and safetensors: "
        "pip install 'webnn_vk[onnx,pictures,webnn]'"
    )


def test_a_part_of_a_package_that_is_missing(absent):
    absent("mkdocstrings_handlers")
    assert packages.missing(["site"]) == ["mkdocstrings-python"]
