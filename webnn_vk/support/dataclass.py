"""``dataclass`` as in the standard library, for a package with hundreds of them.

The standard library compiles up to six methods for each class when it is defined: a third of the
processor time of creating a context. Here comparison, hash and repr are closures over the fields,
and ``__init__`` is compiled at its first call. Everything else (fields, defaults, ``replace``,
``asdict``, matching) is the standard library's. Classes with slots are its own entirely, and a
frozen one can't inherit from one of these, or the other way round.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any


class _Signature:
    """The ``__signature__`` of a class: its ``__init__`` is compiled for it."""

    def __init__(self, cls: type, frozen: bool) -> None:
        self._cls, self._frozen = cls, frozen

    def __get__(self, instance: Any, owner: type) -> Any:
        if owner is not self._cls and "__init__" in vars(owner):
            raise AttributeError("__signature__")
        import inspect

        signature = inspect.signature(_compiled(self._cls, self._frozen))
        return signature.replace(parameters=[*signature.parameters.values()][1:])


def _plain(
    cls: type | None = None, /, *, repr: bool = True, eq: bool = True, frozen: bool = False,
    kw_only: bool = False, slots: bool = False,
) -> Any:
    if slots:
        return dataclasses.dataclass(
            cls, repr=repr, eq=eq, frozen=frozen, kw_only=kw_only, slots=True
        )

    def make(cls: type) -> type:
        own = vars(cls)
        # Without a docstring the standard library would make one of the signature.
        undocumented = cls.__doc__ is None
        if undocumented:
            cls.__doc__ = cls.__name__
        dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=kw_only)(cls)
        if undocumented:
            cls.__doc__ = None
        fields = dataclasses.fields(cls)
        if repr and "__repr__" not in own:
            cls.__repr__ = _repr([f.name for f in fields if f.repr])  # type: ignore[assignment]
        if eq:
            _compare(cls, fields, frozen)
        if frozen:
            _freeze(cls, frozenset(f.name for f in fields))
        if "__init__" not in own:

            def __init__(self: Any, *args: Any, **named: Any) -> None:
                _compiled(cls, frozen)(self, *args, **named)

            cls.__init__ = __init__  # type: ignore[misc]
            cls.__signature__ = _Signature(cls, frozen)  # type: ignore[attr-defined]
        return cls

    return make if cls is None else make(cls)


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    dataclass = _plain


def _repr(names: Sequence[str]) -> Callable[[Any], str]:
    def __repr__(self: Any) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__qualname__}({values})"

    return __repr__


def _key(names: Sequence[str]) -> Callable[[Any], Any]:
    """A function from an object to a tuple of these attributes."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda self: tuple([getattr(self, name) for name in names])


def _compare(cls: Any, fields: Sequence[dataclasses.Field[Any]], frozen: bool) -> None:
    own = vars(cls)
    compared = _key([f.name for f in fields if f.compare])
    hashed = _key([f.name for f in fields if (f.compare if f.hash is None else f.hash)])
    # A class that has only __eq__ has None for its hash.
    hashes = "__hash__" not in own or (own["__hash__"] is None and "__eq__" in own)

    def __eq__(self: Any, other: Any) -> Any:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return compared(self) == compared(other)

    def __hash__(self: Any) -> int:
        return hash(hashed(self))

    if "__eq__" not in own:
        cls.__eq__ = __eq__
    if hashes:
        cls.__hash__ = __hash__ if frozen else None


def _freeze(cls: Any, names: frozenset[str]) -> None:
    def __setattr__(self: Any, name: str, value: Any) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    cls.__setattr__, cls.__delattr__ = __setattr__, __delattr__


class _Factory:
    """Stands for a default that each object gets a new one of."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()


def _compiled(cls: Any, frozen: bool) -> Any:
    """The class's ``__init__``, compiled now, and from now on in the place of the first one."""
    known: dict[str, Any] = {"_set": object.__setattr__, "_FACTORY": _FACTORY}
    positional, keywords, lines = [], [], []
    for f in dataclasses.fields(cls):
        name, value = f.name, f.name
        made = f.default_factory is not dataclasses.MISSING
        if made:
            known[f"_make_{name}"] = f.default_factory
        if f.init:
            default = ""
            if made:
                default, value = "=_FACTORY", f"_make_{name}() if {name} is _FACTORY else {name}"
            elif f.default is not dataclasses.MISSING:
                known[f"_default_{name}"] = f.default
                default = f"=_default_{name}"
            (keywords if f.kw_only else positional).append(name + default)
        elif made:
            value = f"_make_{name}()"
        else:
            continue
        lines.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    parameters = ["self", *positional, *(["*", *keywords] if keywords else [])]
    body = "\n ".join(lines or ["pass"])
    scope: dict[str, Any] = {}
    exec(f"def __init__({', '.join(parameters)}):\n {body}", known, scope)
    init = scope["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    init.__module__ = cls.__module__
    init.__annotations__ = {f.name: f.type for f in dataclasses.fields(cls) if f.init}
    cls.__init__ = init
    return init
