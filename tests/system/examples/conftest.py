"""Programs of `examples/`, unchanged and with mistakes added."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator

import pytest

from tests.support.paths import ROOT

EXAMPLES = ROOT / "examples"


def with_mistake(text: str, *edits: tuple[str, str]) -> str:
    """Text of a program with all edits applied."""
    for before, after in edits:
        assert before in text, before
        text = text.replace(before, after)
    return text


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., types.ModuleType]]:
    """Loads a program as a module, with edits such as a user's mistakes."""

    def load(name: str, *edits: tuple[str, str]) -> types.ModuleType:
        text = with_mistake((EXAMPLES / f"{name}.py").read_text(encoding="utf-8"), *edits)
        module = types.ModuleType(f"example_{name}")
        # Dataclasses and pydantic look up the module by its name.
        monkeypatch.setitem(sys.modules, module.__name__, module)
        exec(compile(text, f"{name}.py", "exec"), module.__dict__)
        return module

    yield load


@pytest.fixture(params=["cpu", "vulkan"])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """`create_context()` opens this device."""
    if request.param == "vulkan":
        request.getfixturevalue("vulkan")
    monkeypatch.setenv("WEBNN_VK_DEVICE", request.param)
    return request.param
