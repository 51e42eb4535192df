"""Pages of a KV cache from a prefill process to a decode process.

The decode process owns the cache and exposes it once. For each sequence the prefill process puts the pages of all layers to where
the decode process wants them, in one batch, and tells it with the last page: no message waits for another.
"""

import numpy as np
from _pair import run

LAYERS, PAGES, PAGE_BYTES = 8, 64, 16 << 10
CACHE_LABEL = 1


def page(layer, number):
    """Where a page lies, in bytes."""
    return (layer * PAGES + number) * PAGE_BYTES


def decode(session, peer):
    region = session.allocate(LAYERS * PAGES * PAGE_BYTES)
    cache = np.frombuffer(region, np.uint8).reshape(LAYERS, PAGES, PAGE_BYTES)
    window = peer.expose(region, CACHE_LABEL, access="w")
    free = list(range(PAGES))
    for sequence in range(4):
        pages = [free.pop() for _ in range(8)]
        peer.send(np.array([sequence, *pages], dtype=np.int32))
        done = peer.recv_notify()
        values = {int(v) for v in cache[:, pages].reshape(-1)}
        print(f"sequence {done}: {len(pages)} pages in each of {LAYERS} layers, values {values}")
        assert done == sequence and values == {sequence + 1}
    peer.send(np.array([-1], dtype=np.int32))
    window.revoke()


def prefill(session, peer):
    computed = np.zeros((LAYERS, 8, PAGE_BYTES), np.uint8)  # what a forward pass would leave
    source = session.register(computed)
    cache = peer.window(CACHE_LABEL)
    while True:
        sequence, *pages = np.frombuffer(peer.recv(), np.int32)
        if sequence < 0:
            return
        computed[:] = sequence + 1
        copies = [
            ((layer * 8 + i) * PAGE_BYTES, page(layer, int(number)), PAGE_BYTES)
            for layer in range(LAYERS)
            for i, number in enumerate(pages)
        ]
        peer.prepare_put(copies[:-1], source, window=cache).run()
        local, remote, nbytes = copies[-1]
        peer.put_notify(source, int(sequence), remote, local_offset=local, nbytes=nbytes, window=cache)


if __name__ == "__main__":
    run(decode, prefill)
