"""`create_context(experimental=[…])`: the names, and refusals without them."""

import pytest

from webnn_vk import MLGraphBuilder, Settings, ml
from webnn_vk.support.experimental import EXPERIMENTAL


def on_cpu(experimental=None, in_settings=()):
    chosen = Settings(device="cpu", cpu_engine="numpy", cache="off", experimental=in_settings)
    return ml.create_context(settings=chosen, experimental=experimental)


@pytest.mark.parametrize("odd", ["dynamic-shapes", ["dynamic_shapes"], [3], 7, [None]])
def test_unknown_names_are_refused(odd):
    with pytest.raises(TypeError, match="^experimental: "):
        on_cpu(odd).result()
    with pytest.raises(TypeError, match="^experimental: "):
        Settings(experimental=odd)


def test_an_unknown_name_of_the_variable_is_refused():
    with pytest.raises(TypeError, match="^WEBNN_VK_EXPERIMENTAL: 'shapes' is not one of dynamic"):
        Settings.from_environment({"WEBNN_VK_EXPERIMENTAL": "shapes"})
    given = Settings.from_environment({"WEBNN_VK_EXPERIMENTAL": "subgraph, dynamic-shapes"})
    assert given.experimental == ("dynamic-shapes", "subgraph")


def test_names_of_the_option_replace_those_of_the_settings():
    with on_cpu(["subgraph"], ["dynamic-shapes"]).result() as context:
        assert context._state.experimental == {"subgraph"}
    with on_cpu(None, ["dynamic-shapes"]).result() as context:
        assert context._state.experimental == {"dynamic-shapes"}


def test_without_the_name_dimensions_have_no_names():
    with on_cpu().result() as context:
        described = {"data_type": "float32", "shape": [{"name": "n", "max_size": 4}]}
        with pytest.raises(TypeError, match=r"experimental=\['dynamic-shapes'\]"):
            MLGraphBuilder(context).input("x", described)


def test_limits_do_not_depend_on_the_names():
    names = [name for name in EXPERIMENTAL if name != "low-precision"]  # which has more types
    with on_cpu().result() as plain, on_cpu(names).result() as context:
        assert context.op_support_limits() == plain.op_support_limits()
