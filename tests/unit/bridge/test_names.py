"""Names as the IDL spells them."""

import pytest

from webnn_vk.bridge.names import camel_case
from webnn_vk.compiler.ops import OPERATORS


@pytest.mark.parametrize("python, idl", [
    ("conv_transpose2d", "convTranspose2d"), ("gather_nd", "gatherND"), ("is_nan", "isNaN"),
    ("l2_pool2d", "l2Pool2d"), ("reduce_log_sum_exp", "reduceLogSumExp"), ("add", "add"),
    ("a_transpose", "aTranspose"), ("max_tensor_byte_length", "maxTensorByteLength"),
])
def test_names(python, idl):
    assert camel_case(python) == idl


def test_operators_have_names_of_their_own():
    assert len({camel_case(name) for name in OPERATORS}) == len(OPERATORS) == 95
