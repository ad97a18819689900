"""A signal at every place of calls that generate text, and of a model of rows."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tests.device.distributed.test_predictor import linear
from tests.support.contexts import open_context
from tests.support.interrupts import Places, interrupt
from tests.support.text_models import text_folder
from tests.system.interrupts.test_places import places
from webnn_vk import InvalidStateError
from webnn_vk.distributed.model import RowModel
from webnn_vk.generate import Model

PROMPT, TOKENS = [5, 6, 7], 4
#: Seconds within which a call of another thread ends.
PATIENCE = 60


def in_a_thread(call):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result(PATIENCE)


class World:
    """A model, what it answers without signals, and calls of each kind."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.session, self.stream = model.session(), model.stream("abc", 150)
        self.expected, self.text = self.tokens(), model.generate("abc", TOKENS)
        self.calls = {
            "generate": lambda: model.generate("abc", TOKENS),
            "generate_tokens": self.tokens,
            "sampled": lambda: model.generate_tokens(PROMPT, 2, temperature=1.0, top_k=4, seed=1),
            "logits": lambda: model.logits(PROMPT),
            "stream": lambda: list(model.stream("abc", TOKENS)),
            "close": lambda: model.stream("abc", TOKENS).close(),
            "session": self.converse,
            "report": model.report,
        }

    def tokens(self) -> list[int]:
        return self.model.generate_tokens(PROMPT, TOKENS)

    def converse(self) -> list[int]:
        with self.model.session() as session:
            return list(session.tokens(PROMPT, TOKENS))

    def check(self) -> None:
        """This thread and another get the right answers, in the kept session and in a new one."""
        assert in_a_thread(self.tokens) == self.expected
        assert self.converse() == self.expected
        assert list(self.session.tokens(PROMPT, TOKENS)) == self.expected
        assert self.model.generate("abc", TOKENS) == self.text


METHODS = ("generate", "generate_tokens", "sampled", "logits", "stream", "close", "session",
           "report")


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    context = open_context("cpu", cpu_engine="numpy")
    world = World(Model.load(text_folder(tmp_path_factory.mktemp("model")), context))
    yield world
    context.destroy()


@pytest.mark.sample(0.5)
@pytest.mark.parametrize("method", METHODS)
def test_an_interrupt_at_any_place(world, method, request):
    call = world.calls[method]
    for at in places(call, method, request):
        try:
            Places(at, interrupt).call(call)
        except KeyboardInterrupt:
            pass
        world.check()


@pytest.mark.sample(0.5)
@pytest.mark.parametrize("method", METHODS)
def test_a_handler_that_generates(world, method, request):
    """While another thread generates, too."""
    call, seen, is_over = world.calls[method], [], threading.Event()

    def others() -> None:
        while not is_over.is_set():
            assert world.converse() == world.expected

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(others)
        try:
            for at in places(call, method, request):
                signal = Places(at, lambda: seen.append(world.tokens()))
                signal.call(call)
                assert seen == [world.expected] * bool(signal.place), signal.place
                seen.clear()
        finally:
            is_over.set()
        other.result(PATIENCE)
    world.check()


@pytest.mark.parametrize("what", ["stream", "session"])
def test_a_handler_that_closes_what_is_read(world, what, request):
    """The text ends, or the call says that the session was closed."""

    def opened():
        if what == "stream":
            return (made := world.model.stream("abc", TOKENS)), lambda: list(made)
        made = world.model.session()
        return made, lambda: list(made.tokens(PROMPT, TOKENS))

    for at in places(opened()[1], what, request):
        made, read = opened()
        try:
            Places(at, made.close).call(read)
        except InvalidStateError as error:
            assert what == "session" and "the session was closed" in str(error)
    world.check()


@pytest.mark.parametrize("wait", ["interrupted", "cancelled"])
def test_pieces_after_interrupts(world, wait, request):
    """What an interrupted or cancelled call has computed comes next."""
    expected = list(world.model.stream("abc", 40))
    stream, found = world.model.stream("abc", 40), []

    async def cancelled() -> None:
        task = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])

    def read() -> None:
        stream._advance() if wait == "interrupted" else asyncio.run(cancelled())

    while piece := next(stream, None):
        found.append(piece)
        read()
    assert found == expected and len(found) > 3


def test_rows(request):
    """``RowModel.compute``, whose lock other threads need."""
    model = RowModel(linear().SerializeToString(), None, None, "cpu")
    feeds = {"x": np.ones((3, 4), np.float32)}
    expected = model.compute(feeds)["y"].tolist()
    for at in places(lambda: model.compute(feeds), "rows", request):
        try:
            Places(at, interrupt).call(lambda: model.compute(feeds))
        except KeyboardInterrupt:
            pass
        assert in_a_thread(lambda: model.compute(feeds))["y"].tolist() == expected
