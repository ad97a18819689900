"""``GPUBufferUsage``: WebGPU's bits."""

from __future__ import annotations

from enum import IntFlag


class GPUBufferUsage(IntFlag):
    """How a buffer may be used. Buffers here take STORAGE, COPY_SRC, COPY_DST and QUERY_RESOLVE;
    the others are WebGPU's, for their values."""

    MAP_READ = 0x0001
    MAP_WRITE = 0x0002
    COPY_SRC = 0x0004
    COPY_DST = 0x0008
    INDEX = 0x0010
    VERTEX = 0x0020
    UNIFORM = 0x0040
    STORAGE = 0x0080
    INDIRECT = 0x0100
    QUERY_RESOLVE = 0x0200


#: The usages of a tensor's exported buffer, and the usages that buffers support.
EXPORTED_USAGE = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST
SUPPORTED_USAGE = EXPORTED_USAGE | GPUBufferUsage.QUERY_RESOLVE
