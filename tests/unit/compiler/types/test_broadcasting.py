import pytest

from webnn_vk.compiler.types.broadcasting import broadcast_shapes, broadcastable_to


@pytest.mark.parametrize(
    ("a", "b", "both", "one_way"),
    [
        ((2, 3), (2, 3), (2, 3), True),
        ((3,), (2, 3), (2, 3), True),
        ((), (2, 3), (2, 3), True),
        ((2, 1), (2, 3), (2, 3), True),
        ((2, 3), (3,), (2, 3), False),
        ((2, 3), (2, 1), (2, 3), False),
        ((4, 1), (1, 5), (4, 5), False),
        ((2,), (3,), None, False),
        ((2, 3), (2,), None, False),
    ],
)
def test_broadcasting(a, b, both, one_way):
    assert broadcast_shapes(a, b) == broadcast_shapes(b, a) == both
    assert broadcastable_to(a, b) == one_way
