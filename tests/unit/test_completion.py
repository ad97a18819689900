"""Completion in IPython and Jupyter, which ask Jedi: names, and keywords of builder methods."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import selection
from webnn_vk import MLGraphBuilder
from webnn_vk.compiler.ops import OPERATORS

jedi = pytest.importorskip("jedi")


def completed(text: str, **names: Any) -> list[str]:
    return [found.name for found in jedi.Interpreter(text, [names]).complete()]


#: Different ones with every seed: 0.3 seconds each.
SOME = sorted(selection.chance("completion").sample(sorted(OPERATORS), 16))


@pytest.mark.parametrize("name", SOME)
def test_keywords_of_builder_methods(name: str, cpu_context: Any) -> None:
    builder = MLGraphBuilder(cpu_context)
    (signature,) = jedi.Interpreter(f"b.{name}(", [{"b": builder}]).get_signatures()
    shown = [parameter.name for parameter in signature.params]
    assert shown == [*(p.name for p in OPERATORS[name].parameters), "label"]
    assert "label=" in completed(f"b.{name}(la", b=builder)  # beside layout=, for some


def test_what_the_object_has(cpu_context: Any) -> None:
    builder = MLGraphBuilder(cpu_context)
    assert completed("b.conv2d(x, x, pad", b=builder) == ["padding="]
    assert completed("b.conv", b=builder) == ["conv2d", "conv_transpose2d"]
    assert completed("c.create_t", c=cpu_context) == ["create_tensor"]
    x = builder.input("x", {"data_type": "float32", "shape": [2]})
    assert completed("x.", x=x)[:2] == ["data_type", "shape"]
