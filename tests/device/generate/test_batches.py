"""Sequences that share runs: each gives what it gives alone."""

from __future__ import annotations

import asyncio
import math
import random
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tests.support.discriminating import assert_allclose
from tests.support.reference_decoder import CONFIGS, random_weights, write_folder
from webnn_vk import InvalidStateError, MLContext, OperationError
from webnn_vk.generate import Model
from webnn_vk.generate.chooser import Choice
from webnn_vk.generate.sampling import Sampling
from webnn_vk.generate.scheduler import BATCHES, Run


def prompts(count: int, seed: int) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 256, rng.integers(1, 40)).tolist() for _ in range(count)]


def group_sizes(model: Model) -> list[int]:
    """The numbers of sequences of the runs from now on."""
    scheduler, sizes = model._engine.scheduler, []
    start = scheduler._start
    scheduler._start = lambda group: (sizes.append(len(group)), start(group))[1]
    return sizes


def compare_rows(model: Model, given: list[list[int]], **tolerance: float) -> None:
    """The logits of sequences that share a run, and of each alone."""
    alone, runs = [], []
    sessions = [model.session() for _ in given]
    for session, ids in zip(sessions, given, strict=True):
        alone.append(model.logits([*ids, 7])[-1])
        list(session.tokens(ids, 1))
        runs.append(Run(session._cache, [7], len(ids), wants="logits"))
    model._engine.scheduler._start(runs)
    together = [run.results.result()[run.row] for run in runs]
    tolerance = {"rtol": 2e-4, "atol": 2e-5} | tolerance
    assert_allclose(np.stack(together), np.stack(alone), **tolerance)
    for session in sessions:
        session.close()


@pytest.mark.sample(0.5)
@pytest.mark.parametrize("sequences", [n for n in BATCHES if n > 1])
def test_a_row_of_a_batch_has_the_logits_of_its_sequence(model, sequences):
    compare_rows(model, prompts(sequences, sequences))


def test_windows_of_sequences_that_share_a_run(context: MLContext, tmp_path):
    """Gemma 2, some of whose sequences are longer than the window of its first layer."""
    config = CONFIGS["gemma2"]
    write_folder(tmp_path, config, random_weights(config, 4))
    rng = np.random.default_rng(8)
    given = [rng.integers(0, config["vocab_size"], n).tolist() for n in (60, 3, 24, 31)]
    compare_rows(Model.load(tmp_path, context), given)


@pytest.mark.parametrize("sequences", [2, 16])
def test_matrices_in_panels(context: MLContext, tmp_path, sequences):
    """Sequences of a model whose matrices have 64 outputs and more (see ``test_logits``)."""
    config = {**CONFIGS["qwen3"], "hidden_size": 128, "intermediate_size": 192}
    write_folder(tmp_path, config, random_weights(config, 6))
    rng = np.random.default_rng(sequences)
    given = [rng.integers(0, config["vocab_size"], 1 + n).tolist() for n in range(sequences)]
    compare_rows(Model.load(tmp_path, context), given)


def test_activations_of_sequences_in_float16(context: MLContext, tmp_path):
    config = CONFIGS["qwen2"]
    write_folder(tmp_path, config, random_weights(config, 6))
    rng = np.random.default_rng(4)
    given = [rng.integers(0, config["vocab_size"], 5 + n).tolist() for n in range(4)]
    model = Model.load(tmp_path, context, dtype="int8", activations="float16")
    largest = max(np.abs(model.logits(ids)).max() for ids in given)
    compare_rows(model, given, rtol=0, atol=5e-3 * float(largest))


def test_sequences_in_threads_share_runs(model):
    given = prompts(8, 5)
    alone = [model.generate_tokens(ids, 24) for ids in given]
    sizes = group_sizes(model)
    hold_until_all_ask(model, 8)
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda ids: model.generate_tokens(ids, 24), given))
    assert together == alone
    assert max(sizes) == 8
    # 8 × 24 tokens, of which the first of each comes with its prompt.
    assert len(sizes) < 8 * 24 * 2 / 3


@pytest.mark.full
@pytest.mark.sample(0.5)
def test_sequences_join_and_leave_at_random(model):
    """24 sequences, greedy and sampled; some are cancelled."""
    count = 24
    given = prompts(count, 9)
    chance = random.Random(3)
    plans = [
        {"max_new_tokens": chance.randint(1, 30), "delay": chance.random() / 2,
         "cancel": chance.randint(1, 20) if chance.random() < 0.3 else None,
         "options": chance.choice([{}, {"temperature": 1.0, "top_k": 20, "seed": number}])}
        for number in range(count)
    ]

    def run(number: int) -> list[int]:
        plan, found = plans[number], []
        with model.session() as session:
            tokens = session.tokens(given[number], plan["max_new_tokens"], **plan["options"])
            for token in tokens:
                found.append(token)
                if len(found) == plan["cancel"]:
                    break
        return found

    def later(number: int) -> list[int]:
        time.sleep(plans[number]["delay"])
        return run(number)

    alone = [run(number) for number in range(count)]
    choice = Choice(Sampling(temperature=1.0, top_k=20), (), np.zeros(2, np.uint32))
    for sequences in BATCHES:
        model._engine.scheduler._tensors_of(model._engine.graph(1, False, sequences), 1)
        if model._engine.chooser.is_used:
            model._engine.chooser.prepare([choice] * sequences)
    device = model.context._state.device
    sizes, memory = group_sizes(model), device.memory_in_use()
    hold_until_all_ask(model, 8)
    with ThreadPoolExecutor(24) as pool:
        together = list(pool.map(later, range(count)))
    assert together == alone
    assert max(sizes) >= 8
    cache = len(model._engine.decoder.names()) * math.prod(model._engine.decoder.cache_shape()) * 4
    assert device.memory_in_use() - memory < cache


def test_streams_on_asyncio_share_runs(model):
    """More of them than asyncio has threads."""
    texts = [f"text {number} and more" for number in range(16)]
    alone = [model.generate(text, 6) for text in texts]
    sizes = group_sizes(model)
    hold_until_all_ask(model, 8)

    async def text_of(prompt: str) -> str:
        return "".join([piece async for piece in model.stream(prompt, 6)])

    async def all_texts() -> list[str]:
        return await asyncio.gather(*map(text_of, texts))

    assert asyncio.run(all_texts()) == alone
    assert max(sizes) >= 8


def test_a_stream_is_closed_while_another_thread_waits(model):
    stream = model.stream("abc", 1000)
    pieces, scheduler = [], model._engine.scheduler
    compute = scheduler.compute

    def held(run: Run) -> np.ndarray:
        while pieces and not stream._is_closed:
            time.sleep(0.001)
        return compute(run)

    scheduler.compute = held
    reader = threading.Thread(target=lambda: pieces.extend(stream))
    reader.start()
    while not pieces:
        time.sleep(0.001)
    stream.close()
    reader.join()
    # The first piece, and the token that was being computed.
    assert len(pieces) <= 2 and list(stream) == []


def test_a_stream_that_ended_frees_its_cache(model):
    free = threading.Event()
    stream = model.stream("abc", 3)
    end = stream.at_end
    stream.at_end = lambda: (end(), free.set())
    assert list(stream) and free.is_set()
    stream = model.stream("abc", 3)
    session = stream.at_end.__self__
    stream.close()
    with pytest.raises(InvalidStateError, match="the session was closed"):
        session.logits([1])


def hold_until_all_ask(model: Model, count: int) -> None:
    """The first run for single tokens starts once ``count`` sequences or more ask for it."""
    scheduler, barrier = model._engine.scheduler, threading.Barrier(count, timeout=60)
    compute, next_runs, seen = scheduler.compute, scheduler._next_runs, set()

    def compute_together(run: Run) -> np.ndarray:
        if run.is_shared and id(run.cache) not in seen and len(seen) < count:
            seen.add(id(run.cache))
            barrier.wait()  # until then, the others still run their prompts
        return compute(run)

    def held_runs() -> list[Run]:
        # The caller holds the lock, which waiting releases.
        if next_runs()[0].is_shared:
            del scheduler._next_runs
            assert scheduler._changed.wait_for(all_ask, 60)
        return next_runs()

    def all_ask() -> bool:
        return sum(run.is_shared and not run.is_started for run in scheduler._waiting) >= count

    scheduler.compute, scheduler._next_runs = compute_together, held_runs


def test_an_error_reaches_all_sequences_of_a_run(model):
    """And the next run is none of its business."""
    given = prompts(4, 8)
    alone = [model.generate_tokens(ids, 6) for ids in given]
    scheduler = model._engine.scheduler
    graph, failures = scheduler.graph, []
    hold_until_all_ask(model, 4)

    def broken(tokens, every=False, sequences=1):
        if sequences == 4 and not failures:
            failures.append("")
            raise OperationError("no such graph")
        return graph(tokens, every, sequences)

    scheduler.graph = broken

    def run(ids: list[int]) -> list[int]:
        with model.session() as session:
            try:
                return list(session.tokens(ids, 6))
            except OperationError as error:
                failures.append(str(error))
                return list(session.tokens(ids, 6))

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(run, given)) == alone
    assert failures == ["", *["no such graph"] * 4]


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="no signals to threads")
def test_an_interrupted_thread_keeps_its_cache_until_its_run_is_over(model):
    """Ctrl-C in a thread whose sequence shares a run: the other sequence goes on, although the
    interrupted one closes its session."""
    ours, theirs = prompts(2, 12)
    alone = model.generate_tokens(theirs, 10)
    scheduler, sizes, results = model._engine.scheduler, [], []
    hold_until_all_ask(model, 2)
    start = scheduler._start

    def interrupt(group):
        sizes.append(len(group))
        if sizes.count(2) == 1 and len(group) == 2:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            time.sleep(0.3)
        start(group)

    scheduler._start = interrupt

    def run() -> None:
        with model.session() as session:
            results.extend(session.tokens(theirs, 10))

    other = threading.Thread(target=run)
    other.start()
    with pytest.raises(KeyboardInterrupt), model.session() as session:
        list(session.tokens(ours, 10))
    other.join()
    assert 2 in sizes and results == alone
