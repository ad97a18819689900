import re

import pytest

from tests.support.paths import ROOT
from webnn_vk.support import environment
from webnn_vk.support.settings import Settings


def test_values():
    given = {"WEBNN_VK_DEVICE": "", "WEBNN_VK_CACHE": "off", "WEBNN_VK_VALIDATE": "0",
             "WEBNN_VK_MASK": " int8, ,float16,"}
    assert environment.text("WEBNN_VK_DEVICE", given) is None
    assert environment.text("WEBNN_VK_PACK", given) is None
    assert environment.text("WEBNN_VK_CACHE", given) == "off"
    assert not environment.flag("WEBNN_VK_VALIDATE", given)
    assert environment.flag("WEBNN_VK_VALIDATE", {"WEBNN_VK_VALIDATE": "1"})
    assert environment.words("WEBNN_VK_MASK", given) == ("int8", "float16")
    assert environment.words("WEBNN_VK_FORCE_CPU", given) == ()


def test_by_default_the_process_is_asked(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("WEBNN_VK_DEVICE", "llvm")
    assert environment.text("WEBNN_VK_DEVICE") == "llvm"


def test_unknown_variables_are_mistakes():
    with pytest.raises(KeyError, match="WEBNN_VK_DEVIC"):
        environment.text("WEBNN_VK_DEVIC", {})


class Recorder(dict):
    """An empty environment that records the names that are read."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def get(self, name, default=None):
        self.names.add(name)
        return default

    def __getitem__(self, name):
        self.names.add(name)
        raise KeyError(name)


def test_every_variable_is_read_somewhere():
    read = set()
    for folder in ("webnn_vk", "codegen"):
        for path in (ROOT / folder).rglob("*.py"):
            reads = re.findall(
                r"(?:text|flag|choice|words)\(\s*\"(WEBNN_VK_\w+)\"", path.read_text())
            read |= set(reads)
    asked = Recorder()
    Settings.from_environment(asked)
    read |= asked.names
    assert read == set(environment.VARIABLES)
