//! What a device does with windows is tried before they are used: each of the checks decides, and each failure is a reason.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::time::{Duration, Instant};

use hmc_hw::verbs::status::WcStatus;
use hmc_hw::verbs::window_probe::{try_windows, window_scheme};
use hmc_hw::verbs::window_scheme::{NoWindows, WindowCheck, WindowScheme};
use hmc_tests::fake_ibv::{FakeIbv, VerbsFate, has_windows, port, run_ignored};

/// The reason of a device that is set up so. Nothing of the trial is left.
fn tried(fake: &FakeIbv, set_up: impl FnOnce()) -> Result<(), NoWindows> {
    fake.restart();
    set_up();
    let result = try_windows(&port(0));
    fake.clear_rules();
    for what in ["live", "registered", "findings"] {
        assert_eq!(fake.count(what), 0, "{what}: {result:?}");
    }
    result
}

#[test]
fn a_device_that_refuses_all_that_it_must_has_windows() {
    let fake = FakeIbv::take();
    assert_eq!(tried(&fake, || {}), Ok(()));
    assert_eq!((fake.count("refused"), fake.calls("bind"), fake.calls("write")), (4, 3, 6));
    fake.restart();
    fake.set_port(0, 1, "link_layer", 1);
    assert_eq!(try_windows(&port(0)), Ok(()), "InfiniBand");
}

#[test]
fn each_check_decides() {
    let fake = FakeIbv::take();
    for (name, check) in [
        ("window_range", WindowCheck::Outside),
        ("window_qp", WindowCheck::OtherQueuePair),
        ("window_rights", WindowCheck::ReadOnly),
        ("window_end", WindowCheck::Ended),
    ] {
        let result = tried(&fake, || fake.set_device(0, name, 0));
        assert_eq!(result, Err(NoWindows::LetThrough(check)), "{name}");
    }
    assert_eq!(tried(&fake, || fake.set_device(0, "invalidation", 0)), Ok(()), "it is not used");
    assert_eq!(tried(&fake, || fake.set_device(0, "windows", 0)), Err(NoWindows::NotAdvertised));
    assert_eq!(tried(&fake, || fake.set_device(0, "max_mw", 0)), Err(NoWindows::NotAdvertised));
    for windows in [2, 3] {
        let result = tried(&fake, || fake.set_device(0, "windows", windows));
        let Err(NoWindows::Call(e)) = result else { panic!("{result:?}") };
        assert_eq!((e.call, e.errno), ("making a window", libc::EOPNOTSUPP), "{windows}");
    }
    let result = tried(&fake, || fake.set_device(0, "windows", 4));
    let failed = NoWindows::Status(WindowCheck::Bind, WcStatus(6));
    assert_eq!(result, Err(failed));
}

/// A write that fails in another way than by a refusal tells nothing, and one that is refused and lands was let through.
#[test]
fn what_was_refused_is_not_to_be_there() {
    let fake = FakeIbv::take();
    // The writes: inside, by another queue pair, outside, to a window for reads, inside, after the end. A scripted failure moves half of
    // the bytes.
    for (nth, status, name, check) in [
        (1, 10, "window_qp", WindowCheck::Inside),
        (2, 12, "window_qp", WindowCheck::OtherQueuePair),
        (3, 11, "window_range", WindowCheck::Outside),
        (4, 11, "window_rights", WindowCheck::ReadOnly),
        (5, 4, "window_range", WindowCheck::Inside),
        (6, 9, "window_end", WindowCheck::Ended),
    ] {
        let result = tried(&fake, || {
            fake.set_device(0, name, u64::from(check == WindowCheck::Inside));
            fake.rule("write", nth, VerbsFate::Failed(status, 0));
        });
        let wanted = NoWindows::Status(check, WcStatus(status.into()));
        assert_eq!(result, Err(wanted), "{nth}");
    }
    for (nth, name, check) in [
        (2, "window_qp", WindowCheck::OtherQueuePair),
        (3, "window_range", WindowCheck::Outside),
        (4, "window_rights", WindowCheck::ReadOnly),
        (6, "window_end", WindowCheck::Ended),
    ] {
        let result = tried(&fake, || {
            fake.set_device(0, name, 0);
            fake.rule("write", nth, VerbsFate::Failed(10, 0));
        });
        assert_eq!(result, Err(NoWindows::LetThrough(check)), "{name}");
    }
}

/// Each call fails at each place: the reason names it.
#[test]
fn each_call_that_fails_is_the_reason() {
    let fake = FakeIbv::take();
    let calls = [
        ("ibv_alloc_pd", 1, "making a protection domain"),
        ("ibv_create_comp_channel", 1, "making a completion channel"),
        ("ibv_create_cq", 1, "making a completion queue"),
        ("ibv_reg_mr", 1, "registering memory"),
        ("ibv_alloc_mw", 3, "making a window"),
        ("bind", 3, "posting requests"),
        ("write", 6, "posting requests"),
    ];
    for (function, count, step) in calls {
        for nth in 1..=count {
            let errno = libc::ENOMEM;
            let result = tried(&fake, || fake.rule(function, nth, VerbsFate::Refused(errno)));
            let Err(NoWindows::Call(e)) = result else { panic!("{function} {nth}: {result:?}") };
            assert_eq!((e.call, e.errno), (step, errno), "{function} {nth}");
        }
    }
    // To INIT, and two steps to be connected, of eight queue pairs.
    for nth in 1..=24 {
        let refused = VerbsFate::Refused(libc::EINVAL);
        let result = tried(&fake, || fake.rule("ibv_modify_qp", nth, refused));
        let Err(NoWindows::Call(e)) = result else { panic!("{nth}: {result:?}") };
        assert_eq!((e.call, e.errno), ("changing a queue pair", libc::EINVAL), "{nth}");
    }
    let result = tried(&fake, || fake.rule("ibv_req_notify_cq", 0, VerbsFate::Refused(5)));
    assert_eq!(result, Ok(()), "the queue is looked at all the same");
}

/// A device that does not answer is given up after a second.
#[test]
fn what_does_not_complete_is_given_up() {
    let fake = FakeIbv::take();
    let begun = Instant::now();
    for (operation, fate, check) in [
        ("bind", VerbsFate::Held, WindowCheck::Bind),
        ("write", VerbsFate::AckHeld, WindowCheck::Inside),
    ] {
        let result = tried(&fake, || fake.rule(operation, 1, fate));
        assert_eq!(result, Err(NoWindows::NoCompletion(check)), "{operation}");
    }
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
}

/// A trial that cannot be ended leaves what the device may still access, and its windows are not used.
#[test]
fn what_cannot_be_ended_is_the_reason() {
    let fake = FakeIbv::take();
    for (function, nth, step, live) in [
        ("ibv_dealloc_mw", 1, "ending a window", 4),
        ("ibv_destroy_qp", 1, "destroying a queue pair", 5),
        ("ibv_dereg_mr", 1, "ending a registration", 3),
    ] {
        fake.restart();
        fake.rule(function, nth, VerbsFate::Refused(libc::EBUSY));
        let result = try_windows(&port(0));
        let Err(NoWindows::Call(e)) = result else { panic!("{function}: {result:?}") };
        assert_eq!((e.call, e.errno), (step, libc::EBUSY));
        assert_eq!((fake.count("live"), fake.count("findings")), (live, 0), "{function}");
    }
}

/// The second session finds what the first one found, unless that need not last. Alone in its process: the device is used for the first
/// time.
#[test]
#[ignore = "run by `a_device_is_tried_once`"]
fn only_the_first_use_tries() {
    if !has_windows() {
        return;
    }
    let fake = FakeIbv::take_untried();
    fake.rule("ibv_alloc_mw", 1, VerbsFate::Refused(libc::ENOMEM));
    let scheme = window_scheme(&port(0));
    assert!(matches!(scheme, WindowScheme::DomainPerPeer(NoWindows::Call(_))), "{scheme}");
    fake.restart();
    fake.set_device(0, "window_range", 0);
    let why = NoWindows::LetThrough(WindowCheck::Outside);
    for _ in 0..2 {
        assert_eq!(window_scheme(&port(0)), WindowScheme::DomainPerPeer(why.clone()));
        assert_eq!(fake.calls("ibv_alloc_mw"), 1);
    }
    assert_eq!(fake.count("live"), 0);
    fake.set_device(1, "window_end", 1);
    fake.set("devices", 2);
    assert_eq!(window_scheme(&port(1)), WindowScheme::Type2b, "another device");
}

#[test]
fn a_device_is_tried_once() {
    run_ignored();
}
