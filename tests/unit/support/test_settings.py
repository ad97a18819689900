"""Settings as users write them."""

from dataclasses import replace
from pathlib import Path

import pytest

from webnn_vk import MLGraphBuilder, NotSupportedError, Settings, ml
from webnn_vk.support.environment import cache_folder
from webnn_vk.support.settings import verify_passes
from webnn_vk.tools import ToolError
from webnn_vk.tools.devices import open_context


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


@pytest.mark.parametrize(("word", "expected"), [
    ("", None), ("1", True), ("yes", True), ("0", False), ("off", False),
])
def test_whether_to_tune(word, expected):
    settings = Settings.from_environment({"WEBNN_VK_TUNE": word})
    assert settings.tune is expected
    assert Settings(tune=expected).tune is expected
    assert Settings().tune is None


def test_what_is_no_answer_to_whether_to_tune():
    with pytest.raises(ValueError, match="WEBNN_VK_TUNE: 'often' is not one of"):
        Settings.from_environment({"WEBNN_VK_TUNE": "often"})
    for wrong in ("1", 2, 1.0, "yes"):
        with pytest.raises(TypeError, match="tune: True, False or None is expected, not"):
            Settings(tune=wrong)


def test_something_else_in_their_place():
    with pytest.raises(TypeError, match="Settings are expected, not dict"):
        ml.create_context(settings={"device": "cpu"}).result(60)


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
        assert context._state.device.shaders.cache._folder is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("word", ["false", "no", "0", "off", "", "No", " OFF "])
def test_words_for_no(word):
    given = {"WEBNN_VK_VALIDATE": word, "WEBNN_VK_VERIFY_PASSES": word}
    assert Settings.from_environment(given).validate is False
    assert verify_passes(given) is False


@pytest.mark.parametrize("word", ["1", "true", "yes", "on", "TRUE"])
def test_words_for_yes(word):
    given = {"WEBNN_VK_VALIDATE": word, "WEBNN_VK_VERIFY_PASSES": word}
    assert Settings.from_environment(given).validate is True
    assert verify_passes(given) is True


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("VALIDATE", "maybe", "WEBNN_VK_VALIDATE: 'maybe' is not one of 1, true, yes, on, 0, "),
        ("GLSLANG", "glslc", "WEBNN_VK_GLSLANG: 'glslc' is not one of auto, process, none"),
        ("FORCE_CPU", "conv3d", "WEBNN_VK_FORCE_CPU: no operator is called conv3d; did"),
        ("SKIP_PASSES", "fuze", "WEBNN_VK_SKIP_PASSES: no pass is called 'fuze'; did"),
        ("MASK", "float61", "WEBNN_VK_MASK: unknown device feature 'float61' to mask; did"),
        ("MASK", "int8,timeline_semaphore", "WEBNN_VK_MASK: 'timeline_semaphore' can't be masked"),
        ("CACHE", "~nobody-of-this-name/x", "WEBNN_VK_CACHE: '~nobody-of-this-name/x' is not a"),
        ("CACHE", __file__, "WEBNN_VK_CACHE: '.*' is not a folder"),
        ("DUMP", __file__, "WEBNN_VK_DUMP: '.*' is not a folder"),
    ],
)
def test_nonsense_in_a_variable_is_named_at_once(monkeypatch, variable, value, message):
    monkeypatch.setenv("WEBNN_VK_DEVICE", "cpu")
    monkeypatch.setenv(f"WEBNN_VK_{variable}", value)
    with pytest.raises((ValueError, TypeError), match=f"^{message}"):
        ml.create_context().result(60)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"force_cpu": ["convTranspose2D"]}, "^force_cpu: .* did you mean conv_transpose2d"),
        ({"force_cpu": ["xyzzy"]}, "^force_cpu: no operator is called xyzzy$"),
        ({"mask": ["float61"]}, "^mask: unknown device feature"),
        ({"mask": ["timeline_semaphore"]}, "^mask: 'timeline_semaphore' can't be masked"),
        ({"skip_passes": ["fuze"]}, "^skip_passes: no pass"),
        ({"cache": __file__}, "^cache: '.*' is not a folder"),
    ],
)
def test_nonsense_in_settings_is_named_at_once(settings, message):
    with pytest.raises((ValueError, TypeError), match=message):
        ml.create_context(settings=Settings(device="cpu", **settings)).result(60)


@pytest.mark.parametrize("word", ["off", "OFF", "Off", " none ", "No", "0", "false"])
def test_words_for_no_cache(word, monkeypatch):
    assert Settings(cache=word).cache == "off"
    assert Settings.from_environment({"WEBNN_VK_CACHE": word}).cache == "off"
    assert Settings(dump=word).dump is None
    monkeypatch.setenv("WEBNN_VK_CACHE", word)
    assert cache_folder() is None


def test_folders_of_the_user(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Settings(cache="~/x", dump="~").cache == tmp_path / "x"
    assert Settings(dump="~").dump == tmp_path
    assert Settings.from_environment({"WEBNN_VK_CACHE": "~/x"}).cache == tmp_path / "x"
    monkeypatch.setenv("WEBNN_VK_CACHE", "~/x")
    assert cache_folder() == tmp_path / "x"
    assert Settings(cache="./off").cache == Path("off")
    assert Settings(cache=Path("off")).cache == Path("off")
    with pytest.raises(ValueError, match="^cache: '~nobody-of-this-name' is not a folder"):
        Settings(cache="~nobody-of-this-name")
    with pytest.raises(TypeError, match="^cache: a folder is expected, not 7"):
        Settings(cache=7)


def test_wrong_switches():
    with pytest.raises(TypeError, match="validate: a bool is expected, not 'no'"):
        Settings(validate="no")
    with pytest.raises(TypeError, match="device: an index or a name is expected, not True"):
        Settings(device=True)


def test_how_the_device_was_asked_for():
    environment = Settings.from_environment({"WEBNN_VK_DEVICE": "nope"})
    assert environment.asked_device == "WEBNN_VK_DEVICE='nope'"
    assert replace(environment, device="x").asked_device == "Settings(device='x')"
    assert Settings(device=9).asked_device == "Settings(device=9)"
    assert replace(environment, device="nope") == environment


@pytest.mark.device
def test_a_device_that_is_not_there(monkeypatch):
    monkeypatch.setenv("WEBNN_VK_DEVICE", "nope")
    with pytest.raises(NotSupportedError, match=r"^Settings\(device=9\) matches no device; found"):
        ml.create_context(settings=Settings(device=9)).result(60)
    with pytest.raises(NotSupportedError, match="^WEBNN_VK_DEVICE='nope' matches no device"):
        ml.create_context().result(60)
    with pytest.raises(ToolError, match="^--device 77 matches no device"):
        open_context("77")
