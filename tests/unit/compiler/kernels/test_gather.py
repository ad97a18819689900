"""Plans of the gather kernels, made for stored profiles: no device."""

from __future__ import annotations

import numpy as np

from tests.support.profiles import stored_profile
from tests.support.running import node_of, plan
from webnn_vk.compiler.types.data_types import MLOperandDescriptor


def test_embedding_rows_move_as_vectors() -> None:
    """A word embedding: one dispatch, 16 bytes per invocation."""
    table = MLOperandDescriptor("float32", (30522, 384))
    node, _ = node_of("gather", table, np.zeros((4, 128), np.int64))
    (dispatch,) = plan(node, stored_profile("adreno_minimum"))
    assert dispatch.variant == "axis int64 128 bit"
    assert dispatch.params["count"] == 4 * 128 * 384 // 4
    assert dispatch.constants["LX"] == 128  # that device has no larger workgroups


def test_a_table_over_the_binding_limit_is_read_in_slices() -> None:
    table = MLOperandDescriptor("float32", (250_002, 384))  # 366 MiB
    node, _ = node_of("gather", table, np.zeros(16, np.int32))
    profile = stored_profile("llvmpipe")
    dispatches = plan(node, profile)
    assert len(dispatches) == 3
    ends = [d.params["src_first"] + d.params["src_count"] for d in dispatches]
    assert [d.params["src_first"] for d in dispatches] == [0, *ends[:-1]]
    assert ends[-1] == table.size // 4
    for dispatch in dispatches:
        assert dispatch.bindings[0].size <= profile.max_storage_buffer_range
