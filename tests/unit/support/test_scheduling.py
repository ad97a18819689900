"""Tests that need the machine to themselves run last, with no test beside them."""

from types import SimpleNamespace

from tests.support.scheduling import AloneLast

FILES = {"tests/a/test_a.py": 4, "tests/system/stress/test_s.py": 2, "tests/z/test_z.py": 9,
         "tests/system/lifetimes/test_l.py": 3, "tests/system/isa/test_i.py": 12}
#: Alone, as exploring has it.
EXPLORED = ("tests/system/stress/", "tests/system/lifetimes/")


class Node:
    """A worker process that runs the tests it was sent when told to. Like xdist's it keeps the last
    test back until it knows the next one."""

    def __init__(self, name):
        self.gateway = SimpleNamespace(id=name)
        self.sent, self.done, self.shutting_down = [], 0, False

    def send_runtest_some(self, indices):
        assert not self.shutting_down
        self.sent += indices

    def shutdown(self):
        self.shutting_down = True

    def can_run(self):
        return len(self.sent) - self.done > (0 if self.shutting_down else 1)


def run(count, pace, crash=None):
    """(what ran in which process, by start time), with all processes at once and the i-th
    ``pace[i]`` times as slow. A process crashes in the test ``crash``; another takes its place."""
    collection = [f"{file}::test_{i}" for file, n in FILES.items() for i in range(n)]
    config = SimpleNamespace(
        option=SimpleNamespace(loadscopereorder=True, explore=True),
        getvalue=lambda name: [f"popen{i}" for i in range(count)] if name == "tx" else None,
    )
    scheduler = AloneLast(config)
    scheduler.numnodes = count
    nodes = [Node(f"gw{i}") for i in range(count)]
    for node in nodes:
        scheduler.add_node(node)
        scheduler.add_node_collection(node, collection)
    scheduler.schedule()
    order = []
    for tick in range(1000):
        for i, node in enumerate(nodes):
            if tick % pace[i] == 0 and node.can_run():
                index = node.sent[node.done]
                node.done += 1
                others = [n for n in scheduler.nodes if n is not node]
                busy = any(scheduler._pending_of(scheduler.assigned_work[n]) for n in others)
                order.append((collection[index], busy))
                if collection[index] == crash:
                    assert scheduler.remove_node(node) == crash
                    nodes[i] = Node(f"{node.gateway.id}'")
                    scheduler.add_node(nodes[i])
                    scheduler.add_node_collection(nodes[i], collection)
                    scheduler.schedule()
                else:
                    scheduler.mark_test_complete(node, index)
    assert not scheduler.has_pending and all(node.shutting_down for node in nodes)
    return collection, order


def test_alone_and_last():
    for count, pace in ((1, [1]), (2, [1, 1]), (2, [1, 7]), (2, [7, 1]), (3, [1, 2, 5])):
        collection, order = run(count, pace)
        names = [name for name, _ in order]
        assert sorted(names) == sorted(collection)
        alone = [(name, busy) for name, busy in order if name.startswith(EXPLORED)]
        assert [name for name, _ in alone] == names[-5:]
        assert not any(busy for _, busy in alone)
        # Otherwise there was nothing to separate.
        assert count == 1 or any(busy for _, busy in order)


def test_what_waits_comes_late():
    """Though files with more tests come first otherwise."""
    _, order = run(1, [1])
    folders = [name.split("/test_")[0] for name, _ in order]
    assert folders[:13] == ["tests/z"] * 9 + ["tests/a"] * 4
    assert folders[13:25] == ["tests/system/isa"] * 12


def test_a_crash_costs_one_test():
    """In whichever test a process crashes, the others run once, and the run ends."""
    tests = [f"{file}::test_{i}" for file, count in FILES.items() for i in range(count)]
    for pace in ([1], [1, 1], [1, 7], [7, 1], [1, 2, 5]):
        for crash in tests:
            collection, order = run(len(pace), pace, crash)
            assert sorted(name for name, _ in order) == sorted(collection), (pace, crash)
            assert not any(busy for name, busy in order if name.startswith(EXPLORED))
