"""Sessions in event loops of the program: selectors, and readers of asyncio."""

import asyncio
import selectors

import pytest

import hmc
from conftest import LIMIT


@pytest.fixture
def over_tcp():
    """A session that listens, one that has connected, and the peer of each, over TCP: operations end some time after they began."""
    with hmc.Session(rank=0, buffer_size=1 << 16, listen="tcp://127.0.0.1:0") as a, hmc.Session(rank=1, buffer_size=1 << 16) as b:
        there = b.connect(0, a.address, hmc.ConnType.TCP)
        yield a, b, a.peer(1), there


def test_a_selector_that_sleeps_on_the_session_alone_drives_puts_and_messages(over_tcp):
    a, b, back, there = over_tcp
    data = bytes(range(64))
    for tag in range(20):
        back.send_tag(tag)
    with selectors.DefaultSelector() as selector:
        selector.register(b, selectors.EVENT_READ)
        running, started, ended, tags = [], 0, 0, []
        while ended < 100 or len(tags) < 20:
            while len(running) < 8 and started < 100:
                running.append(there.put_nb(data, remote_offset=64 * started))
                started += 1
            assert selector.select(LIMIT), (ended, tags)
            b.clear_events()
            left = [op for op in running if not op.done()]
            ended, running = ended + len(running) - len(left), left
            try:
                while True:
                    tags.append(there.recv_tag(timeout=0))
            except hmc.DeadlineExceeded:
                pass
        selector.unregister(b)
    assert tags == list(range(20))
    assert a.buffer.read(6400) == data * 100


def test_a_reader_of_asyncio_is_called_for_a_message_and_for_a_death(run):
    target = run("""
        import hmc, sys
        with hmc.Session(rank=0, listen="tcp://127.0.0.1:0", buffer_size=64) as s:
            print(s.address)
            peer = s.peer(1)
            sys.stdin.readline()
            peer.send_tag(7)
            sys.stdin.readline()
    """)
    with hmc.Session(rank=1, buffer_size=64) as s:
        peer = s.connect(0, target.line())

        async def main():
            loop, changed = asyncio.get_running_loop(), asyncio.Event()

            def on_event():
                s.clear_events()
                changed.set()

            async def until(look):
                """Looks only when the reader was called."""
                while True:
                    await asyncio.wait_for(changed.wait(), LIMIT)
                    changed.clear()
                    if (found := look()) is not None:
                        return found

            def tag():
                try:
                    return peer.recv_tag(timeout=0)
                except hmc.DeadlineExceeded:
                    return None

            loop.add_reader(s, on_event)
            # A loop begins with a look.
            assert await until(lambda: tag() is None)
            target.tell("send")
            assert await until(tag) == 7
            target.kill()
            await until(lambda: None if peer.connected else True)
            loop.remove_reader(s)

        asyncio.run(main())


def test_it_is_the_same_descriptor_until_the_session_is_closed():
    with hmc.Session(buffer_size=64) as s:
        for call in (s.fileno, s.clear_events):
            with pytest.raises(hmc.NotFound):
                call()
    with hmc.Session(rank=0, buffer_size=64) as s:
        assert s.fileno() == s.fileno() > 2
    for call in (s.fileno, s.clear_events):
        with pytest.raises(hmc.Closed):
            call()
