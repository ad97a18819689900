"""Drivers without facets: functions that need one refuse with a reason, the rest works."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.contexts import open_over
from tests.support.driver_proxy import DriverProxy
from tests.support.drivers import require_vulkan
from webnn_vk import MLGraphBuilder, NotSupportedError
from webnn_vk.driver import FeatureMissing, sharing_of, timestamps_of

DESCRIPTOR = {"data_type": "float32", "shape": [1024]}


class Plain(DriverProxy):
    sharing = None
    timestamps = None


@pytest.fixture
def context() -> Any:
    require_vulkan()
    context, _ = open_over(Plain)
    with context:
        yield context


def test_what_needs_no_facet(context: Any) -> None:
    builder = MLGraphBuilder(context)
    x = builder.input("x", DESCRIPTOR)
    graph = builder.build({"y": builder.add(x, x)}).result(60)
    ones = np.ones(1024, np.float32)
    assert np.array_equal(context.compute(graph, {"x": ones})["y"], ones * 2)


def test_refusals(context: Any) -> None:
    with pytest.raises(NotSupportedError, match="create_exportable_tensor"):
        context.create_exportable_tensor(DESCRIPTOR).result(60)
    with pytest.raises(NotSupportedError, match="shares no memory or semaphores"):
        context.create_exportable_semaphore()
    aligned = np.zeros(8192, np.uint8)
    start = -aligned.ctypes.data % 4096
    with pytest.raises(NotSupportedError, match="shares no memory or semaphores"):
        context.import_constant_tensor(DESCRIPTOR, aligned[start:start + 4096]).result(60)
    assert not context.lost.done()


def test_asking() -> None:
    class Named:
        class profile:
            name = "a device"

        sharing = None
        timestamps = None
        absent = {"sharing": "it is old"}

    with pytest.raises(FeatureMissing, match="a device shares no memory or semaphores: it is old"):
        sharing_of(Named())
    with pytest.raises(FeatureMissing, match="the driver of a device writes no timestamps$"):
        timestamps_of(Named())
