//! Tests of the fake library itself: it reports misuse, keeps UCX's order, and delivers messages.

mod rig;

use core::ptr::null_mut;

use crate::am;
use crate::endpoint::ucp_ep_print_info;
use crate::memory::{ucp_mem_unmap, ucp_rkey_destroy};
use crate::script::{
    FAIL, HOLD, LATE, REFUSE, hmc_fake_ucp_kill, hmc_fake_ucp_release, hmc_fake_ucp_reset,
};
use crate::setup::ucp_cleanup;
use crate::sys;
use crate::transfer::{ucp_request_check_status, ucp_request_free};
use crate::worker::{ucp_worker_arm, ucp_worker_destroy, ucp_worker_progress, ucp_worker_signal};
use rig::{FAILED, MAIL, Rig, count, findings, held, order, received, rule, set, unpack};

#[test]
fn bytes_come_with_the_flush_and_not_before() {
    let rig = Rig::new();
    assert_eq!(rig.put(1, 10, 100), 0, "a short put is done at once");
    rig.progress();
    assert_eq!(rig.byte(10), 0, "nothing vouched for it yet");
    assert!(rig.flush(2) > 0);
    assert_eq!(rig.progress(), 1);
    assert_eq!((Rig::ended(), rig.byte(10), rig.byte(110)), (vec![(2, 0)], 7, 0));
    set("landing", 3);
    rig.put(1, 200, 1);
    for seen in [0, 0, 7] {
        rig.progress();
        assert_eq!(rig.byte(200), seen, "in the end it lands by itself");
    }
    assert_eq!(rig.end(), [""; 0]);
}

#[test]
fn a_flush_waits_for_what_was_posted_before_it() {
    let mut rig = Rig::new();
    rule("ucp_put_nbx", 1, LATE, 3);
    assert!(rig.put(1, 0, 8) > 0);
    assert!(rig.flush(2) > 0);
    assert!(rig.get(3, 100, 4) > 0);
    rig.progress();
    assert_eq!(Rig::ended(), [(3, 0)], "what came after it does not wait");
    rig.progress();
    assert_eq!(Rig::ended(), []);
    rig.progress();
    assert_eq!((Rig::ended(), rig.byte(4)), (vec![(1, 0), (2, 0)], 7));
    assert_eq!(rig.end(), [""; 0]);
}

#[test]
fn the_script_refuses_fails_holds_and_reverses() {
    let rig = Rig::new();
    rule("ucp_put_nbx", 1, REFUSE, -2);
    rule("ucp_put_nbx", 2, FAIL, -25);
    rule("ucp_put_nbx", 3, HOLD, 0);
    set("put_delay", 1);
    set("order", 1);
    assert_eq!(rig.put(1, 0, 8), -2);
    assert!(rig.put(2, 0, 8) > 0);
    assert!(rig.put(3, 100, 8) > 0);
    assert!(rig.put(4, 200, 8) > 0);
    for _ in 0..10 {
        rig.progress();
    }
    assert_eq!(Rig::ended(), [(4, 0), (2, -25)]);
    assert_eq!((rig.byte(0), rig.byte(3), rig.byte(4)), (7, 7, 0), "a half of what failed");
    assert_eq!((count("held"), hmc_fake_ucp_release()), (1, 1));
    rig.progress();
    assert_eq!(Rig::ended(), [(3, 0)]);
    assert_eq!(rig.end(), [""; 0]);
}

#[test]
fn a_forced_close_gives_all_requests_back() {
    for delay in [0, 1, 3] {
        let rig = Rig::new();
        set("close_delay", delay);
        rule("ucp_put_nbx", 0, HOLD, 0);
        assert!(rig.put(1, 0, 8) > 0);
        assert!(rig.flush(2) > 0);
        rig.progress();
        assert_eq!(Rig::ended(), []);
        let answer = rig.close(3);
        assert_eq!(answer == 0, delay == 0);
        (0..3).for_each(|_| {
            rig.progress();
        });
        let mut want = vec![(1, -16), (2, -16)];
        want.extend((delay != 0).then_some((3, 0)));
        assert_eq!(Rig::ended(), want);
        assert_eq!(count("endpoints"), 0);
        // The rig closes it once more.
        assert_eq!(rig.end(), ["ucp_ep_close_nbx: this endpoint was closed, or never made"]);
    }
}

#[test]
fn a_failed_endpoint_calls_its_handler_and_refuses() {
    for purge in [0, 1] {
        let rig = Rig::new();
        rule("ucp_put_nbx", 0, HOLD, 0);
        assert!(rig.put(1, 0, 8) > 0);
        assert_eq!(hmc_fake_ucp_kill(1, -25, purge), 1);
        rig.progress();
        assert_eq!(core::mem::take(&mut *held(&FAILED)), [-25]);
        assert_eq!(Rig::ended().len(), usize::from(purge != 0));
        assert_eq!((rig.put(2, 0, 8), rig.flush(3)), (-25, -25));
        assert_eq!(rig.end(), [""; 0]);
    }
}

#[test]
fn accesses_beyond_the_key_are_refused() {
    let rig = Rig::new();
    assert_eq!(rig.put(1, 4090, 7), -3);
    assert_eq!(count("refused"), 1);
    set("put_delay", 1);
    assert!(rig.put(2, 4096, 1) > 0);
    rig.progress();
    assert_eq!((Rig::ended(), count("late")), (vec![(2, -3)], 0));
    assert_eq!(rig.end(), [""; 0]);
}

#[test]
fn arming_is_refused_while_there_is_something_to_do() {
    let rig = Rig::new();
    // SAFETY: the worker is the rig's.
    let arm = || unsafe { ucp_worker_arm(rig.workers[0]) };
    assert_eq!(arm(), 0);
    // SAFETY: as above.
    assert_eq!(unsafe { ucp_worker_signal(rig.workers[0]) }, 0);
    assert_eq!((arm(), arm()), (-15, 0));
    rig.flush(1);
    assert_eq!(arm(), -15);
    rig.progress();
    assert_eq!(arm(), 0);
    rule("ucp_put_nbx", 0, HOLD, 0);
    rig.put(2, 0, 8);
    rig.flush(3);
    assert_eq!(arm(), 0, "what is held comes by itself");
    hmc_fake_ucp_release();
    assert_eq!(arm(), -15);
    rig.progress();
    assert_eq!(rig.end(), [""; 0]);
}

#[test]
fn misuse_is_reported() {
    let rig = Rig::new();
    set("put_delay", 1);
    let request = rig.put(1, 0, 8);
    // SAFETY: wrong on purpose, and harmless here: names are looked up.
    unsafe { ucp_mem_unmap(rig.context, rig.near) };
    // SAFETY: as above.
    unsafe { ucp_rkey_destroy(unpack(rig.context, rig.ep, rig.far)) };
    rig.progress();
    // SAFETY: as above.
    unsafe { ucp_request_free(core::ptr::without_provenance_mut(request.cast_unsigned())) };
    // SAFETY: as above.
    unsafe { ucp_request_check_status(core::ptr::without_provenance_mut(16)) };
    // SAFETY: as above.
    unsafe { ucp_worker_destroy(rig.workers[0]) };
    rig.flush(2);
    // SAFETY: as above.
    unsafe { ucp_cleanup(rig.context) };
    assert_eq!(
        findings(),
        [
            "ucp_mem_unmap: a request under way still uses this memory",
            "ucp_request_free: this request was freed already, or there never was one",
            "ucp_request_free: a request that was freed is asked for its status",
            "ucp_worker_destroy: endpoints of this worker are not closed",
            "ucp_cleanup: workers or memory of this context are left",
        ]
    );
    hmc_fake_ucp_reset();
}

#[test]
fn two_threads_inside_one_worker_are_found() {
    let rig = Rig::new();
    set("yields", 1000);
    let worker = rig.workers[0].addr();
    let turns = |n: u32| {
        for _ in 0..n {
            // SAFETY: a name that is looked up.
            unsafe { ucp_worker_progress(core::ptr::without_provenance_mut(worker)) };
        }
    };
    std::thread::scope(|s| {
        s.spawn(|| turns(100));
        turns(100);
    });
    set("yields", 0);
    let found = findings();
    let what =
        "ucp_worker_progress: another thread is inside this worker, whose calls are serialised";
    assert!(found.iter().any(|f| f == what), "{found:?}");
    assert_eq!(rig.end(), [""; 0]);
}

#[test]
fn a_message_comes_whole_and_in_order() {
    let rig = Rig::new();
    for (id, keep) in [(3, 0), (4, 1)] {
        let param = sys::ucp_am_handler_param_t {
            field_mask: 15,
            id,
            flags: 2,
            cb: Some(received),
            arg: core::ptr::without_provenance_mut(keep),
        };
        // SAFETY: the worker is the rig's.
        let status =
            unsafe { am::ucp_worker_set_am_recv_handler(rig.workers[1], &raw const param) };
        assert_eq!(status, 0);
    }
    let send = |id: u32, header: &[u8], data: &[u8]| {
        let param = order(9);
        // SAFETY: both slices live during the call.
        let answer = unsafe {
            am::ucp_am_send_nbx(
                rig.ep,
                id,
                header.as_ptr().cast(),
                header.len(),
                data.as_ptr().cast(),
                data.len(),
                &raw const param,
            )
        };
        answer.addr().cast_signed()
    };
    rule("ucp_am_send_nbx", 1, LATE, 2);
    assert!(send(3, b"one", b"first") > 0);
    assert!(send(4, b"", b"second") > 0, "it does not overtake");
    assert!(rig.flush(1) > 0);
    // SAFETY: the worker is the rig's.
    let receive = || unsafe { ucp_worker_progress(rig.workers[1]) };
    assert_eq!(receive(), 0);
    (0..3).for_each(|_| {
        rig.progress();
    });
    assert_eq!(Rig::ended(), [(9, 0), (9, 0), (1, 0)]);
    assert_eq!(receive(), 2);
    let mail = core::mem::take(&mut *held(&MAIL));
    let texts: Vec<_> = mail.iter().map(|(h, d, _)| (h.as_slice(), d.as_slice())).collect();
    assert_eq!(texts, [(&b"one"[..], &b"first"[..]), (b"", b"second")]);
    for _ in 0..2 {
        let data = core::ptr::without_provenance_mut(mail[1].2);
        // SAFETY: a name that is looked up.
        unsafe { am::ucp_am_data_release(rig.workers[1], data) };
    }
    assert_eq!(findings(), ["ucp_am_data_release: this data was released already, or never kept"]);
    assert_eq!(rig.end(), [""; 0]);
}

#[test]
fn an_endpoint_is_described_as_ucx_does() {
    let rig = Rig::new();
    let (mut text, mut len) = (null_mut(), 0);
    // SAFETY: both may be written until the stream is closed.
    let stream = unsafe { libc::open_memstream(&raw mut text, &raw mut len) };
    // SAFETY: the stream is open.
    unsafe { ucp_ep_print_info(rig.ep, stream.cast()) };
    // SAFETY: opened above, closed once.
    unsafe { libc::fclose(stream) };
    // SAFETY: the stream has written that many bytes there.
    let bytes = unsafe { core::slice::from_raw_parts(text.cast::<u8>(), len) };
    let said = String::from_utf8_lossy(bytes).into_owned();
    // SAFETY: the stream's buffer is the caller's to free.
    unsafe { libc::free(text.cast()) };
    assert!(said.contains("lane[0]:  0:rc_mlx5/mlx5_0:1.0 md[0]"), "{said}");
    assert_eq!(rig.end(), [""; 0]);
}
