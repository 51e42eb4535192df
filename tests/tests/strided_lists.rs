//! Pieces of many blocks: a list of them moves what the list of their blocks moves, over each transport.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    reason = "tests may panic"
)]

use hmc_std::{ConnType, Error, ErrorKind, Piece};
use hmc_tests::pair::{Pair, transports};
use hmc_tests::strided::{BUFFER, HALF, compare_lists, read};

const LISTS: u64 = 40;

#[test]
fn a_list_of_runs_moves_what_its_blocks_would() {
    for conn in transports() {
        compare_lists(&Pair::new(conn, BUFFER), LISTS);
    }
}

/// Nothing is written before the last block of the last piece is known to fit.
#[test]
fn the_piece_that_does_not_fit_is_named_and_nothing_is_written() {
    for conn in transports() {
        let pair = Pair::new(conn, BUFFER);
        let (near, far) = (pair.sender(), pair.receiver());
        let remote = pair.a.buffer().expect("it exposes a buffer");
        near.buffer().fill(0, HALF, 1).expect("in range");
        far.buffer().fill(HALF, HALF, 0xEE).expect("in range");
        let piece = Piece::new(near.buffer().range(0, 8).expect("in range"), HALF);
        let good = piece.repeat(8, 8, 16);
        let fits = (BUFFER - 8) / 1024;
        let bad = [
            piece.repeat(u32::MAX, 8, 8),
            piece.repeat(2, 8, u64::MAX),
            piece.repeat(3, u64::MAX / 2, 8),
            piece.repeat(fits as u32 + 2, 1024, 0),
            piece.repeat(1 + (HALF / 1024) as u32, 0, 1024),
        ];
        for bad in bad {
            let e: Error = remote.put_list(&[good, good, bad]).wait().expect_err("it does not fit");
            assert_eq!(e.kind(), ErrorKind::Range, "{conn:?}: {e}");
            assert!(e.range().is_some() && e.to_string().contains("piece 2: "), "{conn:?}: {e}");
            let e = remote.get_list(&[bad, good]).prepare().expect_err("it does not fit");
            assert!(e.to_string().contains("piece 0: "), "{conn:?}: {e}");
        }
        if conn != ConnType::Loopback {
            assert!(read(far, HALF).iter().all(|b| *b == 0xEE), "{conn:?}");
        }
        let all =
            [piece.repeat(fits as u32 + 1, 1024, 0), piece.repeat((HALF / 1024) as u32, 0, 1024)];
        remote.put_list(&all).wait().expect("all of it fits");
        remote.put_list(&[piece.repeat(0, 8, 8)]).notify(5).wait().expect("nothing but a tag");
    }
}
