//! Notes of a peer over RDMA verbs: what is cut off or changed is a typed error, or a number for the NIC, and ends nothing else.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests may panic"
)]

use std::sync::Arc;

use hmc_core::transport::{
    DataCloseReason, DataPlane as _, Notes as _, PostErrorKind, Progress as _, Transport as _,
};
use hmc_core::types::Access;
use hmc_core::window::WindowFault;
use hmc_core::wire::cursor::WireErrorKind;
use hmc_core::work::Failure;
use hmc_hw::verbs::fault::VerbsFault;
use hmc_tests::fake_ibv::{self, FakeIbv, VerbsFate, has_windows};
use hmc_tests::verbs_planes::{End, LEN, domain, meet, pair};

/// Each byte of a note changed in several ways.
fn changed(bytes: &[u8]) -> impl Iterator<Item = (usize, Vec<u8>)> + '_ {
    let ways: [fn(u8) -> u8; 6] =
        [|_| 0, |_| 0xff, |b| b ^ 1, |b| b ^ 0x80, |b| b.wrapping_add(1), |b| !b];
    (0..bytes.len()).flat_map(move |at| {
        ways.into_iter().filter_map(move |way| {
            let mut copy = bytes.to_vec();
            copy[at] = way(copy[at]);
            (copy != bytes).then_some((at, copy))
        })
    })
}

#[test]
fn without_windows() {
    fake_ibv::run_without_windows(&[]);
}

#[test]
fn conn_info_that_is_cut_off_or_longer_is_refused_and_the_whole_one_connects() {
    let fake = FakeIbv::take();
    let (mut near, mut far) = (End::new(), End::new());
    let (kind, bytes) = far.greeting();
    for len in 0..bytes.len() {
        let fault = near.try_receive((kind, &bytes[..len])).expect_err("it is cut off");
        assert!(matches!(fault, VerbsFault::Note(_)), "{len}: {fault:?}");
    }
    let longer = [&bytes[..], &[0]].concat();
    assert!(matches!(near.try_receive((kind, &longer)), Err(VerbsFault::Note(_))));
    assert!(!near.plane.is_ready() && near.plane.close_reason().is_none());
    let (mut near, far, window) = meet(near, far);
    near.post(&near.put(1, &window, 64));
    assert_eq!(near.complete(1), [(1, Ok(64))]);
    drop((near, far));
    fake.assert_clean();
}

/// It is refused, or connects to somebody else: then requests fail as those of a peer that is gone.
#[test]
fn conn_info_that_is_changed_harms_no_other_link() {
    let fake = FakeIbv::take();
    let (mut near, far, window) = pair();
    let domain = domain(&Arc::default(), 1, true);
    let mut other = End::in_domain(&domain).unwrap();
    let (kind, bytes) = other.greeting();
    let (mut refused, mut connected) = (0, 0);
    for (at, copy) in changed(&bytes) {
        let mut end = End::in_domain(&domain).unwrap();
        match end.try_receive((kind, &copy)) {
            Ok(()) => {
                assert!(
                    !end.plane.is_ready() && end.plane.next_note(&mut []).is_some(),
                    "byte {at}"
                );
                connected += 1;
            }
            Err(VerbsFault::Note(_) | VerbsFault::Unreachable(..)) => refused += 1,
            Err(VerbsFault::Call(e)) => panic!("byte {at}: {e}"),
            Err(fault) => panic!("byte {at}: {fault:?}"),
        }
        assert_eq!(end.plane.close_reason(), None, "byte {at}");
    }
    assert!(refused > 20 && connected > 20, "{refused} refused, {connected} connected");
    near.post(&near.put(1, &window, 64));
    assert_eq!(near.complete(1), [(1, Ok(64))]);
    drop((near, far, other, domain));
    fake.assert_clean();
}

/// A request that came before the peer is connected would be lost, and sent again after the time for an acknowledgement.
#[test]
fn requests_wait_until_both_ends_are_connected() {
    let fake = FakeIbv::take();
    let (mut near, mut far) = (End::new(), End::new());
    let (ours, theirs) = (near.greeting(), far.greeting());
    near.receive((theirs.0, &theirs.1));
    let window = far.expose_to(&mut near, (0, LEN), Access::all());
    let put = near.put(1, &window, 64);
    assert!(!near.plane.is_ready());
    assert_eq!(near.plane.post(&put), Err(PostErrorKind::Busy));
    far.receive((ours.0, &ours.1));
    assert_eq!(near.plane.post(&put), Err(PostErrorKind::Busy), "nobody has said so");
    let word = far.word();
    near.receive((word.0, &word.1));
    // Of the window that was exposed before, where they are valid only now.
    let keys = far.notes();
    assert_eq!(keys.len(), usize::from(has_windows()));
    keys.iter().for_each(|(kind, bytes)| near.receive((*kind, bytes)));
    assert!(near.plane.is_ready() && !far.plane.is_ready());
    near.post(&put);
    assert_eq!(near.complete(1), [(1, Ok(64))]);
    drop((near, far));
    fake.assert_clean();
}

/// Without gets no put would ever be visible.
#[test]
fn a_peer_that_serves_no_reads_is_refused() {
    let fake = FakeIbv::take();
    let (mut near, mut far) = (End::new(), End::new());
    let (kind, mut bytes) = far.greeting();
    bytes[15] = 0;
    let fault = near.try_receive((kind, &bytes)).expect_err("it serves no reads");
    let VerbsFault::Note(e) = &fault else { panic!("{fault:?}") };
    assert!(matches!(e.kind, WireErrorKind::Value { field: "reads at a time", value: 0 }), "{e:?}");
    assert!(!near.plane.is_ready());
    drop((near, far));
    fake.assert_clean();
}

#[test]
fn a_second_conn_info_changes_nothing() {
    let fake = FakeIbv::take();
    let (mut near, far, window) = pair();
    let mut other = End::new();
    let (kind, bytes) = other.greeting();
    let calls = fake.calls("ibv_modify_qp");
    near.receive((kind, &bytes));
    assert_eq!(fake.calls("ibv_modify_qp"), calls);
    near.post(&near.put(1, &window, 64));
    assert_eq!(near.complete(1), [(1, Ok(64))]);
    near.plane.close(DataCloseReason::Silent);
    near.receive((kind, &bytes));
    assert_eq!(near.plane.post(&near.put(1, &window, 64)), Err(PostErrorKind::Disconnected));
    drop((near, far, other));
    fake.assert_clean();
}

#[test]
fn notes_of_other_kinds_are_passed_over() {
    let fake = FakeIbv::take();
    let (mut near, far, window) = pair();
    for kind in (0..=255).filter(|kind| ![5, 6].contains(kind)) {
        near.receive((kind, &[1, 2, 3]));
    }
    near.post(&near.put(1, &window, 64));
    assert_eq!(near.complete(1), [(1, Ok(64))]);
    drop((near, far));
    fake.assert_clean();
}

/// Each changed key is refused, or one to a window that is not there: this end or the NIC refuses the access.
#[test]
fn window_keys_that_are_cut_off_or_changed_reach_nothing_else() {
    let fake = FakeIbv::take();
    let (mut near, mut far, all) = pair();
    let (window, note) = far.try_expose((1024, 64), Access::WRITE).unwrap();
    let (kind, bytes) = note.unwrap();
    for len in 0..bytes.len() {
        let fault = near.try_receive((kind, &bytes[..len])).expect_err("it is cut off");
        assert!(matches!(fault, VerbsFault::Note(_)), "{len}: {fault:?}");
        near.post(&near.put(1, &window, 64));
        assert_eq!(near.complete(1), [(1, Err(Failure::Window(WindowFault::Unknown)))]);
    }
    let mut refused = 0;
    for (at, copy) in changed(&bytes) {
        match near.try_receive((kind, &copy)) {
            Ok(()) => {}
            Err(VerbsFault::Note(_) | VerbsFault::UnknownWindow { .. }) => refused += 1,
            Err(fault) => panic!("byte {at}: {fault:?}"),
        }
        assert_eq!(near.plane.close_reason(), None, "byte {at}");
    }
    assert_ne!(refused, 0);
    // The last one counts. What was changed named other windows, or this one.
    near.receive((kind, &bytes));
    near.fill(6);
    near.post(&near.put(2, &window, 64));
    assert_eq!(near.complete(1), [(2, Ok(64))]);
    assert_eq!((far.count_from(1024, 6), far.count_from(0, 6)), (64, 0));
    let _ = all;
    drop((near, far));
    fake.assert_clean();
}

/// A key with another address, length or number: the peer's NIC refuses it, and nothing lands.
#[test]
fn a_key_that_lies_ends_its_own_link_only() {
    let fake = FakeIbv::take();
    // The length, the address, and the key itself.
    for at in [14, 22, 31, 32] {
        let (mut other, apart, window) = pair();
        let (mut near, mut far, _) = pair();
        far.fill(1);
        let (lied, note) = far.try_expose((1024, 64), Access::WRITE).unwrap();
        let (kind, mut bytes) = note.unwrap();
        bytes[at] ^= 0x20;
        near.receive((kind, &bytes));
        near.fill(2);
        let mut work = near.put(1, &window, 2048);
        (work.remote.window, work.remote.epoch) = (lied.window, lied.epoch);
        near.post(&work);
        let [(1, Err(Failure::Window(_)))] = near.complete(1)[..] else { panic!("byte {at}") };
        assert_eq!(far.count_from(0, 1), 4096, "byte {at}");
        other.post(&other.put(1, &window, LEN));
        assert_eq!(other.complete(1), [(1, Ok(LEN))]);
        drop((near, far, other, apart));
        assert_eq!((fake.count("live"), fake.count("findings")), (0, 0));
    }
}

#[test]
fn a_greeting_needs_no_call_of_the_device() {
    let fake = FakeIbv::take();
    let mut end = End::new();
    fake.rule("ibv_modify_qp", 0, VerbsFate::Refused(libc::EIO));
    assert_eq!(end.greeting(), end.greeting());
    let mut small = [0; 20];
    assert!(matches!(end.plane.greeting(&mut small), Err(VerbsFault::Note(_))));
    fake.clear_rules();
    drop(end);
    fake.assert_clean();
}
