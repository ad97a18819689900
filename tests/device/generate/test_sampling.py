"""Random choices: their probabilities, and the device's beside the host's."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import numpy as np
import pytest

from tests.support.reference_decoder import CONFIGS, random_weights, write_folder
from webnn_vk import MLContext, OperationError
from webnn_vk.generate import Model, Sampling, chooser
from webnn_vk.generate.chooser import UNDECIDED, Choice, Chooser, Prepared
from webnn_vk.generate.sampling import noise

OPTIONS = [
    {"temperature": 1.0}, {"temperature": 0.6, "min_p": 0.05}, {"temperature": 0.9, "top_k": 20},
    {"temperature": 1.0, "top_p": 0.9}, {"temperature": 1.3, "top_k": 64, "top_p": 0.8},
    {"repetition_penalty": 1.4}, {"temperature": 1.0, "top_k": 1}, {"temperature": 1e-30},
    {"temperature": 0.8, "top_k": 30, "top_p": 0.95, "min_p": 0.02, "repetition_penalty": 0.7},
    {"temperature": 1.0, "repetition_penalty": 1e-300}, {"repetition_penalty": 1e300},
]


def keys(generator: np.random.Generator) -> np.ndarray:
    return generator.integers(0, 1 << 32, 2, np.uint32)


def drawn_logits(generator: np.random.Generator, rows: int, size: int) -> np.ndarray:
    """Logits, some of which are alike, some impossible."""
    logits = generator.normal(0, 3, (rows, size)).astype(np.float32)
    logits[:, generator.integers(0, size, 12)] = 7.5
    logits[:, generator.integers(0, size, 12)] = -np.inf
    return logits


@pytest.mark.sample(0.5)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_device_chooses_as_the_host(vulkan_context: MLContext, options):
    """Three rows, the second of which wants nothing, or is greedy."""
    size, rng = 3001, np.random.default_rng(4)
    made = Chooser(vulkan_context, size, 50, is_used=True)
    tensor = vulkan_context.create_tensor(
        {"data_type": "float32", "shape": (3, size), "writable": True}
    ).result()
    sampling, undecided = Sampling(**options), 0
    for run in range(12):
        logits = drawn_logits(rng, 3, size)
        vulkan_context.write_tensor(tensor, logits)
        seen = rng.integers(0, size, (3, rng.integers(1, 51))).tolist()
        seen = [[*tokens, int(np.argmax(row))] for tokens, row in zip(seen, logits, strict=True)]
        choices = [Choice(sampling, tokens[-50:], keys(rng)) for tokens in seen]
        choices[1] = Choice(Sampling(), (), keys(rng)) if run % 2 else None
        found = made.prepare(choices).start(tensor).result()
        undecided += np.count_nonzero(found == UNDECIDED)
        for row, choice in enumerate(choices):
            if choice is not None and found[row] != UNDECIDED:
                assert found[row] == choice.on_host(logits[row])
    assert undecided <= 1


@pytest.mark.parametrize("temperature", [0, 1e-300, 0.5])
@pytest.mark.parametrize(("penalty", "expected"), [(1e-300, 1), (1e300, 0)])
def test_penalties_of_any_size(temperature, penalty, expected):
    """Tokens 1, 2 and 3 occurred. Nothing is infinite or no number on the way."""
    logits = np.array([50, 3, -2, 0, -4], np.float32)
    sampling = Sampling(temperature, repetition_penalty=penalty)
    with np.errstate(all="raise", under="ignore"):
        for seed in range(20):
            words = keys(np.random.default_rng(seed))
            assert sampling.choose(logits, [1, 2, 3], words) == expected


@pytest.mark.sample(0.5)
@pytest.mark.parametrize("options", [OPTIONS[0], OPTIONS[3], OPTIONS[8]], ids=str)
def test_texts_do_not_depend_on_what_chooses(model, options, monkeypatch):
    """With one draw, ``top_p`` leaves tokens to the host now and then."""
    monkeypatch.setattr(chooser, "DRAWS", 1)
    ids = [1, 2, 3]
    model._engine.chooser.is_used = False
    expected = model.generate_tokens(ids, 40, seed=5, **options)
    model._engine.chooser.is_used = True
    chosen, start = [], Prepared.start

    def kept(*given):
        found = start(*given)
        chosen.append(int(found.result()[0]))
        return found

    monkeypatch.setattr(Prepared, "start", kept)
    assert model.generate_tokens(ids, 40, seed=5, **options) == expected
    assert len(chosen) == 40
    left = chosen.count(UNDECIDED)
    assert 0 < left < 20 if options == OPTIONS[3] else left < 3


def test_high_temperatures(model):
    """Logits divided by 10,000 lie so close to each other that the device's search would keep more
    than three."""
    options = {"temperature": 1e4, "top_k": 3, "seed": 5}
    model._engine.chooser.is_used = False
    expected = model.generate_tokens([1, 2, 3], 60, **options)
    model._engine.chooser.is_used = True
    assert model.generate_tokens([1, 2, 3], 60, **options) == expected


@pytest.mark.parametrize(("options", "kind"), [
    ({"temperature": "x"}, TypeError), ({"temperature": True}, TypeError),
    ({"temperature": np.True_}, TypeError), ({"temperature": 1j}, TypeError),
    ({"temperature": float("nan")}, ValueError), ({"temperature": 10**5000}, ValueError),
    ({"temperature": -(10**400)}, ValueError), ({"top_k": 1.0}, ValueError),
    ({"top_k": False}, TypeError), ({"top_k": -(10**5000)}, ValueError), ({"top_k": []}, TypeError),
    ({"top_p": None}, TypeError), ({"top_p": 10**400}, ValueError), ({"min_p": "0"}, TypeError),
    ({"repetition_penalty": 1e999}, ValueError), ({"repetition_penalty": 10**400}, ValueError),
], ids=lambda value: f"{value}"[:40] if isinstance(value, type) else "".join(value))
def test_what_is_no_number_or_out_of_range(options, kind):
    (name,) = options
    with pytest.raises(kind, match=f"^{name} is .* is expected$") as caught:
        Sampling(**options)
    assert len(str(caught.value)) < 200


def test_numbers_of_any_type_and_size():
    """Converted, for the host and for the device, whose float32 they may exceed."""
    made = Sampling(np.float32(0.5), np.int64(3), Fraction(1, 2), 0, np.float16(2))
    assert made == Sampling(0.5, 3, 0.5, 0.0, 2.0)
    assert [type(value) for value in vars(made).values()] == [float, int, float, float, float]
    words = keys(np.random.default_rng(1))
    logits = np.random.default_rng(2).normal(0, 3, 50).astype(np.float32)
    with np.errstate(all="raise", under="ignore"):
        for options in ({"top_k": 10**400}, {"min_p": 5e-324}, {"top_p": 5e-324},
                        {"repetition_penalty": 1e308}, {"repetition_penalty": 5e-324}):
            choice = Choice(Sampling(1.0, **options), [1], words)
            row = choice.row(1)
            assert np.isfinite(row[2:]).all() and row[1] <= 0
            assert 0 <= choice.on_host(logits) < 50


def test_impossible_tokens_at_any_temperature():
    logits = np.array([1, -np.inf, 2], np.float32)
    sampling = Sampling(1e300, top_p=0.99)
    with np.errstate(all="raise", under="ignore"):
        found = {sampling.choose(logits, (), keys(np.random.default_rng(n))) for n in range(30)}
    assert found == {0, 2}


def test_sequences_with_different_options_share_runs(model):
    given = [{}, *({**OPTIONS[n], "seed": n} for n in (0, 3, 8))]

    def tokens(number: int) -> list[int]:
        return model.generate_tokens([number + 1, 5], 8, **given[number])

    alone = [tokens(number) for number in range(len(given))]
    model._engine.chooser.is_used = True
    with ThreadPoolExecutor(len(given)) as pool:
        assert list(pool.map(tokens, range(len(given)))) == alone


def test_the_cpu_leaves_choices_to_the_host(model):
    info = model.context.device_info
    is_gpu = info.is_vulkan and info.type != "cpu"
    assert model._engine.chooser.is_used == is_gpu


@pytest.mark.parametrize("options", [{}, {"top_k": 5}, {"top_p": 0.8}, {"min_p": 0.1}], ids=str)
def test_tokens_occur_as_often_as_they_are_probable(options):
    rng, count = np.random.default_rng(2), 4000
    logits = rng.normal(0, 1.5, 12).astype(np.float32)
    sampling = Sampling(1.2, **options)
    expected = count * sampling.probabilities(logits)
    found = np.bincount(
        [sampling.choose(logits, (), keys(rng)) for _ in range(count)], minlength=12
    )
    assert not found[expected == 0].any()
    expected, found = expected[expected > 0], found[expected > 0]
    deviation = np.square(found - expected) / expected
    freedom = len(expected) - 1
    assert deviation.sum() < freedom + 4 * np.sqrt(2 * freedom)


def test_noise():
    """Each bit of a token's number and of the keys changes all of the noise; its distribution is
    Gumbel's, to the ends."""
    rng, count = np.random.default_rng(3), 20_000
    tokens = rng.integers(0, 1 << 18, count).astype(np.uint32)
    words = rng.integers(0, 1 << 32, (2, count), np.uint32)
    values = noise(tokens, words)
    for changed in range(3):
        for bit in range(0, 18 if changed == 0 else 32, 3):
            given = [tokens, words[0].copy(), words[1].copy()]
            given[changed] = given[changed] ^ np.uint32(1 << bit)
            other = noise(given[0], np.stack(given[1:]))
            assert abs(np.corrcoef(values, other)[0, 1]) < 0.035
    alone = noise(np.arange(100_000), np.array([7, 9], np.uint32))
    for sample in (values, alone):
        uniform = np.sort(np.exp(-np.exp(-sample.astype(np.float64))))
        steps = np.arange(1, len(uniform) + 1) / len(uniform)
        assert np.abs(uniform - steps).max() < 1.7 / np.sqrt(len(uniform))
    assert np.isfinite(alone).all() and alone.max() > 10 > -2 > alone.min()


@pytest.fixture(scope="module")
def damaged(tmp_path_factory):
    """A folder of weights with NaN in the embedding of token 9."""
    config = CONFIGS["llama"]
    weights = random_weights(config, 3)
    weights["model.embed_tokens.weight"][9] = np.nan
    return write_folder(tmp_path_factory.mktemp("damaged"), config, weights)


@pytest.mark.sample(0.4)
@pytest.mark.parametrize("options", [{}, *OPTIONS[:1], {"temperature": 1.0, "top_p": 0.8},
                                     {"repetition_penalty": 1.2}], ids=str)
@pytest.mark.parametrize("device_chooses", [False, True])
def test_logits_that_are_no_numbers(damaged, context, options, device_chooses):
    """The sequence ends with an error that names the step; others that share its runs go on."""
    model = Model.load(damaged, context)
    model._engine.chooser.is_used = device_chooses
    alone = model.generate_tokens([1, 2], 6, seed=1, **options)
    results = {}

    def run(*ids: int) -> None:
        try:
            results[ids] = model.generate_tokens(ids, 6, seed=1, **options)
        except OperationError as error:
            results[ids] = str(error)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda ids: run(*ids), [(1, 2), (1, 2, 9)]))
    assert results[1, 2] == alone
    assert np.isnan(model.logits([1, 2, 9])[-1]).all() and np.isfinite(model.logits([1, 2])).all()
    assert results[1, 2, 9] == "no token can be chosen after 3: the largest logit is nan"
    with model.session() as session:
        for ids in ([1, 2, 9], [1, 2, 9]):
            with pytest.raises(OperationError, match="after 3"):
                list(session.tokens(ids, 6, **options))
            assert list(session.tokens([1, 2], 6, seed=1, **options)) == alone


def test_a_cache_for_which_no_memory_is_left(damaged, context, monkeypatch):
    """The next text has a new one."""
    model = Model.load(damaged, context)
    alone = model.generate_tokens([1, 2], 6)

    def full():
        raise OperationError("no memory")

    with monkeypatch.context() as patch:
        patch.setattr(model._engine, "cache", full)
        with pytest.raises(OperationError, match="no memory"):
            model.generate_tokens([1, 2, 9], 6)
    assert model.generate_tokens([1, 2], 6) == alone


def test_a_single_logit_that_is_no_number(context, tmp_path):
    """Every device finds it: ONNX Runtime's ArgMax ignores NaN."""
    weights = random_weights(CONFIGS["llama"], 3)
    weights["lm_head.weight"][8] = np.nan
    model = Model.load(write_folder(tmp_path, CONFIGS["llama"], weights), context)
    for options in ({}, {"temperature": 1.0}):
        with pytest.raises(OperationError, match="after 2: the largest logit is nan"):
            model.generate_tokens([1, 2], 3, **options)
