"""The kernels of the archive of precompiled shaders, for a device with given features."""

from __future__ import annotations

from functools import cache

from webnn_vk.codegen.spec import KernelSpec
from webnn_vk.compiler.kernels import all_modules
from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.tools import samples


def _restricted(target: DeviceProfile, features: frozenset[str]) -> DeviceProfile:
    """A target with these of the features that kernels use."""
    return target.masked(samples.FEATURES - features)


def catalogue(features: frozenset[str], *families: str) -> tuple[KernelSpec, ...]:
    """The unfused kernels, of some families or of all, for a device with just these features. To
    plan all takes ten times as long as most families."""
    found: dict[KernelSpec, None] = {}
    for family in families or ("",):
        found |= dict.fromkeys(_kept(features & samples.FEATURES, family))
    return tuple(found)


def planned(features: frozenset[str], family: str) -> tuple[KernelSpec, ...]:
    """The kernels of `catalogue`, planned at each call: also of operators registered since."""
    found: dict[KernelSpec, None] = {}
    for node, targets in samples.problems(family):
        for target in targets:
            found |= dict.fromkeys(all_modules(node, _restricted(target, features)))
    return tuple(found)


_kept = cache(planned)
