"""Makes the pack of precompiled SPIR-V; called by the wheel build (setup.py)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

from webnn_vk import kernels
from webnn_vk.codegen.pack import PACK_PATH
from webnn_vk.codegen.spec import KernelSpec
from webnn_vk.codegen.store import build_pack
from webnn_vk.gpu import nanoseconds
from webnn_vk.profiler import roofline

# What decides how a kernel stores its data; devices have any subset of them.
FEATURES = ("float16", "int8", "int16", "int64", "nan_preserve_f32")


def specs() -> list[KernelSpec]:
    """Every unfused kernel for every device, and the fused ones that many models have, without
    repeats."""
    distinct: dict[KernelSpec, None] = {}
    for count in range(len(FEATURES) + 1):
        for features in itertools.combinations(FEATURES, count):
            distinct.update(dict.fromkeys(kernels.catalogue(frozenset(features))))
            distinct.update(dict.fromkeys(kernels.common(frozenset(features))))
    return [*distinct, nanoseconds.spec(), *roofline.specs()]


def main(arguments: Sequence[str]) -> int:
    """Write the pack into the folder named by the one argument."""
    (folder,) = arguments
    stats = build_pack(specs(), Path(folder) / PACK_PATH.name)
    print(f"{stats.modules} modules, {stats.size / 1e6:.2f} MB, {stats.compiler}")
    return 0
