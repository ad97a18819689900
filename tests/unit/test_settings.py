"""Settings as users give them."""

from pathlib import Path

import pytest

from webnn_vk import MLGraphBuilder, Settings, ml


def test_natural_spellings():
    assert Settings(device=0) == Settings(device="0")
    assert Settings(cache="/tmp/x").cache == Path("/tmp/x")
    assert Settings(mask=["int64"], force_cpu=["abs"]).force_cpu == ("abs",)


@pytest.mark.parametrize("wrong", [
    {"mask": "int64"}, {"force_cpu": "conv2d"}, {"skip_passes": "fold"}, {"device": 1.5},
])
def test_wrong_types(wrong):
    with pytest.raises(TypeError, match=f"{next(iter(wrong))}: .* is expected"):
        Settings(**wrong)


def test_something_else_in_their_place():
    with pytest.raises(TypeError, match="Settings are expected, not dict"):
        ml.create_context(settings={"device": "cpu"}).result(20)


def test_the_environment():
    given = {"WEBNN_VK_DEVICE": "0", "WEBNN_VK_FORCE_CPU": "conv2d, abs", "WEBNN_VK_CACHE": "/x"}
    assert Settings.from_environment(given) == Settings(
        device=0, force_cpu=("conv2d", "abs"), cache="/x"
    )
    assert Settings.from_environment({}) == Settings()


def test_no_cache(vulkan_context, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WEBNN_VK_VALIDATE", raising=False)
    monkeypatch.setenv("WEBNN_VK_CACHE", "off")
    monkeypatch.setenv("WEBNN_VK_DEVICE", str(vulkan_context.device_info.index))
    with ml.create_context().result(60) as context:
        builder = MLGraphBuilder(context)
        a = builder.input("a", {"data_type": "float32", "shape": [4]})
        builder.build({"y": builder.abs(builder.exp(a))}).result(60)
        assert context._state.device.shaders._cache._folder is None
    assert list(tmp_path.iterdir()) == []
