"""The choice of the next job: several streams on one device, without threads."""

from types import SimpleNamespace

from webnn_vk.runtime.schedule import (
    MAX_BATCH_WORKS,
    MAX_IN_FLIGHT,
    SHORT_SECONDS,
    Follow,
    Schedule,
    StreamState,
)
from webnn_vk.runtime.storage import Storage
from webnn_vk.runtime.throttle import AHEAD_SECONDS, BATCH_SECONDS, Cost, Duration, throttle_of
from webnn_vk.runtime.work import (
    Allocate,
    Await,
    Lend,
    Read,
    Refuse,
    Return,
    Run,
    RunGraph,
    Submit,
    Write,
)
from webnn_vk.support.errors import OperationError


def run():
    return Run(lambda: None, lambda error: None)


def graph(seconds=0.0, on_host=False):
    """A job with a measured duration; None: not measured yet."""
    cost = Cost(seconds=seconds)
    return RunGraph(SimpleNamespace(cost=cost, on_host=on_host), {}, {})


def streams(count):
    schedule = Schedule(throttle_of(None), streams=count)
    return schedule, [StreamState() for _ in range(count)]


def test_work_of_all_lanes_goes_in_the_order_of_the_calls():
    schedule, (a, b) = streams(2)
    works = [run() for _ in range(4)]
    for stream, work in zip((a, b, b, a), works, strict=True):
        schedule.append(stream, [work])
    batch = schedule.next()
    assert batch.works == works and batch.stream is None
    assert schedule.next() is None
    assert (schedule.completed(a), schedule.completed(b)) == (0, 0)
    schedule.host_done(batch)
    schedule.over(batch)
    assert (schedule.completed(a), schedule.completed(b)) == (4, 4)
    assert schedule.at_rest


def test_work_on_the_host_stops_its_own_lane_only():
    schedule, (a, b) = streams(2)
    before, mixed, behind, other = run(), graph(on_host=True), run(), run()
    schedule.append(a, [before, mixed, behind])
    schedule.append(b, [other])
    first = schedule.next()
    assert first.works == [before]
    host = schedule.next()
    assert host.works == [mixed] and host.stream is a
    free = schedule.next()
    assert free.works == [other] and free.stream is None
    assert schedule.next() is None
    for batch in (first, free):
        schedule.over(batch)
    # b is finished except for the part that a holds back; a's host work is running.
    assert (schedule.completed(a), schedule.completed(b)) == (1, 4)
    assert not schedule.at_rest
    schedule.host_done(host)
    assert schedule.completed(a) == 1  # on the device now
    last = schedule.next()
    assert last.works == [behind]
    schedule.over(host)
    assert schedule.completed(a) == 2
    schedule.over(last)
    assert (schedule.completed(a), schedule.completed(b)) == (4, 4)


def test_a_lane_alone_keeps_its_work_on_the_host_in_its_batch():
    schedule, (a,) = streams(1)
    works = [run(), graph(on_host=True), run()]
    schedule.append(a, works)
    assert schedule.next().works == works


def test_a_follower_waits_for_the_lane_that_it_follows():
    schedule, (a, b, c) = streams(3)
    mixed, behind, early, late, other = graph(on_host=True), run(), run(), run(), run()
    schedule.append(a, [mixed, behind])
    schedule.append(b, [early, Follow(a), late])
    schedule.append(c, [other])
    host = schedule.next()
    assert host.stream is a
    assert schedule.next().works == [early, other]
    assert schedule.next() is None
    schedule.host_done(host)
    assert schedule.next().works == [behind, late]


def test_a_follower_of_a_lane_that_goes_on_costs_nothing():
    schedule, (a, b) = streams(2)
    first, second = run(), run()
    schedule.append(a, [first])
    schedule.append(b, [Follow(a), second])
    batch = schedule.next()
    assert batch.works == [first, second]
    schedule.over(batch)
    assert schedule.completed(b) == 3


def test_what_is_held_back_keeps_its_place_over_several_waits():
    schedule, (a, b) = streams(2)
    first, second, third = graph(on_host=True), graph(on_host=True), run()
    schedule.append(a, [first, second, third])
    schedule.append(b, [run()])
    host = schedule.next()
    assert schedule.next().works != [] and schedule.next() is None
    schedule.append(a, [fourth := run()])
    schedule.host_done(host)
    host = schedule.next()
    assert host.works == [second] and schedule.next() is None
    schedule.host_done(host)
    assert schedule.next().works == [third, fourth]


def test_two_lanes_on_the_host_at_once():
    schedule, (a, b) = streams(2)
    schedule.append(a, [graph(on_host=True), late_a := run()])
    schedule.append(b, [Await(lambda: None), late_b := run()])
    first, second = schedule.next(), schedule.next()
    assert (first.stream, second.stream) == (a, b) and schedule.next() is None
    schedule.host_done(second)
    assert schedule.next().works == [late_b]
    schedule.host_done(first)
    assert schedule.next().works == [late_a]


def sizes(schedule):
    """The batches, each started when the previous one has ended."""
    found = []
    while (batch := schedule.next()) is not None:
        found.append(len(batch.works))
        schedule.over(batch)
    return found


def test_bounds_of_a_batch():
    schedule, (a,) = streams(1)
    fifth = BATCH_SECONDS / 5
    schedule.append(a, [graph(n * fifth) for n in (2, 2, 2, 11, 1)])
    # A job that takes more than a batch may goes alone.
    assert sizes(schedule) == [2, 1, 1, 1]
    schedule.append(a, [run()] * (MAX_BATCH_WORKS + 1))
    assert len(schedule.next().works) == MAX_BATCH_WORKS
    assert len(schedule.next().works) == 1


def test_no_more_than_the_device_takes():
    schedule, (a,) = streams(1)
    batches = []
    for _ in range(MAX_IN_FLIGHT):
        schedule.append(a, [run()])
        batches.append(schedule.next())
    schedule.append(a, [run()])
    assert schedule.next() is None
    schedule.over(batches[0])
    assert len(schedule.next().works) == 1


def started(schedule):
    """All batches that the device accepts at present."""
    return list(iter(schedule.next, None))


def test_what_waits_on_the_device_is_bounded_in_time():
    schedule, (a,) = streams(1)
    short = graph(BATCH_SECONDS)
    assert 2 * BATCH_SECONDS < AHEAD_SECONDS < 3 * BATCH_SECONDS
    schedule.append(a, [short] * 10)
    first, *others = started(schedule)
    assert len(others) == 2
    schedule.over(first)
    (last,) = started(schedule)
    # It takes longer than estimated: the current work has to end first.
    schedule.over(others[0], Duration(10))
    assert started(schedule) == []
    schedule.over(others[1])
    assert started(schedule) == []
    schedule.over(last)
    assert len(started(schedule)) == 1


def test_nothing_waits_behind_a_long_one():
    schedule, (a,) = streams(1)
    long = graph(AHEAD_SECONDS * 1.1)
    schedule.append(a, [long, works := run(), long, after := run()])
    (first,) = started(schedule)
    assert first.works == [long, works]
    # A job of negligible duration would go, if it were first.
    schedule.append(a, [run(), run()])
    assert started(schedule) == []
    schedule.over(first)
    (second,) = started(schedule)
    assert second.works[:2] == [long, after]


def test_a_graph_that_never_ran_goes_once_until_it_was_measured():
    schedule, (a,) = streams(1)
    new = graph(None)
    schedule.append(a, [run(), *[new] * 100, run()])
    (first,) = started(schedule)
    assert first.works[1:] == [new]
    schedule.over(first, Duration(BATCH_SECONDS / 10))
    batch = schedule.next()
    assert len(batch.works) == 10
    # It doesn't report its own failure: that is known by now.
    schedule.over(batch)
    assert len(schedule.next().works) == 10


def test_on_a_new_device_one_graph_is_measured_first():
    schedule, (a,) = streams(1)
    schedule.append(a, [graph(None) for _ in range(10)])
    (first,) = started(schedule)
    assert len(first.works) == 1
    schedule.over(first, Duration(0.001))
    # The others then go together: the device's known rate has to do for them.
    assert sum(len(batch.works) for batch in started(schedule)) == 9


def test_work_on_the_host_keeps_no_other_lane_from_being_measured():
    schedule, (a, b) = streams(2)
    schedule.append(a, [graph(None, on_host=True)])
    schedule.append(b, [new := graph(None)])
    host, device = started(schedule)
    assert host.stream is a and device.works == [new]


def test_the_user_s_own_command_buffers_are_measured_too():
    schedule, (a,) = streams(1)
    schedule.append(a, [Submit([]) for _ in range(100)])
    (first,) = started(schedule)
    assert len(first.works) == 1
    schedule.over(first, Duration(0.06))
    assert [len(batch.works) for batch in started(schedule)] == [3, 3, 3, 2]


def test_a_wait_for_another_side_is_no_measure():
    schedule, (a,) = streams(1)
    new = graph(None)
    schedule.append(a, [Submit([], wait=[(None, 1)]), new])
    batch = schedule.next()
    assert len(batch.works) == 2
    schedule.over(batch, Duration(100))
    assert new.executable.cost.seconds is None


def test_allocations_wait_for_what_runs_and_waits_begin_a_batch():
    schedule, (a,) = streams(1)
    works = [run(), Allocate(None), run(), Submit([], wait=[(None, 1)]), Await(print), run()]
    schedule.append(a, works)
    first = schedule.next()
    assert first.works == works[:1]
    assert schedule.next() is None
    schedule.over(first)
    assert schedule.next().works == works[1:3]
    assert schedule.next().works == works[3:4]
    assert schedule.next().works == works[4:]


def test_runs_that_callers_wait_for_alone():
    """Only where nothing else runs, is queued or was held back, every result is read last, and
    the runs are short. The end of a batch is expected also if other work precedes the last read."""
    def result(last=True):
        return Read(Storage(4, None), print, print, last=last)

    for works, alone, expected in (
        ([graph(), result()], True, True),
        ([graph(), result(), graph(), result(), result()], True, True),
        ([graph(), result(last=False)], False, True),
        ([graph(SHORT_SECONDS / 2), result()], True, True),
        ([graph(SHORT_SECONDS), result()], False, False),
        ([graph(None), result()], False, False),
        ([graph()], False, False),
        ([result(), graph()], False, False),
        ([Write(Storage(4, None), None), graph(), result()], False, True),
        ([run(), graph(), result()], False, True),
    ):
        schedule, (a,) = streams(1)
        schedule.append(a, works)
        batch = schedule.next()
        assert (batch.alone, batch.expected) == (alone, expected), works
        schedule.append(a, [graph(), result()])
        batch = schedule.next()
        assert not batch.alone and not batch.expected, "there is a batch before it"
    schedule, (a, b) = streams(2)
    schedule.append(a, [graph(), result(), graph(on_host=True)])
    batch = schedule.next()
    assert not batch.alone and not batch.expected, "there is work behind it"


def test_short_work_before_a_fence_is_expected():
    for works, expected in (
        ([graph()], True), ([Write(Storage(4, None), None)], True), ([graph(1.0)], False),
    ):
        for fenced in (False, True):
            schedule, (a,) = streams(1)
            schedule.append(a, works)
            batch = schedule.next(fenced)
            assert batch.works == works and not batch.alone
            assert batch.expected == (expected and fenced)
    schedule, (a, b) = streams(2)
    schedule.append(a, [graph()])
    assert schedule.next(True).expected
    schedule.append(b, [graph()])
    assert not schedule.next(True).expected, "it runs beside other work"


def test_a_longer_batch_ends_with_its_results():
    """Short runs share a batch; all results of a run are in the same one."""
    def result():
        return Read(Storage(4, None), print, print, last=True)

    schedule, (a,) = streams(1)
    half = SHORT_SECONDS / 2
    works = [
        [graph(half), result(), graph(half), result(), result()],
        [graph(half), result(), graph(half), graph(half), result()],
        [graph(3 * SHORT_SECONDS), run(), result()],
        [graph(0.0), result(), run()],
    ]
    schedule.append(a, [work for batch in works for work in batch])
    for batch in works:
        assert schedule.next().works == batch
    assert schedule.next() is None


def test_what_is_dropped_is_never_over():
    schedule, (a, b) = streams(2)
    schedule.append(a, [graph(on_host=True), held := run()])
    host = schedule.next()
    schedule.append(b, [run()])
    free = schedule.next()
    schedule.append(b, [waiting := run()])
    assert schedule.drop() == [held, waiting]
    schedule.host_done(host)
    for batch in (host, free):
        schedule.over(batch)
    assert schedule.at_rest and schedule.next() is None
    assert schedule.completed(a) == 1 and schedule.completed(b) == 3
    assert schedule.queued == 4


def test_what_is_lent_is_its_holder_s_alone():
    schedule, (a, b) = streams(2)
    lent, other = (Storage(4, None) for _ in range(2))
    errors = []
    before, after = Write(lent, None), Write(lent, None)
    works = {
        "write": Write(lent, None),
        "read": Read(lent, print, errors.append),
        "graph": RunGraph(SimpleNamespace(cost=Cost(), on_host=False), {"x": other},
                          {"y": lent, "z": other}),
        "submit": Submit([], writes=[lent], failed=errors.append),
    }
    free = [Write(other, None), Submit([], writes=[lent], by_holder=True)]
    schedule.append(a, [before, Lend(lent), *works.values(), *free, Return(lent), after])
    elsewhere = Write(lent, None)
    schedule.append(b, [elsewhere])
    given = schedule.next().works
    assert given[0] is before and given[5:] == [*free, after, elsewhere]
    refused = given[1:5]
    assert all(isinstance(work, Refuse) for work in refused)
    for work in refused:
        work.fail(ValueError("lent"))
    # Not the holder's error; the reader of the other output gets it.
    assert lent.error is None and isinstance(other.error, OperationError)
    assert [str(error) for error in errors] == ["ValueError: lent"] * 2
