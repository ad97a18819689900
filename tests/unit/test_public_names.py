"""Every public name explains itself: ``help()`` has a text and types for it."""

import inspect

import pytest

import webnn_vk
from webnn_vk import gpu

PUBLIC = [
    *(getattr(webnn_vk, name) for name in webnn_vk.__all__ if name not in ("ml", "__version__")),
    *(getattr(gpu, name) for name in gpu.__all__),
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
