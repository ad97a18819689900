"""Sessions: what is kept of a conversation, what tokens are chosen, and texts."""

from __future__ import annotations

import asyncio
import json
import math
import re
import threading

import numpy as np
import pytest

from tests.support.contexts import PATIENCE, open_context
from tests.support.discriminating import assert_allclose
from tests.support.reference_decoder import random_weights, write_folder
from tests.support.text_models import CONFIG, text_folder
from webnn_vk import InvalidStateError, OperationError, UnknownError
from webnn_vk.generate import InvalidModelError, Model, Sampling
from webnn_vk.generate.tokens import TextGrowth
from webnn_vk.runtime.throttle import Throttle
from webnn_vk.support.promise import MLPromise


def test_a_conversation_reuses_what_it_begins_with(model):
    ids = np.random.default_rng(1).integers(0, 256, 40).tolist()
    with model.session() as session:
        first = list(session.tokens(ids, 6))
        assert session.ids == [*ids, *first[:-1]]
        runs, run = [], session._run

        def counted(part, size, **how):
            runs.append(len(part))
            return run(part, size, **how)

        session._run = counted
        more = [*ids, *first, 7, 8, 9]
        second = list(session.tokens(more, 6))
        assert runs[0] == 4 and runs[1:] == [1] * 5  # the last token, three more, then one by one
        assert second == model.generate_tokens(more, 6)
        # Another continuation, and the same tokens again.
        other = [*ids[:20], 3, 4]
        assert list(session.tokens(other, 5)) == model.generate_tokens(other, 5)
        assert list(session.tokens(other, 5)) == model.generate_tokens(other, 5)


def test_sessions_do_not_disturb_each_other(model):
    rng = np.random.default_rng(2)
    prompts = [rng.integers(0, 256, n).tolist() for n in (5, 17, 30)]
    alone = [model.generate_tokens(ids, 8) for ids in prompts]
    running = [model.session().tokens(ids, 8) for ids in prompts]
    together: list[list[int]] = [[], [], []]
    for _ in range(8):
        for tokens, stream in zip(together, running, strict=True):
            tokens.append(next(stream))
    assert together == alone
    results = {}

    def run(number):
        results[number] = model.generate_tokens(prompts[number], 8)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [results[n] for n in range(3)] == alone


def test_texts_and_streams(model):
    text = model.generate("grüß dich", 30)
    assert text and text == "".join(model.stream("grüß dich", 30))
    tokens = model.generate_tokens(model.tokenizer.encode("grüß dich"), 30)
    assert model.tokenizer.decode(tokens) == text

    async def pieces():
        return [piece async for piece in model.stream("grüß dich", 30)]

    assert "".join(asyncio.run(pieces())) == text
    messages = [{"role": "user", "content": "hi"}]
    prompt = model.tokenizer.apply_chat_template(messages)
    assert prompt == "<user>hi</><assistant>"
    assert model.generate(messages, 9) == model.generate(prompt, 9)


def test_pieces_are_whole_characters(model):
    """A token is a byte here, and most characters have several."""
    text = "Zürich 🙂 東京 é\u0301 x"
    tokenizer = model.tokenizer
    tokens = tokenizer.encode(text, add_special_tokens=False)
    assert len(tokens) == len(text.encode())
    growth = TextGrowth(tokenizer)
    pieces = [growth.add(token) for token in tokens]
    assert "".join(pieces) == text and growth.finish() == ""
    assert [len(piece) for piece in pieces if piece] == [1] * len(text)
    # An incomplete character at the end is shown as such.
    growth = TextGrowth(tokenizer)
    assert [growth.add(token) for token in tokens[:2]] == ["Z", ""]
    assert growth.finish() == "\ufffd"


@pytest.mark.parametrize(("options", "device_chooses"), [
    ({}, False), ({"temperature": 1.0}, False),
    ({"temperature": 1.0, "top_k": 9, "repetition_penalty": 1.1}, True),
])
def test_a_token_is_one_submit(model, options, device_chooses, monkeypatch):
    """If the timeline's thread doesn't run between the calls for a token, as it may beside other
    work."""
    if not model.context.device_info.is_vulkan:
        pytest.skip("the CPU device has no queue")
    model._engine.chooser.is_used = device_chooses
    # Beside much other work the first tokens take so long that a submit would be cut in two.
    monkeypatch.setattr(Throttle, "seconds", lambda *_: 0.001)
    driver = model.context._state.device.driver
    scheduler = model._engine.scheduler
    start, inbox = scheduler._start, model.context._state.timeline._scheduler.inbox

    def start_at_once(group):
        stopped, made = threading.Event(), threading.Event()
        inbox.put(lambda: (stopped.set(), made.wait(PATIENCE)))
        assert stopped.wait(PATIENCE)
        try:
            start(group)
        finally:
            made.set()

    with model.session() as session:
        tokens = session.tokens([1, 2, 3], 12, **options)
        next(tokens), next(tokens)  # compiles
        monkeypatch.setattr(scheduler, "_start", start_at_once)
        for _ in range(10):
            before = driver.submitted()
            next(tokens)
            assert driver.submitted() - before == 1


def test_out_of_memory_says_how_much_context_would_fit(model, folder):
    class Limited:
        """A context with this many bytes for tensors."""

        def __init__(self, context, room):
            self.context, self.room = context, room

        def create_tensor(self, descriptor):
            self.room -= math.prod(descriptor["shape"]) * 4
            if self.room < 0:
                return MLPromise.rejected(UnknownError("no memory"))
            return self.context.create_tensor(descriptor)

    def session(made):
        made._engine.context = Limited(made.context, room)
        try:
            return made.session()
        finally:
            made._engine.context = made._engine.context.context

    room = 70_000  # of 83,712 bytes
    with pytest.raises(OperationError, match="no memory for a context of 200 tokens") as caught:
        session(model)
    fits = int(re.search(r"\(context_length=(\d+)\)", str(caught.value))[1])
    assert 100 < fits < 200
    smaller = Model.load(folder, model.context, context_length=fits)
    with session(smaller) as found:
        assert len(list(found.tokens([1, 2, 3], 4))) == 4
    room = 15_000  # not even for the rows of a chunk
    with pytest.raises(OperationError, match="a context of 200 tokens: no memory$"):
        session(model)


def test_a_stream_ends_early(model):
    stream = model.stream("abc", 50)
    first = next(stream)
    stream.close()
    stream.close()
    assert list(stream) == []
    assert model.generate("abc", 50).startswith(first)


def test_stop_texts_and_tokens(folder, model, context, tmp_path):
    text = model.generate("abc", 40)
    stop = text[10:13]
    assert model.generate("abc", 40, stop=stop) == text[: text.index(stop)]
    assert model.generate("abc", 40, stop=["nothing like it", stop]) == text[: text.index(stop)]
    tokens = model.generate_tokens([1, 2, 3], 10)
    end = tokens[4]
    ended = Model.load(
        text_folder(tmp_path / "ended", generation_config={"eos_token_id": [end, 299]}), context
    )
    assert ended.stop_tokens == {end, 299}
    assert ended.generate_tokens([1, 2, 3], 10) == tokens[: tokens.index(end)]


def test_sampled_tokens(model):
    options = {"temperature": 1.2, "top_k": 40, "top_p": 0.95, "min_p": 0.01}
    ids = [10, 20, 30]
    first = model.generate_tokens(ids, 20, seed=1, **options)
    assert first == model.generate_tokens(ids, 20, seed=1, **options)
    assert first != model.generate_tokens(ids, 20, seed=2, **options)
    greedy = model.generate_tokens(ids, 20)
    assert model.generate_tokens(ids, 20, temperature=0.7, top_k=1, seed=3) == greedy
    assert model.generate_tokens(ids, 20, temperature=1e-4, seed=3) == greedy
    apart = model.generate_tokens(ids, 20, repetition_penalty=1e6)
    assert len({*ids, *apart}) == len(ids) + len(apart)  # no token twice


def test_defaults_of_the_folder(context, tmp_path):
    generation = {"do_sample": True, "temperature": 0.7, "top_p": 0.9, "bos_token_id": 1}
    model = Model.load(text_folder(tmp_path / "sampled", generation_config=generation), context)
    ids = [1, 2, 3]
    explicit = {"temperature": 0.7, "top_p": 0.9, "seed": 5}
    assert model.generate_tokens(ids, 12, seed=5) == model.generate_tokens(ids, 12, **explicit)
    assert model.generate_tokens(ids, 12, temperature=0) == model.generate_tokens(
        ids, 12, temperature=0, seed=9
    )


def test_the_context_ends(model, folder, context):
    short = Model.load(folder, context, context_length=12)
    ids = list(range(1, 9))
    tokens = short.generate_tokens(ids, 100)
    assert tokens == model.generate_tokens(ids, len(tokens)) and len(tokens) == 5
    for wrong in (0, 201):
        with pytest.raises(ValueError, match=f"context_length is {wrong}; 1 to 200 are"):
            Model.load(folder, context, context_length=wrong)
    with pytest.raises(TypeError, match="'float' object"):
        Model.load(folder, context, context_length=12.5)
    with pytest.raises(ValueError, match="13 tokens exceed the context of 12"):
        short.generate_tokens(list(range(13)))
    assert len(short.logits(list(range(12)))) == 12


@pytest.mark.parametrize(("call", "message"), [
    (lambda m: m.generate_tokens([]), "at least one is needed"),
    (lambda m: m.generate_tokens([300]), "not in the vocabulary of 300"),
    (lambda m: m.generate_tokens([1], -1), "max_new_tokens is -1"),
    (lambda m: m.generate_tokens([1], 1.5), "max_new_tokens is 1.5; an integer ≥ 0"),
    (lambda m: m.generate_tokens([1], 1e300), "max_new_tokens is 1e"),
    (lambda m: m.generate_tokens([1], seed=-1), "seed is -1; an integer ≥ 0"),
    (lambda m: m.generate_tokens([1], temperature=-1), "temperature is -1"),
    (lambda m: m.generate_tokens([1], top_p=0), "top_p is 0"),
    (lambda m: m.generate_tokens([1], min_p=2), "min_p is 2"),
    (lambda m: m.generate_tokens([1], top_k=20.0), "top_k is 20.0; an integer ≥ 0"),
    (lambda m: m.generate_tokens([1], top_k=math.inf), "top_k is inf"),
    (lambda m: m.generate_tokens([1], repetition_penalty=0), "repetition_penalty is 0"),
    (lambda m: m.generate("x", stop=""), "none of them empty"),
])
def test_wrong_arguments(model, call, message):
    with pytest.raises(ValueError, match=message):
        call(model)


def test_wrong_options_and_messages(model):
    with pytest.raises(TypeError, match="unknown option 'temprature'"):
        model.generate_tokens([1], temprature=1)
    for ids in ([1.7], ["1"], "12"):
        with pytest.raises(TypeError, match="integer"):
            model.logits(ids)
    for messages in ([{"content": "x"}], [3], 5):
        with pytest.raises(TypeError, match="message"):
            model.generate(messages)
    session = model.session()
    session.close()
    with pytest.raises(InvalidStateError, match="closed"):
        list(session.tokens([1]))


def test_probabilities():
    scores = np.log(np.array([0.5, 0.3, 0.15, 0.05]))
    for sampling, expected in (
        (Sampling(1.0), [0.5, 0.3, 0.15, 0.05]),
        (Sampling(1.0, top_k=2), [0.625, 0.375, 0, 0]),
        (Sampling(1.0, top_p=0.5), [1, 0, 0, 0]),
        (Sampling(1.0, top_p=0.51), [0.625, 0.375, 0, 0]),
        (Sampling(1.0, min_p=0.3), [0.5 / 0.95, 0.3 / 0.95, 0.15 / 0.95, 0]),
        (Sampling(0.5), np.array([0.25, 0.09, 0.0225, 0.0025]) / 0.365),
    ):
        assert_allclose(sampling.probabilities(scores), expected, rtol=1e-12)


def test_a_model_without_a_tokenizer(context, tmp_path):
    write_folder(tmp_path, CONFIG, random_weights(CONFIG, 3))
    model = Model.load(tmp_path, context)
    assert model.generate_tokens([1, 2], 3)
    with pytest.raises(InvalidModelError, match="no tokenizer"):
        model.generate("text")
    assert json.loads((tmp_path / "config.json").read_text()) == CONFIG


@pytest.mark.device
@pytest.mark.full
def test_long_prompts_on_gpus_are_computed_512_tokens_at_a_time(tmp_path):
    """lavapipe, simulating a GPU. Where a graph takes any number of tokens, the rest of them."""
    config = {**CONFIG, "max_position_embeddings": 540, "num_hidden_layers": 1}
    folder = write_folder(tmp_path, config, random_weights(config, 3))
    ids = np.random.default_rng(4).integers(0, 256, 522).tolist()
    with open_context("cpu") as context:
        expected = Model.load(folder, context).session().logits(ids)[-1]
    for experimental, sizes in (((), [512, 16]), (("dynamic-shapes",), [512, 10])):
        with open_context(
            limits={"device_type": "discrete"}, experimental=experimental
        ) as context, Model.load(folder, context).session() as session:
            parts = list(session._engine.chunks(ids))
            assert [size for _, size in parts] == sizes
            assert [token for part, _ in parts for token in part] == ids
            assert [size for _, size in session._engine.chunks(ids, every=True)] == [128] * 4 + [16]
            found = session._feed(ids, "logits")
            assert_allclose(found.reshape(-1), expected, rtol=1e-3, atol=1e-4)
