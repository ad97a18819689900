"""Builds the archive of precompiled shaders; called by the wheel build (setup.py)."""

from __future__ import annotations

import importlib.util
import itertools
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import jinja2
import numpy

import webnn_vk
from webnn_vk.codegen.compiler import find_compiler, find_knowing, knows
from webnn_vk.codegen.pack import PACK_PATH, Pack
from webnn_vk.codegen.render import SHADERS
from webnn_vk.codegen.spec import KernelSpec
from webnn_vk.codegen.store import MATRIX2_EXTENSION, MATRIX2_TARGET, MATRIX_EXTENSION, build_pack
from webnn_vk.compiler import kernels
from webnn_vk.compiler.kernels.expression import HALF_CONVERSIONS
from webnn_vk.compiler.kernels.norm import SUBGROUPS
from webnn_vk.gpu import nanoseconds
from webnn_vk.profiler import roofline
from webnn_vk.support import source_tree

from . import archive_cache

# Features that determine how a kernel stores its data; devices have any subset of them.
FEATURES = (
    *(frozenset({name}) for name in ("float16", "int8", "int16", "int64", "nan_preserve_f32")),
    HALF_CONVERSIONS,
)
# Devices with cooperative matrices have all features that the kernels with them use.
MATRICES = kernels.MATRIX_FEATURES | {"float16"}
MATRICES2 = MATRICES | kernels.MATRIX2_FEATURES


def specs(matrices: bool = True, matrices2: bool = False) -> list[KernelSpec]:
    """Every unfused kernel for every device, and fused ones that many models have, without repeats.
    ``matrices``: include kernels with cooperative matrices; ``matrices2``: include kernels with
    NV2's, for which few compilers are new enough."""
    distinct: dict[KernelSpec, None] = {}
    for count in range(len(FEATURES) + 1):
        for features in itertools.combinations(FEATURES, count):
            united = frozenset().union(*features)
            distinct.update(dict.fromkeys(kernels.catalogue(united)))
            distinct.update(dict.fromkeys(kernels.common(united)))
    for features in (SUBGROUPS, SUBGROUPS | {"float16"}, frozenset({"integer_dot_product"})):
        distinct.update(dict.fromkeys(kernels.catalogue(features)))
    if matrices:
        distinct.update(dict.fromkeys(kernels.catalogue(MATRICES)))
    if matrices2:
        distinct.update(dict.fromkeys(_of_matrices2()))
    return [*distinct, nanoseconds.spec(), *roofline.specs()]


def _of_matrices2() -> list[KernelSpec]:
    catalogue = kernels.catalogue(MATRICES2)
    return [spec for spec in catalogue if "cooperative_matrix2" in spec.features]


def left_out(matrices: bool, matrices2: bool) -> dict[str, int]:
    """What an archive lacks where compilers don't support cooperative matrices, or NV2's: the
    number of missing modules by template."""
    missing = [] if matrices2 else _of_matrices2()
    if not matrices:
        catalogue = kernels.catalogue(MATRICES)
        missing += [spec for spec in catalogue if "cooperative_matrix" in spec.features]
    return dict(Counter(spec.template for spec in missing))


def _sources() -> dict[str, Path]:
    """The sources of an archive. In a wheel they are in one folder, in a clone side by side."""
    beside = {name: SHADERS.parent / name for name in source_tree.FOLDERS}
    return {"webnn_vk": Path(webnn_vk.__file__).resolve().parent, **beside}


def main(arguments: Sequence[str]) -> int:
    """Write the archive into the folder named by the only argument."""
    (folder,) = arguments
    path = Path(folder) / PACK_PATH.name
    compiler = find_compiler()
    newest = None if compiler is None else find_knowing(MATRIX2_EXTENSION, MATRIX2_TARGET)
    made_with = [f"{library.__name__} {library.__version__}" for library in (jinja2, numpy)]
    made_with += ["none" if c is None else c.version for c in (compiler, newest)]
    made_with.append("lzma" if importlib.util.find_spec("_lzma") else "zlib")
    key = archive_cache.key(_sources(), made_with)
    kept = archive_cache.get(key)
    if kept is not None:
        path.write_bytes(kept)
        path.chmod(0o644)
    else:
        matrices = compiler is not None and knows(compiler, MATRIX_EXTENSION)
        missing = left_out(matrices, newest is not None)
        build_pack(specs(matrices, newest is not None), path, left_out=missing)
        archive_cache.put(key, path.read_bytes())
    pack = Pack(path)
    about = pack.about
    for template, count in about["left_out"].items():
        print(f"left out, as the GLSL compiler is too old: {count} modules of {template}")
    origin = "" if kept is None else f", from the cache {archive_cache.folder()}"
    print(f"{len(pack)} modules, {path.stat().st_size / 1e6:.2f} MB, {about['compiler']}{origin}")
    return 0
