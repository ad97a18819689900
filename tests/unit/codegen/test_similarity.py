"""The order in which modules are compressed."""

import lzma

import numpy as np

from webnn_vk.codegen.similarity import chained


def kinds(rng):
    """Modules of three kinds in turn, which have nine tenths of their words in common."""
    common = rng.integers(0, 2**32, (3, 2000), np.uint32)
    made = []
    for number in range(12):
        words = common[number % 3].copy()
        at = rng.integers(0, 1900)
        words[at : at + 100] = rng.integers(0, 2**32, 100, np.uint32)
        made.append(words.tobytes())
    return made


def test_each_is_followed_by_a_similar_one():
    modules = kinds(np.random.default_rng(1))
    order = chained(modules)
    assert sorted(order) == list(range(12)) and order[0] == 0
    assert sum(a % 3 != b % 3 for a, b in zip(order, order[1:], strict=False)) == 2
    assert chained(modules) == order
    half = b"".join(modules[n] for n in order[:4])
    assert len(lzma.compress(half)) < 0.6 * len(lzma.compress(b"".join(modules[:4])))


def test_modules_of_any_length():
    assert chained([]) == [] and chained([bytes(4)]) == [0]
    assert chained([b"abcd", b"abcdefgh", b"abcd"]) == [0, 2, 1]
