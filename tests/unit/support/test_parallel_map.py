"""One function on many items, with as many threads as can be started."""

import threading

import pytest

from webnn_vk.support.parallel_map import spread


@pytest.mark.parametrize("workers", [1, 3, 100])
def test_results_are_in_order(workers):
    names = set()

    def double(x):
        names.add(threading.current_thread().name)
        return 2 * x

    assert spread(double, range(50), workers) == [2 * x for x in range(50)]
    assert threading.current_thread().name in names or workers > 1
    assert spread(double, [], workers) == []


def test_it_is_done_on_several_threads():
    meet = threading.Barrier(3, timeout=60)
    assert len(set(spread(lambda _: (meet.wait(), threading.get_ident())[1], range(3), 3))) == 3


@pytest.mark.parametrize("allowed", [0, 1, 2])
def test_with_the_threads_that_the_system_has(monkeypatch, allowed):
    start, left = threading.Thread.start, [allowed]

    def limited(thread):
        if not left[0]:
            raise RuntimeError("can't start new thread")
        left[0] -= 1
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    assert spread(lambda x: x * x, range(9), 4) == [x * x for x in range(9)]


def test_an_error_is_raised_when_all_have_ended():
    workers = set()

    def fail(x):
        workers.add(threading.current_thread())
        if x == 3:
            raise ValueError(f"not {x}")
        return x

    with pytest.raises(ValueError, match="not 3"):
        spread(fail, range(1000), 4)
    assert not any(thread.is_alive() for thread in workers - {threading.current_thread()})
