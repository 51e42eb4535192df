//! The end of a stream: what the peer sees of it, and what becomes of requests.

use std::io::{ErrorKind as Io, Read as _, Write as _};

use hmc_core::transport::{
    DataCloseReason, DataPlane as _, Interest, PostErrorKind, Progress as _, Readiness,
};
use hmc_core::work::{Failure, Opcode};

use super::super::MAX_REQUESTS;
use super::{Bench, asked, work};
use hmc_core::wire::data::{DataFrame, DataKind};

/// Whether the peer sees the end of the data plane's direction, and whether it can still send.
fn seen(bench: &Bench) -> (bool, bool) {
    let ended = match (&bench.peer).read(&mut [0]) {
        Ok(n) => n == 0,
        Err(e) => e.kind() != Io::WouldBlock,
    };
    (ended, (&bench.peer).write(&[0]).is_ok())
}

/// A peer that may reach memory by itself is told when nothing of this end accesses its memory, not earlier, and this end receives until then.
#[test]
fn the_peer_sees_the_end_when_it_may() {
    for (local, near, at_once, heard) in
        [(true, true, true, true), (true, false, true, true), (false, false, true, false)]
    {
        let mut bench = Bench::new(local, near, 1);
        assert_eq!(bench.plane.is_near(), local || near);
        bench.plane.say_out();
        assert_eq!(seen(&bench), (false, true), "not before it is down");
        bench.plane.close(DataCloseReason::Silent);
        assert_eq!(seen(&bench), (at_once, heard), "local {local}, near {near}");
        assert_eq!(bench.plane.close_reason(), Some(DataCloseReason::Silent));
        bench.plane.close(DataCloseReason::Eof);
        assert_eq!(
            bench.plane.close_reason(),
            Some(DataCloseReason::Silent),
            "the first reason stays"
        );
    }
    let mut bench = Bench::new(false, true, 1);
    bench.plane.close(DataCloseReason::Silent);
    assert_eq!(seen(&bench), (false, true), "something else may be in its memory");
    bench.plane.say_out();
    assert_eq!(seen(&bench), (true, true));
}

#[test]
fn a_peer_of_another_system_has_ended_when_its_stream_has() {
    for (why, ended) in [(DataCloseReason::Eof, true), (DataCloseReason::Silent, false)] {
        let mut bench = Bench::new(false, false, 1);
        assert!(!bench.plane.peer_has_ended());
        bench.plane.close(why);
        assert_eq!(bench.plane.peer_has_ended(), ended, "{why:?}");
    }
}

#[test]
fn a_peer_draws_near_once_and_while_the_stream_is_there() {
    let mut bench = Bench::new(false, false, 1);
    assert!(!bench.plane.life.has_process());
    bench.plane.draw_near(Some(std::process::id()));
    assert!(bench.plane.is_near() && bench.plane.life.has_process());
    bench.plane.draw_near(None);
    assert!(bench.plane.life.has_process(), "what is known of it stays");
    let mut bench = Bench::new(false, false, 1);
    bench.plane.close(DataCloseReason::Silent);
    bench.plane.draw_near(Some(std::process::id()));
    assert!(!bench.plane.is_near());
}

/// Memory that the peer may be copying from or to is not given back.
#[test]
fn requests_fail_at_the_end_but_for_those_that_the_peer_may_be_serving() {
    let mut bench = Bench::local();
    let region = bench.region(64);
    for (index, opcode, by_ref) in [(0, Opcode::Put, false), (1, Opcode::Get, false)] {
        bench.submit(index, opcode, &region, by_ref);
    }
    bench.plane.flush();
    bench.submit(2, Opcode::Get, &region, true);
    bench.plane.close(DataCloseReason::Silent);
    let dead = Err(Failure::PeerDead);
    assert_eq!(bench.poll(), [(0, dead), (1, dead), (2, dead)], "the last was not sent");
    assert!(bench.plane.are_requests_fenced());
    assert_eq!(
        bench.plane.submit(&work(3, Opcode::Put, &region), false, 64),
        Err(PostErrorKind::Disconnected)
    );

    let mut bench = Bench::local();
    let region = bench.region(64);
    bench.submit(0, Opcode::Get, &region, true);
    bench.plane.flush();
    bench.submit(1, Opcode::Put, &region, false);
    bench.plane.close(DataCloseReason::Silent);
    assert_eq!(bench.poll(), [(1, dead)]);
    assert!(!bench.plane.are_requests_fenced());
    drop(bench.peer);
    assert!(bench.plane.are_requests_fenced());
}

/// The region is the application's again as soon as the link is over, whatever becomes of the data plane.
#[test]
fn a_stream_that_is_down_uses_no_region() {
    for kind in [DataKind::Write, DataKind::Read] {
        let mut bench = Bench::local();
        let region = bench.region(1 << 20);
        let window = bench.window(&region);
        drop(region);
        // Half a put arrives; or a get is answered as far as the socket takes it.
        let half: &[u8] = if kind == DataKind::Write { &[1; 64] } else { &[] };
        bench.send(&asked(kind, 0, &window, 1 << 20), half);
        bench.plane.poll_peer(true);
        assert!(bench.plane.regions.sweep().is_empty(), "{kind:?}");
        bench.plane.close(DataCloseReason::Silent);
        assert_eq!(bench.plane.regions.sweep().len(), 1, "{kind:?}");
        assert!(!bench.plane.target.has_output() && !bench.plane.target.has_jobs());
        assert_eq!(bench.plane.interest(), Interest::default());
        assert!(!bench.plane.poll_peer(true));
    }
}

#[test]
fn a_port_waits_for_bytes_and_for_space_only_if_it_has_some_to_send() {
    let mut bench = Bench::local();
    let waits =
        |write| Interest { connection: Readiness { read: true, write, end: false }, work: false };
    assert_eq!(bench.plane.interest(), waits(false));
    let region = bench.region(64);
    bench.submit(0, Opcode::Put, &region, false);
    assert_eq!(bench.plane.interest(), waits(true));
    bench.plane.flush();
    assert_eq!(bench.plane.interest(), waits(false));
    let window = bench.window(&region);
    bench.plane.target.done(7);
    assert_eq!(bench.plane.interest(), waits(true), "an acknowledgement");
    bench.plane.flush();
    bench.send(&asked(DataKind::Read, 0, &window, 64), &[]);
    assert!(bench.plane.poll_peer(true), "a frame came");
    assert_eq!(bench.plane.interest(), waits(false), "it is answered");
    assert!(!bench.plane.poll_peer(true));
}

/// Requests that wait for an answer, and completions that wait for a poll, are bounded.
#[test]
fn a_port_is_busy_while_requests_or_completions_wait() {
    let mut bench = Bench::local();
    let region = bench.region(8);
    let put = work(0, Opcode::Put, &region);
    for n in 0..MAX_REQUESTS {
        assert_eq!(bench.plane.submit(&put, false, 8), Ok(()), "{n}");
    }
    assert_eq!(bench.plane.submit(&put, false, 8), Err(PostErrorKind::Busy));
    assert_eq!(bench.frames().len(), MAX_REQUESTS);
    let (last, count) = (u32::try_from(MAX_REQUESTS - 1), u64::try_from(MAX_REQUESTS));
    bench.send(&DataFrame::ack(last.expect("small"), count.expect("small")), &[]);
    bench.plane.poll_peer(true);
    assert_eq!(bench.plane.submit(&put, false, 8), Err(PostErrorKind::Busy), "nobody has polled");
    assert_eq!(bench.poll().len(), MAX_REQUESTS);
    assert_eq!(bench.plane.submit(&put, false, 8), Ok(()));
}
