"""The sample covers what it has to, and is minimal."""

import pytest

from tests.conformance.swiftshader import sample
from tests.conformance.wpt import suite


def test_the_cheapest_that_cover_everything():
    items = [
        ("dear", 9, frozenset("abcd")), ("b", 2, frozenset("b")), ("a", 1, frozenset("a")),
        ("a again", 1, frozenset("a")), ("bc", 3, frozenset("bc")), ("nothing", 0, frozenset()),
    ]
    assert sample.cover(items[1:]) == ["a", "bc"]
    # The expensive item's unique coverage makes all others redundant.
    assert sample.cover(items) == ["dear"]


def test_examples_have_the_types_asked_for():
    missing = {
        ("add", "a", "int64"), ("gather", "input", "int8"), ("gather", "indices", "uint32"),
        ("cast", "output", "uint64"), ("split", "outputs", "int8"),
    }
    chosen = sample.covering_examples(missing)
    had = sample.triples((e.operator, e.types()) for e in chosen)
    assert missing <= had
    assert [e.operator for e in chosen] == sorted(e.operator for e in chosen)
    assert repr(sample.covering_examples(missing)) == repr(chosen)


def test_every_operator_has_types():
    allowed = sample.allowed()
    assert {("add", "b", "uint8"), ("arg_max", "output", "int64")} <= allowed
    assert sample.allowed("add") == {triple for triple in allowed if triple[0] == "add"}


@pytest.mark.skipif(not suite.PRESENT, reason=suite.ABSENT)
def test_vectors_of_one_operator():
    every = sample.vectors("add")
    chosen = sample.covering_vectors(every)
    uses = {use for vector in every for use in vector.uses}
    assert uses == {use for vector in chosen for use in vector.uses}
    assert ("add", "output", "float16") in sample.triples(uses)
    assert 0 < len(chosen) < len(every)
    # The large cases are not among the cheapest.
    assert max(vector.cost for vector in chosen) < 100_000 < max(v.cost for v in every)
    seeds = [sample.random_vectors(every, 5, seed) for seed in ("1", "1", "2")]
    assert seeds[0] == seeds[1] != seeds[2]
