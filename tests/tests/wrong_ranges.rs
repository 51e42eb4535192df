//! Requests that a session refuses by itself: they leave its window, name none, or want what it does not allow. Each gets
//! its answer, nothing is read or written, and the link serves what follows.

#![allow(clippy::arithmetic_side_effects, clippy::unwrap_used, reason = "tests may panic")]

use hmc_core::range::{RangeError, Side};
use hmc_core::region::{Epoch, WindowId};
use hmc_core::types::Access;
use hmc_core::window::WindowFault;
use hmc_core::wire::data::{DataFlags, DataFrame, DataKind};
use hmc_core::wire::hello::Features;
use hmc_core::work::Failure;
use hmc_tests::env::{Via, until};
use hmc_tests::rogue::Rogue;
use hmc_tests::wrong::BOTH;
use hmc_tests::wrong::rig::{LIE, Rig, WINDOW, WINDOW_AT};
use hmc_tests::wrong::target::{LONG, Target};

const LAST: DataFlags = DataFlags::LAST;

fn refusal(rogue: &mut Rogue, seq: u32, what: &str) -> Failure {
    let (answer, _) = rogue.read_data();
    assert_eq!((answer.kind, answer.seq), (DataKind::Nack, seq), "{what}: {answer:?}");
    answer.why().unwrap()
}

fn fault(fault: WindowFault) -> Failure {
    Failure::Window(fault)
}

fn out(offset: u64, len: u64) -> Failure {
    fault(WindowFault::OutOfWindow(RangeError { side: Side::Remote, offset, len, limit: WINDOW }))
}

/// A put with nothing wrong in it is done.
fn assert_serves(rig: &mut Rig<'_>, seq: u32) {
    rig.write(seq, (512, 64), 64, LAST);
    let (answer, _) = rig.rogue.read_data();
    assert_eq!((answer.kind, answer.seq, answer.total), (DataKind::Ack, seq, 1));
    rig.expect_in_window(512, 64);
    rig.target.assert_unharmed("after refusals");
}

/// Refuses a request of each kind on `at.total` bytes at `at.offset` of `at.window`.
fn assert_refused(rig: &mut Rig<'_>, next: &mut u32, at: DataFrame, why: Failure, what: &str) {
    let memory = [0x11_u8; 256];
    let addr = u64::try_from(memory.as_ptr().expose_provenance()).unwrap();
    let via = rig.target.via;
    for kind in [DataKind::Write, DataKind::Read, DataKind::WriteRef, DataKind::ReadRef] {
        let seq = *next;
        *next += 1;
        let frame = DataFrame { kind, seq, ..at };
        let by_ref = matches!(kind, DataKind::WriteRef | DataKind::ReadRef);
        match kind {
            DataKind::Write => {
                let len = u32::try_from(at.total).unwrap();
                let payload = vec![LIE; usize::try_from(len).unwrap()];
                rig.send(&DataFrame { len, flags: LAST, ..frame }, &payload);
            }
            DataKind::WriteRef => rig.send(&DataFrame { addr, flags: LAST, ..frame }, &[]),
            _ => rig.send(&DataFrame { addr: if by_ref { addr } else { 0 }, ..frame }, &[]),
        }
        let got = refusal(&mut rig.rogue, seq, what);
        let wanted = if by_ref && via == Via::Tcp { Failure::Unsupported } else { why };
        assert_eq!(got, wanted, "{via:?} {what} {kind:?}");
    }
    assert_eq!(memory, [0x11; 256], "{what}: bytes were given away");
}

#[test]
fn ranges_and_names_of_no_window_are_refused() {
    for via in BOTH {
        let mut target = Target::new(*via);
        let mut rig = Rig::new(&mut target);
        let truth = rig.request(DataKind::Write, 0, 64);
        let name = truth.window.0;
        let at = |offset| DataFrame { offset, ..truth };
        let lies = [
            ("one byte too far", at(WINDOW - 63), out(WINDOW - 63, 64)),
            ("behind the end", at(WINDOW), out(WINDOW, 64)),
            ("where the area ends", at(WINDOW + 4096), out(WINDOW + 4096, 64)),
            (
                "before the begin, around the end of numbers",
                at(u64::MAX - 31),
                out(u64::MAX - 31, 64),
            ),
            (
                "another place",
                DataFrame { window: WindowId(name ^ 0x80), ..truth },
                fault(WindowFault::Unknown),
            ),
            (
                "no place",
                DataFrame { window: WindowId(name | 0xFFFF), ..truth },
                fault(WindowFault::Unknown),
            ),
            (
                "a guessed name",
                DataFrame { window: WindowId(name ^ (1 << 40)), ..truth },
                fault(WindowFault::Unknown),
            ),
            (
                "the epoch before",
                DataFrame { epoch: Epoch(truth.epoch.0 - 1), ..truth },
                fault(WindowFault::StaleEpoch),
            ),
            (
                "the epoch after",
                DataFrame { epoch: Epoch(truth.epoch.0 + 1), ..truth },
                fault(WindowFault::StaleEpoch),
            ),
        ];
        let mut seq = 1;
        for (what, lie, why) in lies {
            assert_refused(&mut rig, &mut seq, lie, why, what);
            rig.target.assert_unharmed(what);
        }
        assert_serves(&mut rig, seq);
    }
}

/// The first part lies within the window, the range as a whole does not.
#[test]
fn a_put_is_validated_whole_before_its_first_byte() {
    for via in BOTH {
        let mut target = Target::new(*via);
        let mut rig = Rig::new(&mut target);
        let rest = u32::try_from(WINDOW + 1 - 64).unwrap();
        rig.write(1, (0, 64), WINDOW + 1, DataFlags::empty());
        rig.write(1, (64, rest), WINDOW + 1, LAST);
        let why = refusal(&mut rig.rogue, 1, "a byte more than the window has");
        assert_eq!(why, out(0, WINDOW + 1), "{via:?}");
        rig.target.assert_unharmed("a byte more than the window has");
        assert_serves(&mut rig, 2);
    }
}

#[test]
fn a_window_gives_what_it_allows_alone() {
    for via in BOTH {
        for (access, kinds) in [
            (Access::READ, [DataKind::Write, DataKind::WriteRef]),
            (Access::WRITE, [DataKind::Read, DataKind::ReadRef]),
        ] {
            let mut target = Target::new(*via);
            let mut rig = Rig::with(&mut target, access, Features::BATCHED_ACKS);
            for (seq, kind) in (1..).zip(kinds) {
                let write = matches!(kind, DataKind::Write | DataKind::WriteRef);
                let len = if kind == DataKind::Write { 64 } else { 0 };
                let flags = if write { LAST } else { DataFlags::empty() };
                let memory = [0x11_u8; 64];
                let addr = u64::try_from(memory.as_ptr().expose_provenance()).unwrap();
                let frame = DataFrame { len, flags, addr, ..rig.request(kind, seq, 64) };
                rig.send(&frame, &vec![LIE; usize::try_from(len).unwrap()]);
                let by_ref = matches!(kind, DataKind::WriteRef | DataKind::ReadRef);
                let tcp = by_ref && *via == Via::Tcp;
                let wanted = if tcp { Failure::Unsupported } else { fault(WindowFault::Access) };
                assert_eq!(refusal(&mut rig.rogue, seq, "rights"), wanted, "{via:?} {kind:?}");
                assert_eq!(memory, [0x11; 64], "{kind:?}: bytes were given away");
                rig.target.assert_unharmed("a right that the window does not give");
            }
        }
    }
}

/// A put whose window is taken back between its parts: what came is there, what follows is not.
#[test]
fn the_rest_of_a_put_into_a_revoked_window_is_refused() {
    for via in BOTH {
        let mut target = Target::new(*via);
        let mut rig = Rig::new(&mut target);
        let second =
            DataFrame { offset: 64, len: 64, flags: LAST, ..rig.request(DataKind::Write, 1, 128) };
        rig.write(1, (0, 64), 128, DataFlags::empty());
        until("the first part is there", LONG, || {
            let mut last = [0];
            rig.target.area.read_at(WINDOW_AT + 63, &mut last).unwrap();
            (last == [LIE]).then_some(())
        });
        rig.expect_in_window(0, 64);
        let (target, mut rogue) = rig.revoke();
        assert!(rogue.send(&second, &[LIE; 64]));
        let why = refusal(&mut rogue, 1, "a revoked window");
        assert!(
            matches!(why, Failure::Window(WindowFault::Revoked | WindowFault::Unknown)),
            "{why:?}"
        );
        target.assert_unharmed("a revoked window");
    }
}

/// A peer that does not understand an acknowledgement of several operations gets one for each.
#[test]
fn acknowledgements_suit_the_peer() {
    for via in BOTH {
        for (features, most) in [(Features::empty(), 1), (Features::BATCHED_ACKS, 3)] {
            let mut target = Target::new(*via);
            let mut rig = Rig::with(&mut target, Access::all(), features);
            let put = DataFrame { len: 8, flags: LAST, ..rig.request(DataKind::Write, 0, 8) };
            let puts =
                (1..4).flat_map(|seq| [&DataFrame { seq, ..put }.emit()[..], &[LIE; 8]].concat());
            assert!(rig.rogue.send_bytes(&puts.collect::<Vec<u8>>()));
            rig.expect_in_window(0, 8);
            let mut done = 0;
            while done < 3 {
                let (ack, _) = rig.rogue.read_data();
                assert_eq!(ack.kind, DataKind::Ack, "{ack:?}");
                assert!(ack.total <= most, "{via:?} {features:?}: {ack:?}");
                done += ack.total;
                assert_eq!(u64::from(ack.seq), done, "{ack:?}");
            }
            rig.target.assert_unharmed("puts in a row");
        }
    }
}
