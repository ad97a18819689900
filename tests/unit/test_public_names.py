"""Every public name has documentation: ``help()`` has a text and types for it. Names, members and
signatures equal the stored lists, because other programs use them."""

import importlib
import inspect
from collections.abc import Iterator

import pytest

import webnn_vk
from webnn_vk import distributed, gpu, onnx, onnx_backend

PUBLIC = [
    *(getattr(webnn_vk, name) for name in webnn_vk.__all__ if name not in ("ml", "__version__")),
    *(getattr(module, name) for module in (distributed, gpu, onnx, onnx_backend)
      for name in module.__all__),
]


def functions():
    for thing in PUBLIC:
        if not inspect.isclass(thing):
            yield pytest.param(thing, id=thing.__name__)
            continue
        for base in thing.__mro__:
            if not base.__module__.startswith("webnn_vk"):
                continue
            for name, value in vars(base).items():
                if isinstance(value, property):
                    value = value.fget
                elif isinstance(value, (classmethod, staticmethod)):
                    value = value.__func__
                if inspect.isfunction(value) and not name.startswith("_"):
                    yield pytest.param(value, id=f"{thing.__name__}.{name}")


@pytest.mark.parametrize("thing", [p for p in PUBLIC if inspect.isclass(p)])
def test_classes(thing):
    assert thing.__doc__
    assert not thing.__doc__.startswith(f"{thing.__name__}(")  # a dataclass without a text


@pytest.mark.parametrize("function", [*functions()])
def test_functions(function):
    assert function.__doc__
    signature = inspect.signature(function)
    assert signature.return_annotation is not signature.empty
    for parameter in signature.parameters.values():
        if parameter.name not in ("self", "cls"):
            assert parameter.annotation is not parameter.empty, parameter


def signature(function: object) -> str:
    """The signature as text; "" if Python knows none."""
    try:
        return str(inspect.signature(function))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return ""


def members(cls: type) -> Iterator[str]:
    """A line for each public attribute that a class of the library defines or inherits from one."""
    ours = [base for base in cls.__mro__ if base.__module__.startswith("webnn_vk")]
    for name in sorted({name for base in ours for name in vars(base) if name[0] != "_"}):
        value = inspect.getattr_static(cls, name)
        if isinstance(value, (classmethod, staticmethod)):
            value = value.__func__
        yield f".{name}{signature(value) if inspect.isfunction(value) else ''}"


@pytest.mark.parametrize("name", [
    "webnn_vk", "webnn_vk.codegen", "webnn_vk.distributed", "webnn_vk.generate", "webnn_vk.gpu",
    "webnn_vk.onnx",
    "webnn_vk.onnx_backend",
    "webnn_vk.typing", "webnn_vk.webnn_file",
])
def test_names_are_as_stored(name, golden):
    module, lines = importlib.import_module(name), []
    for public in sorted(n for n in getattr(module, "__all__", dir(module)) if n[0] != "_"):
        value = getattr(module, public)
        if inspect.isclass(value):
            lines += [public, *(public + member for member in members(value))]
        else:
            lines.append(public + (signature(value) if inspect.isfunction(value) else ""))
    golden(f"public_names/{name}.txt", "\n".join(lines))
