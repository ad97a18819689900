"""The test device taken for a discrete GPU (`--discrete`): passes, rules and kernels are a GPU's,
and the host sees only memory that was allocated for its access. Processes that tests start have the
device as it is."""

from __future__ import annotations

from typing import Any

import pytest

_installed = False


def install() -> None:
    """From here on, for this process."""
    global _installed
    from webnn_vk.driver.vulkan import memory, snapshot

    read, allocate = snapshot._profile, memory.Allocator.allocate

    def profile(*arguments: Any) -> Any:
        return read(*arguments).replace(
            device_type="discrete", vendor_id=0x10DE, reads_linearly=False
        )

    def hidden(self: Any, size: int, **options: Any) -> Any:
        made = allocate(self, size, **options)
        if not (options.get("host") or options.get("host_access")):
            made.mapped = None
        return made

    snapshot._profile, memory.Allocator.allocate = profile, hidden  # type: ignore[method-assign]
    _installed = True


def require_same_device() -> None:
    """Skips the test, counted in the summary, where processes that it starts would have another
    device than this one."""
    if _installed:
        pytest.skip("another process has the device as it is, and no discrete GPU")
