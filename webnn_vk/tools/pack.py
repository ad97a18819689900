"""Makes the pack of precompiled SPIR-V; called by the wheel build (setup.py)."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from webnn_vk import kernels
from webnn_vk.codegen.compiler import find_compiler, find_knowing, knows
from webnn_vk.codegen.pack import PACK_PATH
from webnn_vk.codegen.spec import KernelSpec
from webnn_vk.codegen.store import (
    MATRIX2_EXTENSION,
    MATRIX2_TARGET,
    MATRIX_EXTENSION,
    build_pack,
)
from webnn_vk.gpu import nanoseconds
from webnn_vk.kernels.expression import HALF_CONVERSIONS
from webnn_vk.kernels.norm import SUBGROUPS
from webnn_vk.profiler import roofline

# What decides how a kernel stores its data; devices have any subset of them.
FEATURES = (
    *(frozenset({name}) for name in ("float16", "int8", "int16", "int64", "nan_preserve_f32")),
    HALF_CONVERSIONS,
)
# Devices with cooperative matrices have all that the kernels with them use.
MATRICES = kernels.MATRIX_FEATURES | {"float16"}
MATRICES2 = MATRICES | kernels.MATRIX2_FEATURES


def specs(matrices: bool = True, matrices2: bool = False) -> list[KernelSpec]:
    """Every unfused kernel for every device, and the fused ones that many models have, without
    repeats. ``matrices``: those with cooperative matrices too; ``matrices2``: those with NV2's, for
    which few compilers are new enough."""
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
    """What a pack lacks where compilers know no cooperative matrices, or none of NV2: how many
    modules of which template."""
    missing = [] if matrices2 else _of_matrices2()
    if not matrices:
        catalogue = kernels.catalogue(MATRICES)
        missing += [spec for spec in catalogue if "cooperative_matrix" in spec.features]
    return dict(Counter(spec.template for spec in missing))


def main(arguments: Sequence[str]) -> int:
    """Write the pack into the folder named by the one argument."""
    (folder,) = arguments
    compiler = find_compiler()
    matrices = compiler is not None and knows(compiler, MATRIX_EXTENSION)
    matrices2 = compiler is not None and (
        find_knowing(MATRIX2_EXTENSION, MATRIX2_TARGET) is not None
    )
    missing = left_out(matrices, matrices2)
    stats = build_pack(
        specs(matrices, matrices2), Path(folder) / PACK_PATH.name, left_out=missing
    )
    for template, count in missing.items():
        print(f"left out, for want of a newer GLSL compiler: {count} modules of {template}")
    print(f"{stats.modules} modules, {stats.size / 1e6:.2f} MB, {stats.compiler}")
    return 0
