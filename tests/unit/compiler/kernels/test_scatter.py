"""Plans of the scatter kernels, made for stored profiles: no device."""

from __future__ import annotations

import numpy as np

from tests.support.profiles import stored_profile
from tests.support.running import node_of, plan
from webnn_vk.compiler.types.data_types import MLOperandDescriptor


def test_words_of_the_places_fit_a_binding() -> None:
    """100 MiB of int8 need 400 MiB of words: four ranges on a device with 128 MiB bindings."""
    x = MLOperandDescriptor("int8", (100 * 2**20,))
    node, _ = node_of("scatter_elements", x, np.zeros(5, np.int32), np.zeros(5, np.int8))
    profile = stored_profile("llvmpipe")
    dispatches = plan(node, profile)
    assert [d.variant for d in dispatches].count("clear") == 4
    for dispatch in dispatches:
        for binding in dispatch.bindings:
            size = binding.size or getattr(binding.value, "size", 0)
            assert size <= profile.max_storage_buffer_range
