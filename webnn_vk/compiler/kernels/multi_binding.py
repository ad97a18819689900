"""Binding whole tensors for kernels that address all of them, and the dispatch of such a kernel.

Where a tensor exceeds what one descriptor may span, it is bound in portions, each by a descriptor
of its own; the shader picks the portion of each element it loads or stores.

Blocks (``parts``) can't take the place of portions: one invocation reads a row, a window or all
keys, which may be longer than a binding. Nor can portions take the place of blocks: each number of
portions is another module, and an element-wise kernel of eight operands would need more descriptors
than small devices have. Gathers and scatters, whose addresses come from data, run once for each
combination of blocks for the same reason: the shader archive has only modules with one portion, and
without a GLSL compiler they would leave the device.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from webnn_vk.codegen.spec import Buffer, Constant
from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.integers import VECTOR_BYTES, padded

from ..types.access import Access
from ..types.data_types import DATA_TYPES
from .dispatch import Binding, Dispatch, Scratch, Unsupported, declared, grid
from .epilogue import Epilogue
from .loads import read_buffer
from .node import KernelNode
from .parts import bind_range, byte_length, memory, ranges


@dataclass(frozen=True)
class Bound:
    """A buffer of a KernelSpec with what a Dispatch needs for it."""

    buffer: Buffer
    bindings: tuple[Binding, ...]
    constants: dict[str, int]

    def in_vectors(self) -> Bound:
        """The same, loaded and stored 4 elements at a time."""
        return replace(self, buffer=replace(self.buffer, width=4))


def bound(
    name: str,
    target: Access | Scratch,
    profile: DeviceProfile,
    access: str = "r",
    data_type: str | None = None,
    width: int = 1,
    texels: int = 0,
) -> Bound:
    """All of a tensor as the kernel's buffer ``name``, in portions where needed. ``data_type``: of
    the elements in the shader where it differs from the tensor's. ``width``: elements that the
    shader loads and stores at once.
    ``texels``: up to how many bytes it is read as texels where it can be (``loads.texel_bytes``).

    Unsupported when a tensor needs more portions than a kernel can have.
    """
    data_type = data_type or target.data_type
    value = memory(target)
    size = padded(byte_length(value))
    if access == "r" and data_type == "float32" and size <= texels:
        return Bound(Buffer(name, data_type, width=4, load="texel"), (Binding(value),), {})
    portions = [*ranges(size, 1, profile, 256)]
    step = portions[0].count
    if len(portions) > 64:
        raise Unsupported(f"{size} bytes in bindings of {step}: more than 64 of them")
    return Bound(
        Buffer(name, data_type, access, width, len(portions)),
        tuple(bind_range(value, profile, portion, 1) for portion in portions),
        {f"PORTION_{name}": step // DATA_TYPES[data_type].size} if len(portions) > 1 else {},
    )


def unread(
    name: str, data_type: str, other: Access | Scratch, width: int = 1, texels: int = 0
) -> Bound:
    """A buffer that the kernel declares but does not read this time. Something has to be bound to
    it: the first bytes of ``other``. ``width`` and ``texels`` as for ``bound``."""
    buffer = read_buffer(name, data_type, VECTOR_BYTES, texels, width)
    return Bound(buffer, (Binding(memory(other), 0, VECTOR_BYTES),), {})


def check_bindings(count: int, what: str, profile: DeviceProfile) -> None:
    """Unsupported when a kernel needs more descriptors than the device offers."""
    limit = min(profile.max_storage_buffers_per_stage, profile.max_storage_buffers_per_set)
    if count > limit:
        raise Unsupported(f"{what} needs {count} storage buffers; the device offers {limit}")


def total_bytes(bindings: Iterable[Binding]) -> int:
    """Bytes of the tensors bound, each counted once: what a kernel moves at least."""
    return sum(map(byte_length, {b.value: None for b in bindings}))


_constant = cache(Constant)
#: The specialisation constants that every module has.
_SIZE = ("LX", "LY", "LZ")


def dispatch(
    node: KernelNode,
    template: str,
    operands: Sequence[Bound],
    epilogue: Epilogue,
    groups: int,
    params: Mapping[str, Any],
    constants: Mapping[str, int],
    profile: DeviceProfile,
    options: Iterable[tuple[str, Any]] = (),
    *,
    kernel: str = "",
    variant: str = "",
    flops: int = 0,
    types: Mapping[str, str] | None = None,
    texels: bool = False,
) -> Dispatch:
    """The dispatch of a kernel whose buffers are the ``operands``, then the epilogue's. ``params``,
    ``constants``, ``options`` and ``flops`` describe the kernel without the epilogue. The module of
    the ``template`` declares what they name; ``types``: of the parameters that are not unsigned
    integers. ``kernel``: the name in reports, if that is not the template's. ``texels``: see
    ``Epilogue.spec``."""
    spec = epilogue.spec(
        template, [o.buffer for o in operands], declared(params, types), profile.features,
        tuple(_constant(name) for name in constants if name not in _SIZE), options,
        texels=texels,
    )
    check_bindings(spec.binding_count, node.title, profile)
    bindings = (*(b for o in operands for b in o.bindings), *epilogue.bindings)
    portion_sizes = {name: size for o in operands for name, size in o.constants.items()}
    return Dispatch(
        spec,
        bindings,
        grid(groups, profile),
        {**params, **epilogue.values},
        {**constants, **portion_sizes},
        kernel or template,
        variant,
        flops + epilogue.flops,
        total_bytes(bindings),
    )
