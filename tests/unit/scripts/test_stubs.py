import ast

import pytest

from scripts.generate.stubs import PACKAGE, files


@pytest.mark.parametrize("path", files(), ids=lambda path: path.name)
def test_stubs_are_python(path):
    ast.parse(path.read_text())


def test_a_method_in_the_stub_reads_as_the_real_one():
    text = (PACKAGE / "api" / "builder.pyi").read_text()
    assert "input_layout: Literal['nchw', 'nhwc'] = 'nchw'," in text
    assert "    def split(\n        self,\n        input: MLOperand,\n" in text
    assert "-> list[MLOperand]: ..." in text
