//! Whole sessions over several NICs, by the fake libibverbs: bytes move over all of them, waiters are woken by each, and what a session
//! says of itself names them.

#![allow(clippy::arithmetic_side_effects, clippy::unwrap_used, reason = "tests may panic")]

use std::time::Duration;

use hmc_std::{ConnType, ErrorKind, Message, Progress, Session, probe, want::Wanted};
use hmc_testkit::buffers::{BufferTransfers as _, wait};
use hmc_tests::env::{TempDir, until};
use hmc_tests::fake_ibv::{FakeIbv, run_over};
use hmc_tests::verbs_sessions::{BUFFER_PART, Two};

const LONG: Duration = Duration::from_secs(20);
const QP_FATAL: u32 = 1;

#[test]
fn sessions_over_two_nics() {
    run_over("fake_0,fake_1:1", &["--ignored", "over_two"]);
}

#[test]
fn sessions_over_a_nic_that_is_not_there() {
    run_over("fake_0,mlx5_7", &["--ignored", "a_wrong_name"]);
}

fn take() -> Option<FakeIbv> {
    let fake = FakeIbv::take_for_sessions()?;
    fake.set("devices", 4);
    Some(fake)
}

#[test]
#[ignore = "`sessions_over_two_nics` runs it as a process"]
fn over_two_bytes_tags_and_messages_move() {
    let Some(fake) = take() else { return };
    for (progress, channels) in [(Progress::Thread, [1, 1]), (Progress::Manual, [4, 3])] {
        let two = Two::with_channels(&fake, progress, channels);
        let before = ["bytes_0", "bytes_1"].map(|name| fake.count(name));
        two.put_and_compare(1);
        two.peer.get_at(BUFFER_PART, 2 * BUFFER_PART, BUFFER_PART).unwrap();
        two.peer.put_notify_at(0, 0, 4096, 77).unwrap();
        assert_eq!(two.back.recv(Wanted::Any).within(LONG).wait().unwrap(), Message::Notify(77));
        // Each is waited for by itself, on either NIC.
        for n in 0..20 {
            let op = two.peer.start_put_at(n * 64, n * 64, 64).unwrap();
            assert_eq!(wait(op).unwrap(), 64);
        }
        let after = ["bytes_0", "bytes_1"].map(|name| fake.count(name));
        assert!(before.iter().zip(after).all(|(before, after)| after - before > 640), "{after:?}");
        let said = two.peer.explain().to_string();
        for part in
            ["rc over fake_0:1,", "rc over fake_1:1,", "NICs: 2 of 2 (named by HMC_RDMA_PORT)"]
        {
            assert!(said.contains(part), "{said}");
        }
        two.end(&fake);
    }
    let facts = probe::rdma().unwrap().port.unwrap();
    assert!(facts.contains("fake_0:1,") && facts.contains("; fake_1:1,"), "{facts}");
    assert!(facts.ends_with("(named by HMC_RDMA_PORT)"), "{facts}");
    fake.await_clean();
}

/// The thread that watches the devices ends the link, whoever waits.
#[test]
#[ignore = "`sessions_over_two_nics` runs it as a process"]
fn over_two_the_end_of_a_queue_pair_of_either_ends_the_link() {
    let Some(fake) = take() else { return };
    for device in [0, 1] {
        let two = Two::new(&fake, Progress::Thread);
        two.put_and_compare(1);
        fake.event(device, QP_FATAL, 1);
        let failed = until("the link to end", LONG, || two.peer.put_at(0, 0, 64).err());
        let said = two.peer.explain().to_string() + &failed.to_string();
        assert!(said.contains(&format!("fake_{device}")), "{said}");
        two.end(&fake);
    }
}

#[test]
#[ignore = "`sessions_over_a_nic_that_is_not_there` runs it as a process"]
fn a_wrong_name_is_an_error_of_the_connection() {
    let Some(fake) = take() else { return };
    let dir = TempDir::new();
    let target = Session::builder(1).uds(dir.path()).start().unwrap();
    let source = Session::builder(0).start().unwrap();
    let e = source
        .connect(&dir.address())
        .rank(1)
        .over(ConnType::Rdma)
        .within(LONG)
        .wait()
        .expect_err("no such NIC");
    assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
    let text = e.to_string();
    assert!(text.contains("no RDMA device mlx5_7: choose one of fake_0, fake_1"), "{text}");
    let facts = probe::rdma().unwrap().port.unwrap_err();
    assert!(facts.contains("mlx5_7"), "{facts}");
    drop((source, target));
    fake.await_clean();
}
