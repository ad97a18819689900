"""Messages from any thread to the thread that handles them."""

import threading
import time

from webnn_vk.runtime.inbox import Inbox


def test_a_message_stays_until_it_is_handled():
    inbox = Inbox()
    assert inbox.empty() and inbox.first() is None
    inbox.put("first")
    inbox.put("second")
    assert inbox.first() == "first" and inbox.first() == "first"
    inbox.remove_first()
    assert inbox.first() == "second" and not inbox.empty()
    inbox.remove_first()
    assert inbox.empty()


def test_waiting_ends_at_once_where_there_is_a_message():
    inbox = Inbox()
    inbox.put(1)
    assert inbox.wait(3600)
    assert inbox.wait(3600)


def test_waiting_ends_without_a_message_after_its_time():
    inbox = Inbox()
    inbox.put(1)
    assert inbox.wait(0)
    inbox.remove_first()
    assert not inbox.wait(0.001)


def test_a_thread_that_waits_sees_every_message():
    inbox, seen = Inbox(), []

    def handle():
        while len(seen) < 4000:
            assert inbox.wait(60)
            while not inbox.empty():
                seen.append(inbox.first())
                inbox.remove_first()

    reader = threading.Thread(target=handle)
    reader.start()

    def send(first):
        for number in range(first, first + 1000):
            inbox.put(number)
            if not number % 100:
                time.sleep(0.001)

    senders = [threading.Thread(target=send, args=(1000 * n,)) for n in range(4)]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    reader.join(60)
    assert sorted(seen) == list(range(4000))
    for n in range(4):
        assert [x for x in seen if x // 1000 == n] == list(range(1000 * n, 1000 * n + 1000))
