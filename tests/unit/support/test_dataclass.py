"""Our ``dataclass`` beside the standard library's."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from dataclasses import field
from typing import Any, ClassVar

import pytest

from webnn_vk.support.dataclass import dataclass


def classes(decorate: Any) -> dict[str, Any]:
    """One class of each kind, by the same source."""

    @decorate(frozen=True)
    class Place:
        """A place."""

        name: str
        items: list[int] = field(default_factory=list, hash=False)
        shown: int = field(default=3, repr=False)
        compared: int = field(default=4, compare=False)
        count: ClassVar[int] = 7

        def __post_init__(self) -> None:
            object.__setattr__(self, "name", self.name.strip())

    @decorate(frozen=True)
    class Wider(Place):
        more: Any = None

        def __repr__(self) -> str:
            return "wider"

    @decorate
    class Changing:
        value: int
        made: dict[str, int] = field(default_factory=dict, init=False)

    @decorate(frozen=True, eq=False, kw_only=True)
    class Unequal:
        only: int

    @decorate
    class Own:
        value: int

        def __init__(self) -> None:
            self.value = 5

        def __eq__(self, other: object) -> bool:
            return True

    return {c.__name__: c for c in (Place, Wider, Changing, Unequal, Own)}


OURS, THEIRS = classes(dataclass), classes(dataclasses.dataclass)


def outcome(function: Any, kinds: dict[str, Any]) -> Any:
    try:
        return str(function(kinds))
    except Exception as error:
        return type(error), str(error)


def changed(kinds: dict[str, Any]) -> Any:
    thing = kinds["Changing"](1)
    thing.value = 2
    return thing


CASES = [
    lambda k: k["Place"](" a "),
    lambda k: k["Place"]("a", [1], compared=9) == k["Place"]("a", [1]),
    lambda k: k["Place"]("a") == k["Wider"]("a"),
    lambda k: k["Place"]("a", shown=4) == k["Place"]("a"),
    lambda k: hash(k["Place"]("a", [2])) == hash(k["Place"]("a")),
    lambda k: setattr(k["Place"]("a"), "name", 1),
    lambda k: delattr(k["Place"]("a"), "name"),
    lambda k: setattr(k["Wider"]("a"), "name", 1),
    lambda k: setattr(k["Place"]("a"), "unknown", 1),
    lambda k: k["Place"](),
    lambda k: k["Place"]("a", [], 1, 2, 3),
    lambda k: k["Place"]("a", nothing=1),
    lambda k: [k["Wider"]("a", more=(1,)), k["Wider"]("a").items is k["Wider"]("a").items],
    lambda k: [f.name for f in dataclasses.fields(k["Wider"])],
    lambda k: dataclasses.replace(k["Place"]("a"), name="b"),
    lambda k: dataclasses.asdict(k["Wider"]("a", [1])),
    lambda k: dataclasses.is_dataclass(k["Own"]) and k["Place"].__match_args__,
    lambda k: copy.deepcopy(k["Place"]("a", [1])),
    changed,
    lambda k: hash(k["Changing"](1)),
    lambda k: k["Changing"](1) == k["Changing"](1),
    lambda k: k["Changing"](1, {}),
    lambda k: k["Unequal"](only=1),
    lambda k: k["Unequal"](1),
    lambda k: k["Unequal"](only=1) == k["Unequal"](only=1),
    lambda k: isinstance(hash(k["Unequal"](only=1)), int),
    lambda k: [k["Own"]().value, k["Own"]() == 3],
    lambda k: hash(k["Own"]()),
    lambda k: [str(inspect.signature(k[name])).split(" ->")[0] for name in ("Changing", "Own")],
    lambda k: list(inspect.signature(k["Wider"]).parameters),
    lambda k: k["Place"].__doc__,
]


@pytest.mark.parametrize("number", range(len(CASES)))
def test_as_the_standard_library(number: int) -> None:
    assert outcome(CASES[number], OURS) == outcome(CASES[number], THEIRS)


def test_objects_can_be_pickled() -> None:
    from webnn_vk.compiler.program import Range

    place = Range(1, 2, 3)
    assert pickle.loads(pickle.dumps(place)) == place


def test_nothing_is_compiled_before_the_first_object() -> None:
    @dataclass(frozen=True)
    class Late:
        value: int

    first = Late.__init__
    assert "value" not in inspect.getfullargspec(first).args
    assert Late(3).value == 3 and Late.__init__ is not first
    assert inspect.getfullargspec(Late.__init__).args == ["self", "value"]
