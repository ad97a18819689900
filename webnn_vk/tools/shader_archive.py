"""Builds the archive of precompiled shaders, which holds the modules that are planned for samples.
Called by the wheel build (setup.py)."""

from __future__ import annotations

import importlib.util
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import jinja2
import numpy

import webnn_vk
from webnn_vk.codegen.archive import ARCHIVE_PATH, ShaderArchive
from webnn_vk.codegen.compiler import find_compiler, supports
from webnn_vk.codegen.spec import KernelSpec
from webnn_vk.codegen.store import MATRIX_EXTENSION, ShaderUnavailable, build_pack
from webnn_vk.codegen.template_files import SHADERS
from webnn_vk.compiler.kernels import KernelNode, all_modules
from webnn_vk.compiler.kernels.fusion import fuse
from webnn_vk.compiler.kernels.lower import kernelize
from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.gpu import nanoseconds
from webnn_vk.profiler import roofline
from webnn_vk.support import source_tree

from . import archive_cache, samples


def specs(matrices: bool = True) -> list[KernelSpec]:
    """The kernels of every sample, without repeats: unfused ones for every device, and the fused
    ones that many models have. ``matrices``: those with cooperative matrices too."""
    found = [spec for spec in _planned() if matrices or not _by_matrices(spec)]
    return [*found, nanoseconds.spec(), *roofline.specs()]


def left_out(matrices: bool) -> dict[str, int]:
    """The number of modules that an archive lacks, by template. ``matrices``: whether the compiler
    supports cooperative matrices."""
    return {} if matrices else dict(Counter(s.template for s in _planned() if _by_matrices(s)))


@cache
def _planned() -> tuple[KernelSpec, ...]:
    found: dict[KernelSpec, None] = {}
    for node, targets in samples.problems():
        for target in targets:
            found |= dict.fromkeys(_modules(node, target))
    for graph in samples.chains():
        for target in samples.FUSED_TARGETS:
            for node in fuse(kernelize(graph), target).nodes:
                found |= dict.fromkeys(_modules(node, target))
    return tuple(found)


def _modules(node: KernelNode, target: DeviceProfile) -> Iterator[KernelSpec]:
    """The modules that can compute a node on the target, and on the target without any of the
    optional features that they use."""
    tried: set[frozenset[str]] = set()
    waiting = [target.features]
    while waiting:
        features = waiting.pop()
        if features in tried:
            continue
        tried.add(features)
        made = list(all_modules(node, target.replace(features=features)))
        yield from made
        used = frozenset().union(*(spec.features for spec in made))
        waiting += [features - some for some in samples.OPTIONAL if some <= used]


def _by_matrices(spec: KernelSpec) -> bool:
    return "cooperative_matrix" in spec.features


def _sources() -> dict[str, Path]:
    """The sources of an archive. In a wheel they are in one folder, in a clone side by side."""
    beside = {name: SHADERS.parent / name for name in source_tree.FOLDERS}
    return {"webnn_vk": Path(webnn_vk.__file__).resolve().parent, **beside}


def main(arguments: Sequence[str]) -> int:
    """Write the archive into the folder named by the only argument."""
    (folder,) = arguments
    path = Path(folder) / ARCHIVE_PATH.name
    compiler = find_compiler()
    made_with = [f"{library.__name__} {library.__version__}" for library in (jinja2, numpy)]
    made_with.append("none" if compiler is None else compiler.version)
    made_with.append("lzma" if importlib.util.find_spec("_lzma") else "zlib")
    key = archive_cache.key(_sources(), made_with)
    kept = archive_cache.get(key)
    if kept is not None:
        path.write_bytes(kept)
        path.chmod(0o644)
    elif compiler is None:
        raise ShaderUnavailable("no GLSL compiler")
    else:
        matrices = supports(compiler, MATRIX_EXTENSION)
        build_pack(specs(matrices), path, left_out=left_out(matrices))
        archive_cache.put(key, path.read_bytes())
    pack = ShaderArchive(path)
    about = pack.about
    for template, count in about["left_out"].items():
        print(f"left out, as the GLSL compiler is too old: {count} modules of {template}")
    origin = "" if kept is None else f", from the cache {archive_cache.folder()}"
    print(f"{len(pack)} modules, {path.stat().st_size / 1e6:.2f} MB, {about['compiler']}{origin}")
    return 0
