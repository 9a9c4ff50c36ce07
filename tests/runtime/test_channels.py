"""Links, streams and calls: order, breaks, restarts, peers that are stopped or killed; and nothing is left behind."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from primitives.errors import EnvironmentFault, InternalError, UserError
from primitives.graph import InstanceId
from seep.channels.links import InstanceStream, Link
from seep.channels.port import Port
from seep.channels.security import Security
from seep.channels.sockets import cut_connections, is_refused
from seep.protocol.courier import Courier, LetterFrame
from seep.protocol.messages import Data
from seep.protocol.view import Incarnation
from tests.runtime.peers_kit import ERRORS, SCHEMA, Recorder, link, open_sockets, peer_process, port, wait_until
from tests.runtime.values import RECEIVER, SENDER

OTHER = Incarnation(InstanceId("count", 3), 1)
BIG = pa.record_batch([np.arange(200_000), np.arange(200_000)], schema=SCHEMA)
SMALL = BIG.slice(0, 10)
#: Seconds that say "at once" on a busy machine, where hanging takes a minute and more.
PROMPTLY = 15.0


@pytest.fixture(params=["plain", "tls"])
def security(request: pytest.FixtureRequest) -> Security:
    return Security.with_tls() if request.param == "tls" else Security.open()


@pytest.fixture
def there() -> Recorder:
    """What the port hears."""
    return Recorder()


@pytest.fixture
def here() -> Recorder:
    """What the link tells."""
    return Recorder()


@pytest.fixture
def opened(security: Security, there: Recorder) -> Iterator[Port]:
    with port(there, security) as opened:
        yield opened


@pytest.fixture
def to_port(security: Security, opened: Port, here: Recorder) -> Iterator[Link]:
    with link(here, opened.address, security) as to_port:
        yield to_port


def data(epoch: int, rows: pa.RecordBatch | None = SMALL, port: int = 0) -> Data:
    return Data(SENDER, RECEIVER, epoch, {} if rows is None else {port: rows}, epoch * 10, 0.25)


def stream_on(to_port: Link, events: Recorder, schemas: Any = None) -> InstanceStream:
    """A stream that notes when there is room again."""
    return to_port.stream(SENDER, RECEIVER, {0: SCHEMA} if schemas is None else schemas, lambda: events.note("room"))


def offer(stream: InstanceStream, message: Data) -> None:
    wait_until(lambda: stream.offer(message), "there is room")


def messages(recorder: Recorder, count: int) -> list[Any]:
    return [message for message, _ in recorder.wait("message", count)]


# -- letters -----------------------------------------------------------------------------------------------------------


def test_frames_arrive_in_order_whatever_their_size(to_port: Link, there: Recorder) -> None:
    frames = [LetterFrame(n, 0, 1, {"rows": BIG} if n % 20 == 7 else {"n": n}) for n in range(1, 101)]
    for frame in frames:
        to_port.send(frame)
    assert [frame for _, frame in there.wait("frame", 100)] == frames
    assert there.of("letters open") == [("me", 1)]


def test_the_end_of_a_link_is_told_with_its_reason(
    security: Security, opened: Port, there: Recorder, here: Recorder
) -> None:
    with link(here, opened.address, security) as ordered:
        ordered.send(LetterFrame(1, 0, 0, None))
    assert there.wait("letters closed") == [("me", 1, "")]
    assert len(there.of("frame")) == 1
    with link(here, opened.address, security) as broken:
        broken.send(LetterFrame(1, 0, 0, None))
        there.wait("frame", 2)
        cut_connections(opened.address.port)
        assert there.wait("letters closed", 2)[1] != ("me", 1, "")


def test_what_was_sent_before_a_link_is_closed_arrives(security: Security, opened: Port, there: Recorder) -> None:
    with link(Recorder(), opened.address, security) as to_port:
        for n in range(1, 501):
            to_port.send(LetterFrame(n, 0, 0, None))
    assert len(there.wait("frame", 500)) == 500


def test_a_letter_that_cannot_be_handled_breaks_the_link_and_is_told(
    to_port: Link, there: Recorder, here: Recorder
) -> None:
    to_port.send(LetterFrame(1, 0, 0, "fail"))
    assert "cannot be handled" in there.wait("fault")[0][1]
    here.wait("broken")
    here.wait("restored")


def test_a_letter_that_cannot_be_sent_is_told_and_the_others_go_on(
    to_port: Link, there: Recorder, here: Recorder
) -> None:
    for number, body in enumerate(("before", object(), "after"), 1):
        to_port.send(LetterFrame(number, 0, 0, body))
    assert "it is a object" in here.wait("unsendable")[0][1]
    assert [frame.body for _, frame in there.wait("frame", 2)] == ["before", "after"]


# -- links that break --------------------------------------------------------------------------------------------------


def test_a_broken_link_mends_itself_and_the_courier_makes_good_what_was_lost(
    to_port: Link, opened: Port, there: Recorder, here: Recorder
) -> None:
    mine, theirs = Courier(), Courier()
    lock = threading.Lock()

    def again(_: str) -> None:
        with lock:
            for frame in mine.again():
                to_port.send(frame)

    here.on_restoring = again
    for n in range(300):
        with lock:
            to_port.send(mine.post(0, n))
        if n % 100 == 50:
            wait_until(lambda n=n: there.of("frame")[-1:] == [("me", LetterFrame(n + 1, 0, 0, n))], "it arrives")
            cut_connections(opened.address.port)
            here.wait("restored", n // 100 + 1)

    def received() -> list[int]:
        return [frame.body for _, frame in list(there.of("frame")) if theirs.receive(frame)]

    arrived: list[int] = []
    wait_until(lambda: there.of("frame")[-1][1].body == 299, "the last letter arrives")
    arrived += received()
    assert arrived == list(range(300))


def test_frames_of_each_session_come_in_order_and_none_after_a_later_one(
    to_port: Link, opened: Port, there: Recorder, here: Recorder
) -> None:
    stop = threading.Event()
    numbers = iter(range(1, 10**9))

    def send() -> None:
        while not stop.is_set():
            to_port.send(LetterFrame(next(numbers), 0, 0, None))
            time.sleep(0.0001)

    sender = threading.Thread(target=send)
    sender.start()
    for breaks in range(1, 6):
        there.wait("frame", len(there.of("frame")) + 50)
        cut_connections(opened.address.port)
        here.wait("restored", breaks)
    there.wait("frame", len(there.of("frame")) + 50)
    stop.set()
    sender.join()
    arrived = [frame.number for _, frame in there.of("frame")]
    assert arrived == sorted(set(arrived))


def test_a_link_to_nobody_is_refused_and_told_once(security: Security, here: Recorder) -> None:
    with port(Recorder(), security) as gone:
        address = gone.address
    assert is_refused(*address)
    with link(here, address, security) as nowhere:
        nowhere.send(LetterFrame(1, 0, 0, None))
        assert here.wait("broken") == [("peer", True)]
        nowhere.send(LetterFrame(2, 0, 0, None))
        time.sleep(0.2)
        assert here.of("broken") == [("peer", True)]
        with pytest.raises(EnvironmentFault, match=str(address.port)):
            nowhere.call("echo", 1)


def test_a_peer_that_is_killed_is_noticed_at_once_even_if_nothing_is_sent(security: Security, here: Recorder) -> None:
    with peer_process(security) as peer, link(here, peer.address, security) as to_peer:
        to_peer.send(LetterFrame(1, 0, 0, None))
        wait_until(lambda: to_peer.call("count", None)[1] == 1, "the frame is there")
        killed = time.monotonic()
        peer.signal(signal.SIGKILL)
        here.wait("broken")
        assert time.monotonic() - killed < PROMPTLY
        wait_until(lambda: ("peer", True) in here.of("broken"), "it is told that nobody listens")


def test_a_link_finds_a_peer_that_comes_back_on_the_same_port(security: Security, here: Recorder) -> None:
    with peer_process(security) as peer, link(here, peer.address, security) as to_peer:
        to_peer.send(LetterFrame(1, 0, 0, None))
        wait_until(lambda: to_peer.call("count", None)[1] == 1, "the frame is there")
        peer.end()
        here.wait("broken")
        with peer_process(security, port=peer.address.port):
            here.wait("restored")
            to_peer.send(LetterFrame(2, 0, 0, None))
            wait_until(lambda: to_peer.call("count", None)[1] == 1, "the next frame is there")


def test_a_peer_that_is_stopped_and_goes_on_is_no_broken_link(security: Security, here: Recorder) -> None:
    with peer_process(security) as peer, link(here, peer.address, security) as to_peer:
        stream = stream_on(to_peer, here)
        to_peer.send(LetterFrame(1, 0, 0, None))
        offer(stream, data(1))
        wait_until(lambda: to_peer.call("count", None)[:2] == [1, 1], "both are there")
        peer.signal(signal.SIGSTOP)
        sent = 1
        blocked = time.monotonic()
        while time.monotonic() - blocked < 0.5:  # until nothing is taken any more
            to_peer.send(LetterFrame(2, 0, 0, None)) if sent == 1 else None
            if stream.offer(data(sent + 1, BIG)):
                sent, blocked = sent + 1, time.monotonic()
        with pytest.raises(EnvironmentFault):
            to_peer.call("count", None, timeout=0.2)
        peer.signal(signal.SIGCONT)
        wait_until(lambda: to_peer.call("count", None)[:2] == [sent, 2], "everything is there")
        assert here.of("broken") == here.of("stream broken") == []


def test_a_link_to_a_stopped_peer_closes_promptly(security: Security, here: Recorder) -> None:
    with peer_process(security) as peer, link(here, peer.address, security) as to_peer:
        stream = stream_on(to_peer, here)
        to_peer.send(LetterFrame(1, 0, 0, None))
        offer(stream, data(1))
        wait_until(lambda: to_peer.call("count", None)[:2] == [1, 1], "both are there")
        peer.signal(signal.SIGSTOP)
        for n in range(20):
            stream.offer(data(n, BIG))
            to_peer.send(LetterFrame(n, 0, 0, {"rows": BIG}))
            time.sleep(0.01)
        started = time.monotonic()
        to_peer.close()
        assert time.monotonic() - started < PROMPTLY
        assert not stream.is_open


# -- streams -----------------------------------------------------------------------------------------------------------


def test_data_arrives_in_order_with_all_that_belongs_to_it(to_port: Link, there: Recorder, here: Recorder) -> None:
    sent = [data(n, None if n % 3 == 0 else BIG.slice(n, 1 << n % 18)) for n in range(60)]
    stream = stream_on(to_port, here)
    for message in sent:
        offer(stream, message)
    assert messages(there, 60) == sent
    stream.close()
    assert there.wait("stream closed") == [("me", SENDER, RECEIVER, True)]
    assert there.of("stream open") == [("me", SENDER, RECEIVER, False)]


def test_rows_arrive_on_buffers_that_numpy_calls_aligned(to_port: Link, there: Recorder, here: Recorder) -> None:
    stream = stream_on(to_port, here)
    for n in range(40):
        offer(stream, data(n, BIG.slice(n % 5, 1 + (n * 977) % 5000)))
    for message in messages(there, 40):
        assert all(column.to_numpy().flags.aligned for column in message.batches[0].columns)


def test_a_receiver_with_several_ports_gets_rows_of_any_of_them(to_port: Link, there: Recorder, here: Recorder) -> None:
    words = pa.record_batch({"w": pa.array(["a", None, "b"]).dictionary_encode()})
    stream = stream_on(to_port, here, {0: SCHEMA, 1: words.schema, 4: SCHEMA})
    for n, batches in enumerate(({0: SMALL}, {1: words}, {}, {0: BIG, 1: words, 4: SMALL})):
        offer(stream, data(n, None)._replace(batches=batches))
        arrived = messages(there, n + 1)[n].batches
        assert {port: rows.to_pylist() for port, rows in arrived.items()} == {
            p: r.to_pylist() for p, r in batches.items()
        }


def test_a_batch_of_other_columns_is_refused_where_it_is_offered(
    to_port: Link, there: Recorder, here: Recorder
) -> None:
    stream = stream_on(to_port, here)
    offer(stream, data(1, pa.record_batch({"other": [1]})))
    offer(stream, data(2))
    assert "port 0 takes" in here.wait("unsendable")[0][1]
    assert [message.epoch for message in messages(there, 1)] == [2]


def test_a_full_stream_refuses_and_says_when_there_is_room(
    security: Security, opened: Port, there: Recorder, here: Recorder
) -> None:
    there.hold.clear()
    with link(here, opened.address, security, room=4) as to_port:
        stream = stream_on(to_port, here)
        taken = 0
        deadline = time.monotonic() + 0.5
        while time.monotonic() < deadline:
            if stream.offer(data(taken, BIG)):
                taken, deadline = taken + 1, time.monotonic() + 0.5
        assert not stream.has_room()
        assert here.of("room") == [] or taken > 4
        rooms = len(here.of("room"))
        there.hold.set()
        here.wait("room", rooms + 1)
        assert stream.has_room()
        assert [message.epoch for message in messages(there, taken)] == list(range(taken))


def test_a_slow_stream_holds_up_neither_another_one_nor_letters(to_port: Link, there: Recorder, here: Recorder) -> None:
    there.hold.clear()
    slow, other = stream_on(to_port, here), to_port.stream(OTHER, RECEIVER, {0: SCHEMA})
    for n in range(50):
        slow.offer(data(n, BIG))
    offer(other, data(1)._replace(sender=OTHER))
    to_port.send(LetterFrame(1, 0, 0, None))
    there.wait("frame")
    there.wait("stream open", 2)
    there.hold.set()
    wait_until(lambda: any(m.sender == OTHER for m, _ in there.of("message")), "the other stream is heard")


def test_a_stream_that_breaks_drops_what_it_holds_and_opens_again(
    to_port: Link, opened: Port, there: Recorder, here: Recorder
) -> None:
    stream = stream_on(to_port, here)
    offer(stream, data(1))
    there.wait("message")
    cut_connections(opened.address.port)
    assert there.wait("stream closed") == [("me", SENDER, RECEIVER, False)]
    epochs = iter(range(2, 10**6))

    def is_noticed() -> bool:
        stream.offer(data(next(epochs)))
        return bool(here.of("stream broken"))

    wait_until(is_noticed, "the break is noticed")
    assert there.wait("stream open", 2)[1] == ("me", SENDER, RECEIVER, True)
    last = next(epochs)
    offer(stream, data(last))
    wait_until(lambda: there.of("message")[-1][0].epoch == last, "the last message arrives")
    arrived = [message.epoch for message, _ in there.of("message")]
    assert arrived == sorted(set(arrived))


def test_an_idle_stream_breaks_with_its_link(to_port: Link, opened: Port, there: Recorder, here: Recorder) -> None:
    stream = stream_on(to_port, here)
    offer(stream, data(1))
    to_port.send(LetterFrame(1, 0, 0, None))
    there.wait("message")
    there.wait("frame")
    cut_connections(opened.address.port)
    here.wait("stream broken")
    assert there.wait("stream open", 2)[1][-1] is True


def test_a_second_stream_between_the_same_instances_says_so(to_port: Link, there: Recorder, here: Recorder) -> None:
    for again in (False, True):
        stream = stream_on(to_port, here)
        offer(stream, data(1))
        stream.close()
        assert there.wait("stream closed", 1 + again)[-1][-1] is True
    assert [opening[-1] for opening in there.of("stream open")] == [False, True]


def test_a_peer_killed_in_mid_stream_breaks_the_stream(security: Security, here: Recorder) -> None:
    with peer_process(security) as peer, link(here, peer.address, security) as to_peer:
        stream = stream_on(to_peer, here)
        for n in range(20):
            offer(stream, data(n, BIG))
        wait_until(lambda: to_peer.call("count", None)[0] > 0, "the stream is on its way")
        peer.signal(signal.SIGKILL)
        deadline = time.monotonic() + 10
        while not here.of("stream broken") and time.monotonic() < deadline:
            stream.offer(data(100, BIG))
        assert here.of("stream broken") == [(SENDER, RECEIVER)]


# -- calls -------------------------------------------------------------------------------------------------------------


def test_a_call_brings_its_answer_back_with_batches(to_port: Link, there: Recorder) -> None:
    body = {"rows": [BIG, SMALL], "sink": SENDER, "epoch": 3}
    assert to_port.call("echo", body) == body
    assert there.of("call")[0][:2] == ("me", "echo")


@pytest.mark.parametrize("kind", ERRORS)
def test_an_error_of_a_call_is_raised_where_it_was_made(kind: str, to_port: Link) -> None:
    with pytest.raises(ERRORS[kind], match="no such sink"):
        to_port.call(kind, "no such sink")


def test_a_bug_behind_a_call_is_an_internal_error_and_told(to_port: Link, there: Recorder) -> None:
    with pytest.raises(InternalError, match="KeyError"):
        to_port.call("bug", "x")
    assert len(there.wait("fault")) == 1


def test_a_call_that_is_not_answered_in_time_fails(to_port: Link, there: Recorder) -> None:
    there.hold.clear()
    started = time.monotonic()
    with pytest.raises(EnvironmentFault, match="did not answer 'hold'"):
        to_port.call("hold", None, timeout=0.3)
    assert time.monotonic() - started < PROMPTLY
    there.hold.set()
    assert to_port.call("echo", 2) == 2


def test_a_call_cannot_carry_what_cannot_travel(to_port: Link) -> None:
    with pytest.raises(UserError):
        to_port.call("echo", object())


def test_calls_find_a_peer_that_came_back(security: Security, here: Recorder) -> None:
    with peer_process(security) as peer, link(here, peer.address, security) as to_peer:
        to_peer.call("count", None)
        peer.end()
        with pytest.raises(EnvironmentFault):
            to_peer.call("count", None)
        with peer_process(security, port=peer.address.port):
            assert to_peer.call("count", None)[:2] == [0, 0]


def test_many_threads_may_call_at_once(to_port: Link) -> None:
    answers: list[Any] = []
    threads = [threading.Thread(target=lambda n=n: answers.append(to_port.call("echo", n))) for n in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == list(range(20))


# -- the end -----------------------------------------------------------------------------------------------------------


def test_a_port_closes_promptly_with_streams_open(security: Security, there: Recorder, here: Recorder) -> None:
    with port(there, security) as opened, link(here, opened.address, security) as to_port:
        to_port.send(LetterFrame(1, 0, 0, None))
        offer(stream_on(to_port, here), data(1))
        there.wait("message")
        there.wait("frame")
        started = time.monotonic()
        opened.close()
        assert time.monotonic() - started < PROMPTLY
        assert is_refused(*opened.address)
        assert here.wait("broken")[0][0] == "peer"
        assert [closing[-1] for closing in there.wait("stream closed")] == [False]


def test_a_port_closes_promptly_with_a_peer_that_is_stopped(security: Security, there: Recorder) -> None:
    with (
        port(there, security) as opened,
        peer_process(security, opened.address) as peer,
        link(Recorder(), peer.address, security) as to_peer,
    ):
        to_peer.send(LetterFrame(1, 0, 0, None))
        there.wait("frame")
        peer.signal(signal.SIGSTOP)
        started = time.monotonic()
        opened.close()
        assert time.monotonic() - started < PROMPTLY


def test_nothing_is_left_after_links_and_ports_are_closed(security: Security) -> None:
    def round_trip() -> None:
        there, here = Recorder(), Recorder()
        with port(there, security) as opened, link(here, opened.address, security) as to_port:
            to_port.send(LetterFrame(1, 0, 0, None))
            streams = [to_port.stream(SENDER, RECEIVER, {0: SCHEMA}) for _ in range(3)]
            for stream in streams:
                offer(stream, data(1))
            to_port.call("echo", 1)
            there.wait("message", 3)
            there.wait("frame")

    round_trip()  # the library keeps some threads and files of its own
    threads, sockets = set(threading.enumerate()), open_sockets()
    for _ in range(5):
        round_trip()
    assert [thread.name for thread in set(threading.enumerate()) - threads if "Dummy" not in thread.name] == []
    wait_until(lambda: open_sockets() <= sockets, "no socket is left")
    native = len(os.listdir("/proc/self/task"))
    for _ in range(5):
        round_trip()
    wait_until(lambda: len(os.listdir("/proc/self/task")) <= native + 4, "no native thread is left")


def test_a_link_may_be_closed_by_whom_it_tells_that_it_is_broken(security: Security) -> None:
    here = Recorder()
    with port(Recorder(), security) as opened:
        address = opened.address
    closing = Link("me", "peer", address, security, here)
    here.on_broken = lambda *_: (closing.close(), here.note("closed"))  # type: ignore[method-assign, assignment]
    closing.send(LetterFrame(1, 0, 0, None))
    here.wait("closed")


def test_a_link_that_is_closed_takes_nothing_more(to_port: Link, there: Recorder, here: Recorder) -> None:
    to_port.close()
    to_port.send(LetterFrame(1, 0, 0, None))
    assert not stream_on(to_port, here).has_room()
    assert there.of("frame") == []
