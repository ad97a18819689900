import ast

import pytest

from tests.support.stubs import PACKAGE, STUBS


@pytest.mark.parametrize("name", STUBS)
def test_stubs_are_current(name):
    """`python -m tests.support.stubs` writes them."""
    text = (PACKAGE / name).read_text()
    assert text == STUBS[name]()
    ast.parse(text)


def test_a_method_in_the_stub_reads_as_the_real_one():
    text = (PACKAGE / "builder.pyi").read_text()
    assert "input_layout: Literal['nchw', 'nhwc'] = 'nchw'," in text
    assert "    def split(\n        self,\n        input: MLOperand,\n" in text
    assert "-> list[MLOperand]: ..." in text
