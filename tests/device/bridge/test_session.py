"""A client's session, request by request, and with damaged requests."""

from __future__ import annotations

import itertools
import os
import random
import struct
import threading
import zlib

import cbor2
import numpy as np
import pytest

from tests.support.shortage import Shortage
from tests.unit.bridge.test_frames import written
from webnn_vk import __version__
from webnn_vk.bridge.frames import PROTOCOL, DamagedFrame, Frame, Kind, read_frame
from webnn_vk.bridge.session import Session, VersionMismatch


class Client:
    """Speaks to a session in this process."""

    def __init__(self) -> None:
        self.woken = threading.Semaphore(0)
        self.session = Session(self.woken.release)
        self.number = 0
        (hello,) = self.send(Kind.HELLO, {"protocol": PROTOCOL})
        assert hello.header == {"protocol": PROTOCOL, "version": __version__}

    def send(self, kind: int, header, raw=None) -> list[Frame]:
        self.number += 1
        return self.session.handle(Frame(kind, self.number, header, raw))

    def call(self, name, *arguments, raw=None):
        *_, reply = self.send(Kind.CALL, [name, list(arguments)], raw)
        assert reply.request == self.number
        return reply.header if reply.kind == Kind.VALUE else tuple(reply.header)

    def start(self, name, *arguments, raw=None):
        assert self.send(Kind.START, [name, list(arguments)], raw) == []
        number = self.number
        assert self.woken.acquire(timeout=60)
        first, last = self.send(Kind.POLL, None)
        assert first.request == number and last == Frame(Kind.VALUE, self.number, None)
        if first.kind == Kind.ERROR:
            return tuple(first.header)
        return first.header if first.raw is None else first.raw


@pytest.fixture
def client(monkeypatch):
    monkeypatch.setenv("WEBNN_VK_DEVICE", "cpu")
    monkeypatch.setenv("WEBNN_VK_CPU_ENGINE", "numpy")
    client = Client()
    yield client
    client.session.close()


def graph_of(client: Client) -> tuple[int, int, list[int]]:
    """A context, a graph x + 1 on it, and two tensors."""
    context, accelerated = client.start("createContext", "default", True)
    assert accelerated is True
    builder = client.call("builder", context)
    assert client.call("input", builder, "x", "float32", [3]) == [0, "float32", (3,)]
    assert client.call("scalar", builder, "float32", 1) == [1, "float32", ()]
    assert client.call("operator", builder, "add", [0, 1], {"label": "l"}) == [2, "float32", (3,)]
    graph, devices = client.start("build", builder, {"y": 2})
    assert devices == ["cpu"]
    tensors = [client.start("createTensor", context, "float32", [3], True, True) for _ in "xy"]
    return context, graph, tensors


def result(client: Client, context: int, graph: int, tensors: list[int], values) -> list[float]:
    data = np.array(values, np.float32).view(np.uint8)
    x, y = tensors
    assert client.call("write", context, x, "float32", raw=data) is None
    assert client.call("dispatch", context, graph, {"x": x}, {"y": y}) is None
    return client.start("read", context, y).view(np.float32).tolist()


def test_a_graph(client):
    assert result(client, *graph_of(client), [1, 2, 3]) == [2, 3, 4]


def test_errors_have_the_names_of_the_idl(client):
    context, graph, (x, y) = graph_of(client)
    name, message = client.call("dispatch", context, graph, {"x": x}, {"z": y})
    assert name == "TypeError" and "'z'" in message
    builder = client.call("builder", context)
    client.call("input", builder, "x", "float32", [2])
    name, message = client.call("operator", builder, "softmax", [0, 3], {"label": "soft"})
    assert name == "TypeError" and message.startswith("softmax [soft]: axis 3")
    assert client.start("build", builder, {})[0] == "TypeError"
    client.call("destroy", x)
    assert client.call("write", context, x, "float32")[0] == "InvalidStateError"
    assert client.start("createContext", "fast", True)[0] == "TypeError"
    client.call("destroy", context)
    assert client.call("builder", context)[0] == "InvalidStateError"


@pytest.mark.parametrize("header", [
    None, 5, [], ["limits"], ["limits", 1], ["nothing", []], ["start read", [1, 1]],
    ["__init__", []],
    ["limits", []], ["limits", [99]], ["limits", [True]], ["limits", [1, 2]], ["builder", ["1"]],
    ["operator", [2, "nothing", [], {}]], ["operator", [2, "relu", [], {}]],
    ["operator", [2, "relu", [5], {}]], ["operator", [2, "relu", [-2], {}]],
    ["operator", [2, "relu", [True], {}]], ["operator", [2, "relu", [0], {"x": 1}]],
    ["operator", [2, "relu", [0], {"label": 5}]], ["operator", [2, "relu", [0], None]],
    ["operator", [2, "concat", [0, 0], {}]], ["input", [2, 5, "float32", [1]]],
    ["input", [2, "x", "float32", [2**70]]], ["input", [2, "x", "object", [1]]],
    ["constant", [2, "float32", [1], "object"]], ["constant", [2, "float32", [1], "float32"]],
    ["write", [1, 1, "float32"]], ["dispatch", [1, 1, [], {}]], ["dispatch", [1, 2, {"x": 1}, {}]],
])
def test_wrong_requests_are_errors(client, header):
    context, _ = client.start("createContext", "default", False)
    builder = client.call("builder", context)
    assert (context, builder) == (1, 2)
    client.call("input", builder, "x", "float32", [1])
    *_, reply = client.send(Kind.CALL, header)
    assert reply.kind == Kind.ERROR and reply.header[0] in ("TypeError", "UnknownError")
    assert client.send(Kind.START, header) == []
    assert client.woken.acquire(timeout=60)
    first, _ = client.send(Kind.POLL, None)
    assert first.kind == Kind.ERROR


def test_another_version_ends_the_session():
    with pytest.raises(VersionMismatch, match="speaks protocol"):
        Session(lambda: None).handle(Frame(Kind.HELLO, 1, {"protocol": PROTOCOL + 1}))
    with pytest.raises(VersionMismatch):
        Session(lambda: None).handle(Frame(Kind.CALL, 1, ["limits", [1]]))


def test_a_lost_context_is_an_event(client):
    context, _ = client.start("createContext", "default", False)
    frames = client.send(Kind.CALL, ["destroy", [context]])
    assert client.woken.acquire(timeout=60)
    frames += client.send(Kind.POLL, None)
    events = [frame for frame in frames if frame.kind == Kind.EVENT]
    assert events == [Frame(Kind.EVENT, 0, ["lost", context, "destroy() was called"])]


def test_released_objects_are_gone(client):
    context, graph, (x, y) = graph_of(client)
    assert client.send(Kind.RELEASE, [y, 12345, "x"]) == []
    name, message = client.call("dispatch", context, graph, {"x": x}, {"y": y})
    assert (name, message) == ("TypeError", "no such MLTensor")
    assert client.send(Kind.RELEASE, [context]) == []
    assert client.call("builder", context)[0] == "TypeError"


def test_a_request_without_memory_is_refused(client):
    """What read_frame makes of one that memory doesn't hold; the context goes on."""
    graph = graph_of(client)
    short = MemoryError("no room for 8 bytes")
    refused = ["OperationError", "the bridge: out of memory: no room for 8 bytes"]
    (reply,) = client.send(Kind.CALL, short)
    assert reply == Frame(Kind.ERROR, client.number, refused)
    assert client.send(Kind.START, short) == client.send(Kind.RELEASE, short) == []
    number = client.number - 1
    assert client.woken.acquire(timeout=60)
    assert client.send(Kind.POLL, short) == [
        Frame(Kind.ERROR, number, refused), Frame(Kind.VALUE, client.number, None)]
    assert result(client, *graph, [1, 2, 3]) == [2, 3, 4]


def test_memory_error_at_any_place_of_a_request(client):
    graph = graph_of(client)
    builder = client.call("builder", graph[0])
    client.call("input", builder, "x", "float32", [3])
    shortage, places = Shortage(), set()
    for kind, header in (
        (Kind.CALL, ["operator", [builder, "relu", [0], {}]]), (Kind.POLL, None), (99, None),
    ):
        for at in itertools.count(1):  # 0 is handle() itself
            with shortage.everywhere():
                shortage.begin(at)
                replies = client.send(kind, header)
                shortage.end()
            if not shortage.places:
                break
            places.update(shortage.places)
            assert replies[-1].request == client.number
            assert replies[-1].kind in (Kind.VALUE, Kind.ERROR)
    assert len(places) > 20
    assert result(client, *graph, [1, 2, 3]) == [2, 3, 4]


# -- damaged requests ----------------------------------------------------------------------------


def requests_of(context: int, graph: int, x: int, y: int) -> list[bytes]:
    data = np.array([5, 6, 7], np.float32)
    calls = [
        (Kind.CALL, ["limits", [context]], None),
        (Kind.CALL, ["builder", [context]], None),
        (Kind.CALL, ["input", [2, "a", "float32", [2, 3]]], None),
        (Kind.CALL, ["operator", [2, "softmax", [0, 1], {"label": "l"}]], None),
        (Kind.CALL, ["operator", [2, "clamp", [0], {"minValue": 0.5}]], None),
        (Kind.CALL, ["constant", [2, "float32", [3], "float32"]], data),
        (Kind.CALL, ["write", [context, x, "float32"]], data),
        (Kind.CALL, ["dispatch", [context, graph, {"x": x}, {"y": y}]], None),
        (Kind.START, ["read", [context, y]], None),
        (Kind.START, ["createTensor", [context, "int8", [2], False, False]], None),
        (Kind.RELEASE, [12345], None),
        (Kind.POLL, None, None),
    ]
    return [written(Frame(kind, 9, header, raw)) for kind, header, raw in calls]


def damage(data: bytes, rng: random.Random) -> bytes:
    """The frame with bits flipped, bytes replaced, cut, repeated or inserted."""
    damaged = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        at = rng.randrange(len(damaged) or 1)
        match rng.randrange(5):
            case 0 if damaged:
                damaged[at % len(damaged)] ^= 1 << rng.randrange(8)
            case 1 if damaged:
                damaged[at % len(damaged)] = rng.choice((0, 0x7F, 0xFF, rng.randrange(256)))
            case 2:
                del damaged[at:]
            case 3:
                damaged[at:at] = damaged[at : at + rng.randrange(16)]
            case 4:
                damaged[at:at] = rng.randbytes(rng.randrange(1, 9))
    return bytes(damaged)


def resealed(data: bytes) -> bytes:
    """With lengths and checksum that fit what came out, so that the session sees it."""
    raw = struct.unpack_from("<Q", data, 8)[0] if len(data) >= 24 else 0
    body = data[24:]
    raw = raw if raw <= len(body) else 0
    length = len(body) - raw
    head = data[:24].ljust(24, b"\0")
    rest = struct.pack("<IQ", length, raw) + head[16:24] + body[:length]
    return struct.pack("<I", zlib.crc32(rest)) + rest + body[length:]


def altered(value, rng: random.Random):
    """A header with a value replaced, dropped or repeated somewhere."""
    if isinstance(value, list) and value and rng.random() < 0.85:
        at = rng.randrange(len(value))
        changed = altered(value[at], rng)
        return [*value[:at], *[changed] * rng.choice((1, 1, 1, 0, 2)), *value[at + 1 :]]
    if isinstance(value, dict) and value and rng.random() < 0.85:
        key = rng.choice(list(value))
        return {**value, rng.choice((key, key, "other")): altered(value[key], rng)}
    return rng.choice((
        None, True, -1, 0, 1, 2, 3, 2**31, 2**64, 1.5, float("nan"), "", "x", "float32", "label",
        [], [0], [[0]], {}, {"x": 1}, value,
    ))


def frames_in(data: bytes) -> list[Frame] | None:
    """The frames of some bytes; None where they are damaged."""
    read, write = os.pipe()
    try:
        os.write(write, data)
        os.close(write)
        found = []
        while (frame := read_frame(read)) is not None:
            found.append(frame)
        return found
    except DamagedFrame:
        return None
    finally:
        os.close(read)


def damaged_frames(client: Client, count: int) -> tuple[int, int, int]:
    """Sends damaged frames. Returns how many were found damaged, refused and carried out."""
    rng = random.Random(count)
    context, graph, (x, y) = graph_of(client)
    sample = requests_of(context, graph, x, y)
    found = refused = done = 0
    for i in range(count):
        data = rng.choice(sample)
        damaged = damage(data, rng)
        if i % 4 == 1:
            damaged = resealed(damaged)
        elif i % 2:
            (frame,) = frames_in(data)
            damaged = written(frame._replace(header=altered(frame.header, rng)))
        frames = frames_in(damaged)
        if frames is None:
            found += 1
            continue
        for frame in frames:
            # Damage that the checksum didn't find is in the raw bytes only.
            same = damaged[: len(data)][:24] == data[:24] and cbor2.dumps(frame.header) in data
            assert i % 2 or same or not damaged
            if frame.kind in (Kind.CALL, Kind.START) and _destroys(frame.header, context):
                continue
            replies = client.session.handle(frame)
            assert all(reply.kind in (16, 17, 18) for reply in replies)
            refused += any(reply.kind == Kind.ERROR for reply in replies)
            done += not any(reply.kind == Kind.ERROR for reply in replies)
        if i % 1000 == 999:
            client.send(Kind.POLL, None)
    while client.woken.acquire(blocking=False):
        pass
    client.send(Kind.POLL, None)
    # Objects that the damage released or renamed aside, results are right.
    fresh = Client()
    assert result(fresh, *graph_of(fresh), [1, 2, 3]) == [2, 3, 4]
    fresh.session.close()
    return found, refused, done


def _destroys(header, context: int) -> bool:
    return isinstance(header, list) and header[:1] == ["destroy"]


def test_damaged_frames(client):
    found, refused, done = damaged_frames(client, 4000)
    assert found > 2000 and refused > 500 and done > 100, (found, refused, done)


@pytest.mark.explore
@pytest.mark.timeout(3600)
def test_a_million_damaged_frames(client):
    found, refused, done = damaged_frames(client, 10**6)
    assert found > 250_000 and refused > 100_000, (found, refused, done)
