"""Pieces of many blocks: a list of them moves what NumPy assigns between views with these strides."""

import numpy as np
import pytest

import hmc

#: Bytes of the memory here; the window is the other session's buffer.
SIZE = 1 << 16
#: Where the window's part begins that a list writes.
BASE = 1 << 17


def view(array, base, stride, nbytes, count):
    """The blocks of an array of bytes, a row for each."""
    return np.lib.stride_tricks.as_strided(array[base:], (count, nbytes), (stride, 1))


def random_pieces(random):
    """Pieces whose blocks do not overlap, on either side."""
    pieces, local, remote = [], 0, BASE
    for _ in range(int(random.integers(1, 9))):
        nbytes, count = int(random.choice([0, 1, 7, 64, 500])), int(random.integers(0, 12))
        local_stride, remote_stride = (nbytes + int(random.choice([0, 1, 30])) for _ in range(2))
        local, remote = local + int(random.integers(0, 40)), remote + int(random.integers(0, 40))
        pieces.append(hmc.Piece(local, remote, nbytes, count=count, local_stride=local_stride, remote_stride=remote_stride))
        local, remote = local + count * local_stride, remote + count * remote_stride
    return pieces


@pytest.mark.parametrize("seed", range(12))
def test_blocks_go_where_numpy_assigns_them(pair, seed):
    a, b, peer, _ = pair
    random = np.random.default_rng(seed)
    pieces = random_pieces(random)
    mine = random.integers(0, 256, SIZE, dtype=np.uint8)
    there = np.zeros(1 << 18, np.uint8)
    b.buffer.write(there, 0)
    for p in pieces:
        view(there, p.remote, p.remote_stride, p.nbytes, p.count)[:] = view(mine, p.local, p.local_stride, p.nbytes, p.count)
    batch = peer.prepare_put(pieces, mine)
    assert len(batch) == len(pieces)
    if seed % 2:
        assert batch.post().wait() == sum(p.nbytes * p.count for p in pieces)
    else:
        batch.run()
    assert b.buffer.read(1 << 18, 0) == there.tobytes(), pieces
    back, want = np.full(SIZE, 7, np.uint8), np.full(SIZE, 7, np.uint8)
    for p in pieces:
        view(want, p.local, p.local_stride, p.nbytes, p.count)[:] = view(mine, p.local, p.local_stride, p.nbytes, p.count)
    peer.prepare_get(pieces, back).run()
    assert np.array_equal(back, want), pieces


def test_a_stride_of_zero_sends_one_block_many_times(pair):
    a, b, peer, _ = pair
    peer.prepare_put([hmc.Piece(1, 10, 2, count=3, remote_stride=4), (0, 30, 1)], b"abc").run()
    assert b.buffer.read(21, 10) == b"bc\0\0bc\0\0bc" + bytes(10) + b"a"


def test_a_piece_of_millions_of_blocks_is_one(pair):
    a, b, peer, _ = pair
    many = hmc.Piece(0, 0, 0, count=4_000_000_000, local_stride=0, remote_stride=0)
    assert len(peer.prepare_put([many])) == 1
    adjacent = hmc.Piece(0, 0, 1, count=1 << 20, local_stride=1, remote_stride=1)
    assert peer.prepare_put([adjacent]).post().wait() == 1 << 20


def test_the_piece_that_does_not_fit_is_named(pair):
    a, b, peer, _ = pair
    here, good = bytearray(100), (0, 0, 8)
    for bad in (hmc.Piece(0, 0, 8, count=13, local_stride=8), hmc.Piece(0, 0, 8, count=2, remote_stride=1 << 20),
                hmc.Piece(0, 0, 8, count=(1 << 32) - 1, local_stride=(1 << 63) - 1), hmc.Piece(0, 1 << 20, 8)):
        for prepare in (peer.prepare_put, peer.prepare_get):
            with pytest.raises(hmc.OutOfRange, match="piece 1: "):
                prepare([good, bad], here)
    with pytest.raises(hmc.OutOfRange):
        peer.prepare_put([hmc.Piece(96, 0, 8)], here)


def test_wrong_pieces_are_refused(pair):
    a, b, peer, _ = pair
    for name in ("local_stride", "remote_stride"):
        with pytest.raises(hmc.InvalidArgument, match=f"{name}=-8: strides are not negative"):
            hmc.Piece(0, 0, 8, count=2, **{name: -8})
    for numbers in ({"count": -1}, {"count": 1 << 32}, {"expect": -1}, {"local_stride": 1 << 63}):
        with pytest.raises(OverflowError):
            hmc.Piece(0, 0, 8, **numbers)
    for copy in ((0, 0), (0, 0, 1, 2, 3), "abc", 5, (0, -1, 8), None):
        with pytest.raises(TypeError):
            peer.prepare_put([copy], b"12345678")


def test_each_piece_may_expect_a_generation(pair):
    a, b, peer, back = pair
    cache, blocks = b.allocate(64), b.generations(64, 16)
    with back.expose(cache, label=5, generations=blocks):
        window = peer.window(5)
        batch = peer.prepare_put([hmc.Piece(0, 4, 2, count=4, local_stride=2, remote_stride=16, expect=0)], b"aabbccdd", window=window)
        batch.run()
        assert cache.read(64).replace(b"\0", b"") == b"aabbccdd"
        blocks.advance(3)
        with pytest.raises(hmc.Revoked, match="block 3 of the window has generation 1"):
            batch.run()


def test_pieces_are_values():
    piece = hmc.Piece(1, 2, 3, count=4, local_stride=5, remote_stride=6, expect=7)
    assert eval(repr(piece), {"hmc": hmc}) == piece and hash(piece) == hash(eval(repr(piece), {"hmc": hmc}))
    numbers = (piece.local, piece.remote, piece.nbytes, piece.count, piece.local_stride, piece.remote_stride, piece.expect)
    assert numbers == (1, 2, 3, 4, 5, 6, 7)
    assert piece != hmc.Piece(1, 2, 3) and piece != (1, 2, 3) and repr(hmc.Piece(1, 2, 3)) == "hmc.Piece(1, 2, 3)"
    with pytest.raises(AttributeError):
        piece.count = 5
