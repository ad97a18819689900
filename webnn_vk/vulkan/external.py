"""Device memory as it is handed to another device or API."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ExternalMemory:
    """Device memory as an opaque file descriptor, which its holder owns until it is imported.

    offset, size: the allocation's bytes in it. block_size, memory_type, uuid: what an importing
    Vulkan device has to match (an import into CUDA needs block_size).
    """

    fd: int
    offset: int
    size: int
    block_size: int
    memory_type: int
    uuid: str
