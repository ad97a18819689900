"""Turns of direct submits: each is taken once, whatever becomes of the thread that takes it."""

import threading
import time
from functools import partial

import pytest

from webnn_vk.driver.direct import Turns

#: Functions of C, as a submit is: success, and an error without a submit.
SUBMIT, FAILURE = int, partial(int, -4)


@pytest.fixture
def turns():
    turns = Turns()
    turns.open(7)
    return turns


def test_a_turn_is_taken_once(turns):
    turn = turns.next()
    assert turn.value == 8
    assert turn.take([SUBMIT]) == 0
    assert turn.take([SUBMIT]) is None
    assert turns.next().value == 9


def test_nothing_is_called_by_a_thread_that_comes_too_late(turns):
    called = []
    turn = turns.next()
    turn.take([SUBMIT])
    assert turn.take([partial(called.append, 1), SUBMIT]) is None
    assert not called


def test_an_error_of_a_signal_handler_is_none_of_a_thread_that_comes_too_late(turns):
    """Python runs it right before or after the call into C; here it is called inside."""

    def handler():
        raise IndexError("of the handler")

    turn = turns.next()
    with pytest.raises(IndexError, match="of the handler"):
        turn.take([SUBMIT, handler])
    assert turns.next().value == 9


def test_a_failed_submit_leaves_its_value_to_the_next(turns):
    assert turns.next().take([FAILURE]) == -4
    turn = turns.next()
    assert turn.value == 8
    turn.take([SUBMIT])
    assert turns.close() == 8


def test_functions_before_the_submit_are_called_in_order(turns):
    called = []
    append = partial(called.append, "copy"), partial(called.append, "and another")
    assert turns.next().take([*append, SUBMIT]) == 0
    assert called == ["copy", "and another"]


def test_nobody_takes_a_turn_that_was_closed(turns):
    turn = turns.next()
    turn.take([SUBMIT])
    after = turns.next()
    assert turns.close() == 8
    assert after.take([SUBMIT]) is None
    assert turns.next() is None
    assert turns.close() is None


def test_turns_that_were_closed_before_anybody_asked_for_the_next(turns):
    turn = turns.next()
    turn.take([SUBMIT])
    assert turns.close() == 8
    turns.open(8)
    assert turns.next().value == 9
    assert turn.after().take([SUBMIT]) is None


def test_a_value_of_before_comes_not_again_after_others_were_submitted(turns):
    """A thread may stop for a while between any two steps."""
    turn = turns.next()
    for _ in range(3):
        turns.next().take([SUBMIT])
    assert turns.close() == 10
    turns.open(12)
    assert turn.take([SUBMIT]) is None
    assert turns.next().value == 13


def test_closing_waits_for_a_call_that_has_begun(turns):
    begun = threading.Lock()
    begun.acquire()
    turn = turns.next()
    calls = [begun.release, partial(time.sleep, 0.2), SUBMIT]
    thread = threading.Thread(target=turn.take, args=(calls,))
    thread.start()
    assert begun.acquire(timeout=60)
    assert turn.result is None
    assert turns.next() is turn and turn.take([SUBMIT]) is None
    assert turns.close() == 8
    assert turn.result == 0
    thread.join()


def test_each_value_once_from_many_threads_while_others_close_and_open():
    """As the driver does, which closes and opens with a lock held."""
    turns, lock, submitted = Turns(), threading.Lock(), []
    turns.open(0)
    over = threading.Event()

    def submit():
        while not over.is_set():
            turn = turns.next()
            if turn is not None:
                turn.take([partial(submitted.append, turn.value), SUBMIT])

    threads = [threading.Thread(target=submit) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(40):
        time.sleep(0.001)
        with lock:
            last = turns.close()
            assert submitted[-1:] in ([], [last])
            submitted.append(last + 1)  # a submit of the driver's own
            turns.open(last + 1)
    over.set()
    for thread in threads:
        thread.join()
    assert submitted == list(range(1, len(submitted) + 1))
    assert len(submitted) > 80


def test_turns_are_freed(turns):
    import gc
    import weakref

    class Seen:
        pass

    seen = Seen()
    gone = weakref.ref(seen)
    turns.next().take([partial(isinstance, seen, Seen), SUBMIT])
    del seen
    for _ in range(3):
        turns.next().take([SUBMIT])
    turns.next()
    assert gone() is None, gc.get_referrers(gone())
