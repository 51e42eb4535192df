//! Peers that send frames of one kind as fast as they can and read nothing: what they make a session hold is limited by
//! the row of that kind (`hmc_core::wire::held`), and is given back when their link ends.
//!
//! Each kind for `HMC_TEST_FLOOD_MS` milliseconds (100 by default, of PING and REVOKE eight times as long); 10,000 is the
//! whole test.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests may panic"
)]

use std::fs::File;
use std::time::Duration;

use hmc_core::rndv::{self, AbortReason, RndvId, RndvMsg};
use hmc_core::wire::data::{DATA_FRAME_BYTES, DataKind};
use hmc_core::wire::held::{Held, of_data, of_message};
use hmc_core::wire::message::{ControlKind, ControlMessage};
use hmc_mem::os::fd_passing::send_fd;
use hmc_mem::os::io::IoOutcome;
use hmc_tests::attack::floods::{
    BATCH, BESIDE, Flooded, INBOX, Scene, Via, data_frame, library, of_kind,
};
use hmc_tests::env::{number, skipped};
use hmc_tests::raw_frames::frame;
use hmc_tests::rogue::pour;

const ACTOR: &str = env!("CARGO_BIN_EXE_actor");

fn time() -> Duration {
    Duration::from_millis(number("HMC_TEST_FLOOD_MS", 100))
}

fn check(via: Via, what: &str, f: &Flooded) {
    let Flooded { sent, links, grown, limit, pages, left } = *f;
    println!(
        "{via:?} {what}: {sent} frames on {links} links, {grown} bytes of {limit} and {BESIDE}, {left} left"
    );
    if via == Via::Ucx {
        // What UCX and the allocator keep: 0.1 to 0.5 MiB.
        println!("{via:?} {what}: {pages} bytes resident more");
        let limit = u64::try_from(limit + 4 * BESIDE).unwrap();
        assert!(pages <= limit, "{via:?} {what}: {pages} bytes resident more, {limit} may be");
    }
    assert!(
        !f.is_over(),
        "{via:?} {what}: grew by {grown} bytes, the limit is {limit} and {BESIDE}"
    );
}

fn control_floods(via: Via) {
    let mut scene = Scene::new(ACTOR, via);
    for kind in ControlKind::all() {
        // Answers to these are what piles up: long enough for more than the limit of them.
        let factor = if matches!(kind, ControlKind::Ping | ControlKind::Revoke) { 8 } else { 1 };
        let flooded = of_kind(&mut scene, via, kind, time() * factor);
        check(via, &format!("{kind:?}"), &flooded);
    }
}

/// Messages of any size that are offered and withdrawn: each is answered by a last word, which nobody reads. They come by so
/// few at a time that no more are under way than may be.
#[test]
fn messages_that_are_withdrawn_over_a_local_socket() {
    let mut scene = Scene::new(ACTOR, Via::Uds);
    let limit = of_message(ControlKind::Rndv).bytes(INBOX);
    let pair = |n: u32| {
        let end = RndvMsg::End {
            id: RndvId(n),
            from: rndv::RndvRole::Sender,
            how: Err(AbortReason::Cancelled),
        };
        [RndvMsg::Offer { id: RndvId(n), len: 1 }, end]
            .map(|note| frame(&ControlMessage::Rndv(note)))
            .concat()
    };
    let (mut link, mut number, mut bytes, mut at) = (None, 0, Vec::new(), 0);
    let flooded = scene.flood(Via::Uds, limit, time() * 16, |rogue, _| {
        if link.replace(rogue.window.window) != Some(rogue.window.window) {
            // Each link counts its own.
            (number, at) = (0, bytes.len());
        }
        if at == bytes.len() {
            bytes = (number..number + 4).flat_map(pair).collect();
            (number, at) = (number + 4, 0);
        }
        at = pour(&mut rogue.control, &bytes, at)?;
        Some(())
    });
    check(Via::Uds, "messages withdrawn", &flooded);
}

#[test]
fn control_frames_over_tcp() {
    control_floods(Via::Tcp);
}

#[test]
fn control_frames_over_a_local_socket() {
    control_floods(Via::Uds);
}

#[test]
fn control_frames_beside_shared_memory() {
    control_floods(Via::Shm);
}

#[test]
fn frames_in_the_dialect_of_the_cxx_hmc() {
    control_floods(Via::Upstream);
}

/// What is answered.
const REQUESTS: [DataKind; 6] = [
    DataKind::Write,
    DataKind::Read,
    DataKind::WriteRef,
    DataKind::ReadRef,
    DataKind::Region,
    DataKind::Gather,
];
const ANSWERS: [DataKind; 3] = [DataKind::ReadData, DataKind::Ack, DataKind::Nack];

fn data_floods(via: Via, kinds: &[DataKind]) {
    let mut scene = Scene::new(ACTOR, via);
    let memory = vec![3u8; 4096];
    let address = u64::try_from(memory.as_ptr().expose_provenance()).unwrap();
    let null = File::open("/dev/null").unwrap();
    for &kind in kinds {
        let limit = of_data(kind).bytes(INBOX);
        let (mut bytes, mut at) = (Vec::new(), 0);
        let flooded = scene.flood(via, limit, time(), |rogue, n| {
            if kind == DataKind::Region && via == Via::Shm {
                return (n..n + BATCH).try_for_each(|n| {
                    let frame = data_frame(kind, n, &rogue.window, address);
                    match send_fd(&rogue.data, &null, &frame) {
                        Ok(IoOutcome::Bytes(sent)) if sent == frame.len() => Some(()),
                        Ok(IoOutcome::WouldBlock) => Some(()),
                        _ => None,
                    }
                });
            }
            if let Some(soft) = &mut rogue.am {
                for n in n..n + BATCH {
                    let bytes = data_frame(kind, n, &rogue.window, address);
                    let (frame, data) = bytes.split_at(DATA_FRAME_BYTES);
                    soft.send(frame, data)?;
                }
                return (!rogue.is_over()).then_some(());
            }
            if at == bytes.len() {
                let one = |n| data_frame(kind, n, &rogue.window, address);
                bytes = (n..n + BATCH).flat_map(one).collect();
                at = 0;
            }
            let poured = pour(&mut rogue.data, &bytes, at);
            at = poured.unwrap_or(bytes.len());
            poured.map(|_| ())
        });
        check(via, &format!("{kind:?}"), &flooded);
    }
    drop(memory);
}

#[test]
fn data_frames_over_tcp() {
    data_floods(Via::Tcp, &REQUESTS);
    data_floods(Via::Tcp, &ANSWERS);
}

#[test]
fn data_frames_beside_shared_memory() {
    data_floods(Via::Shm, &REQUESTS);
    data_floods(Via::Shm, &ANSWERS);
}

/// Beside UCX, by messages: what a peer sends there, and on the control connection of such a link. What UCX keeps for
/// itself shows in the process's pages.
#[test]
fn frames_beside_ucx() {
    if library().is_none() {
        return skipped("floods over UCX: there is none here");
    }
    data_floods(Via::Ucx, &ANSWERS);
    control_floods(Via::Ucx);
}

/// The same of what is answered, to a peer that does not read, and goes.
#[test]
fn requests_beside_ucx() {
    let Some(library) = library() else {
        return skipped("floods over UCX: there is none here");
    };
    let version = library.version();
    if (version.major, version.minor) < (1, 14) {
        return skipped(
            "floods of requests: UCX up to 1.13 ends the process (docs/UCX.md, known limits)",
        );
    }
    data_floods(Via::Ucx, &REQUESTS);
}

/// Rows are small: no peer costs more than its inbox and two megabytes of names.
#[test]
fn every_kind_has_a_limit() {
    for kind in ControlKind::all() {
        let bytes = of_message(kind).bytes(0);
        assert!(bytes <= 2 << 20, "{kind:?}: {bytes}");
        assert!(of_message(kind) != Held::Lines { count: 0, bytes: 0 });
    }
    assert!(REQUESTS.iter().chain(&ANSWERS).all(|kind| of_data(*kind).bytes(0) <= 1 << 20));
}
