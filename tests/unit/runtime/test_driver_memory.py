"""Properties of tensors' memory that follow from a profile."""

from __future__ import annotations

import pytest

from tests.support.profiles import stored_profile
from webnn_vk.runtime.driver_memory import reads_in_place

CACHED = (0, ("device_local", "host_visible", "host_coherent", "host_cached"))
COMBINED = (0, ("device_local", "host_visible", "host_coherent"))
HIDDEN = (0, ("device_local",))
STAGING = (1, ("host_visible", "host_coherent"))


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        ((CACHED,), True),
        ((HIDDEN, STAGING), True),  # never called: the host can't access the memory
        ((HIDDEN, COMBINED, STAGING), False),  # write-combined: reads crawl
        ((CACHED, COMBINED), False),  # a tensor may be in either
    ],
)
def test_only_memory_that_the_host_caches_is_read_in_place(types, expected):
    assert reads_in_place(stored_profile("llvmpipe").replace(memory_types=types)) is expected


def test_lavapipe_s_is():
    assert reads_in_place(stored_profile("llvmpipe"))
