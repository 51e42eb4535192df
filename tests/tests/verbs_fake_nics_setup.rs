//! Links over several NICs that cannot be set up, over the fake libibverbs: an error names the NIC, and nothing is left.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests may panic"
)]

use std::os::fd::AsFd as _;
use std::sync::Arc;

use hmc_core::transport::{DataPlane as _, PostErrorKind, Transport as _};
use hmc_core::types::Access;
use hmc_core::work::Opcode;
use hmc_hw::host::SharedWorker as _;
use hmc_hw::verbs::domain::VerbsDomain;
use hmc_hw::verbs::fault::VerbsFault;
use hmc_hw::verbs::library::{Library, Search};
use hmc_hw::verbs::nic_list::NicList;
use hmc_hw::verbs::select::{Port, SelectError};
use hmc_tests::fake_ibv::{self, FakeIbv, VerbsFate, file, has_windows};
use hmc_tests::ucx_planes::HostCall;
use hmc_tests::verbs_planes::{EVENTS_WORKER, End, LEN, RecordingHost, meet, try_domain_over};

const PORT_ACTIVE: u32 = 9;
const PORT_ERR: u32 = 10;

fn open(text: &str) -> Result<Vec<Port>, SelectError> {
    let library = Library::load(&Search { named: Some(file()) }).expect("a whole libibverbs");
    text.parse::<NicList>().expect("names").open(library)
}

fn over(
    text: &str,
    host: &Arc<RecordingHost>,
    is_manual: bool,
) -> Result<Arc<VerbsDomain>, VerbsFault> {
    try_domain_over(open(text).expect("ports"), host, 2, is_manual)
}

fn take() -> FakeIbv {
    let fake = FakeIbv::take();
    fake.set("devices", 4);
    fake
}

#[test]
fn without_windows() {
    fake_ibv::run_without_windows(&[]);
}

#[test]
fn a_wrong_name_is_an_error_that_lists_the_devices() {
    let fake = take();
    let e = open("fake_0,fake_9").expect_err("there is none");
    assert!(matches!(e, SelectError::Device(_)), "{e:?}");
    let text = e.to_string();
    assert!(text.contains("fake_9: choose one of fake_0, fake_1, fake_2, fake_3"), "{text}");
    let text = open("fake_0,fake_1:2").expect_err("there is none").to_string();
    assert!(text.contains("fake_1 has no port 2: its last one is 1"), "{text}");
    for twice in ["fake_1,fake_0,fake_1", "fake_1,fake_1:1"] {
        assert_eq!(open(twice).expect_err("twice"), SelectError::Twice("fake_1:1".to_owned()));
    }
    fake.rule("ibv_open_device", 2, VerbsFate::Refused(libc::EACCES));
    let text = open("fake_2,fake_3").expect_err("it is refused").to_string();
    assert!(text.starts_with("opening failed: fake_3") || text.contains("fake_3"), "{text}");
    fake.set_port(1, 1, "state", 1);
    let text = open("fake_0,fake_1").expect_err("it is down").to_string();
    assert!(text.contains("fake_1:1 is down: look at its cable"), "{text}");
    fake.assert_clean();
}

/// Those of the second NIC of each kind, and of both in the connection.
#[test]
fn a_call_that_fails_for_the_second_nic_leaves_nothing() {
    let fake = take();
    let shared = [("ibv_alloc_pd", 2), ("ibv_reg_mr", 3), ("ibv_reg_mr", 4)];
    if has_windows() {
        for (function, nth) in shared {
            fake.rule(function, nth, VerbsFate::Refused(libc::ENOMEM));
            let fault = over("fake_0,fake_1", &Arc::default(), true).expect_err(function);
            let VerbsFault::Call(e) = fault else { panic!("{fault:?}") };
            assert!(e.errno == libc::ENOMEM && e.what.contains("fake_1"), "{function}: {e}");
            fake.clear_rules();
            fake.assert_clean();
        }
    }
    let domain = over("fake_0,fake_1", &Arc::default(), true).unwrap();
    let before = fake.count("live");
    let own = shared.into_iter().filter(|_| !has_windows());
    let each = [("ibv_create_comp_channel", 2), ("ibv_create_cq", 2), ("ibv_modify_qp", 2)];
    for (function, nth) in own.chain(each) {
        fake.rule(function, nth, VerbsFate::Refused(libc::ENOMEM));
        let VerbsFault::Call(e) = End::in_domain(&domain).expect_err(function) else { panic!() };
        assert!(e.errno == libc::ENOMEM && e.what.contains("fake_1"), "{function}: {e}");
        assert_eq!(fake.count("live"), before, "{function} {nth}");
        fake.clear_rules();
    }
    for nth in 1..=4 {
        let mut near = End::in_domain(&domain).unwrap();
        let theirs = End::in_domain(&domain).unwrap().greeting();
        fake.rule("ibv_modify_qp", nth, VerbsFate::Refused(libc::ETIMEDOUT));
        let fault = near.try_receive((theirs.0, &theirs.1)).expect_err("it is refused");
        let VerbsFault::Call(e) = fault else { panic!("{fault:?}") };
        assert!(e.what.contains(if nth > 2 { "fake_1" } else { "fake_0" }), "{nth}: {e}");
        drop(near);
        assert_eq!(fake.count("live"), before, "{nth}");
        fake.clear_rules();
    }
    drop(domain);
    fake.assert_clean();
}

/// The post or the exposure is refused, and what was registered on the first NIC ends. The link goes on.
#[test]
fn memory_that_one_nic_does_not_register_is_registered_on_none() {
    let fake = take();
    let host = Arc::<RecordingHost>::default();
    let domain = over("fake_0,fake_1", &host, true).unwrap();
    let far = End::in_domain(&over("fake_2,fake_3", &Arc::default(), true).unwrap()).unwrap();
    let (mut near, mut far, window) = meet(End::in_domain(&domain).unwrap(), far);
    let before = fake.count("mrs");
    fake.rule("ibv_reg_mr", 2, VerbsFate::Refused(libc::ENOMEM));
    assert_eq!(near.plane.post(&near.put(1, &window, 64)), Err(PostErrorKind::Other));
    let Some(VerbsFault::Call(e)) = near.plane.take_refusal() else { panic!("no reason") };
    assert!(e.errno == libc::ENOMEM && e.what.contains("fake_1"), "{e}");
    assert_eq!((fake.count("mrs"), host.take()), (before, vec![HostCall::NotRegistered]));
    fake.clear_rules();
    let open = |fake: &FakeIbv| fake.count("mrs") + fake.count("mws");
    let before = open(&fake);
    let function = if has_windows() { "ibv_alloc_mw" } else { "ibv_reg_mr" };
    fake.rule(function, 2, VerbsFate::Refused(libc::ENOMEM));
    let fault = far.try_expose((0, 64), Access::all()).expect_err("it is refused");
    let VerbsFault::Call(e) = fault else { panic!("{fault:?}") };
    assert!(e.what.contains("fake_3"), "{e}");
    assert_eq!(open(&fake), before);
    fake.clear_rules();
    for index in 0..4 {
        near.post(&near.put(index, &window, 64));
    }
    assert_eq!(near.complete(4).iter().filter(|(_, result)| *result == Ok(64)).count(), 4);
    drop((near, far, domain));
    fake.assert_clean();
}

/// A port that is down: links go on, no link begins, and the report and the error name it.
#[test]
fn no_link_begins_while_the_port_of_one_nic_is_down() {
    let fake = take();
    let host = Arc::<RecordingHost>::default();
    let domain = over("fake_0,fake_1", &host, true).unwrap();
    let far = End::in_domain(&over("fake_2,fake_3", &Arc::default(), true).unwrap()).unwrap();
    let (near, far, _) = meet(End::in_domain(&domain).unwrap(), far);
    fake.event(1, PORT_ERR, 1);
    let fault = End::in_domain(&domain).expect_err("it is down").to_string();
    assert!(fault.contains("fake_1:1 is down"), "{fault}");
    let reports = host.take();
    let [HostCall::PortDown(text)] = &reports[..] else { panic!("{reports:?}") };
    assert!(text.starts_with("fake_1:1: "), "{text}");
    assert_eq!(near.plane.close_reason(), None);
    fake.event(1, PORT_ACTIVE, 1);
    drop(End::in_domain(&domain).expect("it is active"));
    let _ = host.take();
    drop((near, far, domain));
    fake.assert_clean();
}

/// One descriptor tells of completions on each NIC, also to a caller that sleeps, and each device's events are watched.
#[test]
fn a_completion_on_any_nic_wakes() {
    let fake = take();
    let host = Arc::<RecordingHost>::default();
    let domain = over("fake_0,fake_1", &host, false).unwrap();
    assert_eq!(host.take(), [EVENTS_WORKER; 2].map(HostCall::Watch));
    let far = End::in_domain(&over("fake_2,fake_3", &Arc::default(), true).unwrap()).unwrap();
    let (mut near, far, window) = meet(End::in_domain(&domain).unwrap(), far);
    let worker = near.plane.link_worker();
    let is_readable = || {
        let mut fd = libc::pollfd {
            fd: std::os::fd::AsRawFd::as_raw_fd(&worker.as_fd()),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one descriptor, which is open.
        unsafe { libc::poll(&mut fd, 1, 0) == 1 }
    };
    for index in 0..4 {
        fake.rule("write", 1, VerbsFate::Held);
        near.post(&near.work(index, Opcode::Put, &window, (0, 64)));
        assert!(near.poll().is_empty());
        worker.claim();
        while !worker.can_sleep() {
            assert!(near.poll().is_empty());
        }
        assert!(!is_readable(), "{index}");
        assert_eq!(fake.release(), 1);
        fake.progress(8);
        assert!(is_readable(), "{index}");
        worker.release();
        assert!(!is_readable(), "the host's thread has it: {index}");
        assert_eq!(near.complete(1), [(index, Ok(64))]);
    }
    assert!(far.count_from(0, 0) != 0 && LEN != 0);
    let _ = host.take();
    drop((near, far, worker, domain));
    let _ = host.take();
    fake.assert_clean();
}
