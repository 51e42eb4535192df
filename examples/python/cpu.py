"""Puts and gets between the sessions' buffers."""

from _pair import run


def here(session, peer):
    tag = peer.recv_tag()
    print("tag", tag, "and the bytes before it:", bytes(session.buffer.read(5)))
    session.buffer.write(b"world", 100)
    peer.send_tag(tag + 1)
    peer.recv_tag()


def there(session, peer):
    session.buffer.write(b"hello")
    peer.put(remote_offset=0, nbytes=5)  # from our buffer to the peer's; it can read them when this returns
    peer.send_tag(1)
    assert peer.recv_tag() == 2
    peer.get(remote_offset=100, local_offset=10, nbytes=5)
    print("got", bytes(session.buffer.read(5, 10)))
    peer.send_tag(3)


if __name__ == "__main__":
    run(here, there)
