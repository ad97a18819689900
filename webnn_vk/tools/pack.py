"""Makes the pack of precompiled SPIR-V; called by the wheel build (setup.py)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

from webnn_vk import kernels
from webnn_vk.codegen.compiler import find_compiler, knows
from webnn_vk.codegen.pack import PACK_PATH
from webnn_vk.codegen.spec import KernelSpec
from webnn_vk.codegen.store import MATRIX_EXTENSION, build_pack
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


def specs(matrices: bool = True) -> list[KernelSpec]:
    """Every unfused kernel for every device, and the fused ones that many models have, without
    repeats. ``matrices``: those with cooperative matrices too."""
    distinct: dict[KernelSpec, None] = {}
    for count in range(len(FEATURES) + 1):
        for features in itertools.combinations(FEATURES, count):
            united = frozenset().union(*features)
            distinct.update(dict.fromkeys(kernels.catalogue(united)))
            distinct.update(dict.fromkeys(kernels.common(united)))
    for features in (SUBGROUPS, SUBGROUPS | {"float16"}):
        distinct.update(dict.fromkeys(kernels.catalogue(features)))
    if matrices:
        distinct.update(dict.fromkeys(kernels.catalogue(MATRICES)))
    return [*distinct, nanoseconds.spec(), *roofline.specs()]


def main(arguments: Sequence[str]) -> int:
    """Write the pack into the folder named by the one argument."""
    (folder,) = arguments
    compiler = find_compiler()
    matrices = compiler is not None and knows(compiler, MATRIX_EXTENSION)
    stats = build_pack(specs(matrices), Path(folder) / PACK_PATH.name, compiler)
    if not matrices:
        print("without cooperative matrices, which this GLSL compiler doesn't know")
    print(f"{stats.modules} modules, {stats.size / 1e6:.2f} MB, {stats.compiler}")
    return 0
