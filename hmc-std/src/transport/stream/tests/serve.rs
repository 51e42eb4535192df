//! What the peer asks: executed in its turn, within what was agreed, and not once its window is gone.

use hmc_core::transport::{DataCloseReason, DataPlane as _, Fence, Progress as _, Target as _};
use hmc_core::window::{WindowFault, WindowTransition};
use hmc_core::wire::data::{DataFlags, DataFrame, DataKind};
use hmc_core::work::Failure;

use super::super::MAX_REQUESTS;
use super::super::target::{CmaJob, StreamTarget};
use super::{Bench, asked, by_ref, bytes, fill};
use hmc_core::range::Extent;
use hmc_core::region::WindowDesc;

const MIB: u64 = 1 << 20;
const REVOKED: Failure = Failure::Window(WindowFault::Revoked);

#[test]
fn a_turn_copies_eight_mebibytes_and_leaves_the_rest_for_the_next() {
    for kind in [DataKind::WriteRef, DataKind::ReadRef] {
        let mut bench = Bench::local();
        let (ours, theirs) =
            (bench.region(9 * MIB), bench.table.allocate(9 * MIB).expect("memory"));
        let window = bench.window(&ours);
        let (from, to) = match kind {
            DataKind::WriteRef => (&theirs, &ours),
            _ => (&ours, &theirs),
        };
        fill(from, 3);
        bench.send(&by_ref(kind, 0, &window, &theirs), &[]);
        assert!(bench.plane.poll_peer(true));
        assert_eq!(bench.plane.bytes_in, 8 * MIB);
        assert!(bench.plane.interest().work);
        assert_eq!(bench.kinds(), []);
        assert!(bench.plane.poll_peer(true));
        assert_eq!(bench.plane.bytes_in, 9 * MIB);
        assert!(!bench.plane.interest().work);
        assert_eq!(bench.kinds(), [(DataKind::Ack, 0)]);
        assert_eq!(bytes(to), bytes(from));
        assert!(!bench.plane.poll_peer(true));
    }
}

/// Each acknowledgement wakes the peer; but it is to have something queued here while it wakes.
#[test]
fn copies_are_acknowledged_together_but_before_the_peer_has_nothing_queued() {
    for (count, len, acks) in [
        (3, 4096, vec![(2, 3)]),
        (2, MIB - 1, vec![(1, 2)]),
        (2, MIB, vec![(0, 1), (1, 1)]),
        (3, MIB, vec![(1, 2), (2, 1)]),
        (4, MIB / 2, vec![(1, 2), (3, 2)]),
    ] {
        let mut bench = Bench::local();
        let (ours, theirs) = (bench.region(len), bench.table.allocate(len).expect("memory"));
        let window = bench.window(&ours);
        for seq in 0..count {
            bench.send(&by_ref(DataKind::WriteRef, seq, &window, &theirs), &[]);
        }
        bench.plane.poll_peer(true);
        let sent: Vec<_> = bench.frames().iter().map(|f| (f.seq, f.total)).collect();
        assert_eq!(sent, acks, "{count} copies of {len} bytes");
    }
}

#[test]
fn the_queue_is_short_up_to_a_mebibyte() {
    for (lens, short) in [
        (vec![], true),
        (vec![MIB], true),
        (vec![MIB - 1, 1], true),
        (vec![MIB, 1], false),
        (vec![MIB + 1], false),
    ] {
        let mut target = StreamTarget::new(None, true, false);
        let mut bench = Bench::local();
        let region = bench.region(2 * MIB);
        for len in &lens {
            let (ours, frame) = (region.slice(0, *len), DataFrame::new(DataKind::WriteRef, 0));
            let theirs = Extent::new(*len).whole();
            target.push_job(CmaJob { frame, ours: ours.expect("in range"), theirs });
        }
        assert_eq!(target.is_short_of_jobs(), short, "{lens:?}");
        assert_eq!(target.has_jobs(), !lens.is_empty());
    }
}

/// Its number may name another process by then.
#[test]
fn nothing_is_copied_for_a_process_that_does_not_live() {
    for lives in [true, false] {
        let mut bench = Bench::local();
        let (ours, theirs) = (bench.region(64), bench.table.allocate(64).expect("memory"));
        fill(&theirs, 3);
        let window = bench.window(&ours);
        bench.send(&by_ref(DataKind::WriteRef, 0, &window, &theirs), &[]);
        bench.plane.poll_peer_while(&|| lives);
        assert_eq!(bytes(&ours), [if lives { 3 } else { 0 }; 64]);
        assert!(!bench.plane.interest().work);
        assert_eq!(bench.kinds().len(), usize::from(lives));
    }
    let mut bench = Bench::local();
    let (ours, theirs) = (bench.region(64), bench.table.allocate(64).expect("memory"));
    fill(&theirs, 3);
    let window = bench.window(&ours);
    bench.send(&by_ref(DataKind::WriteRef, 0, &window, &theirs), &[]);
    bench.peer.shutdown(std::net::Shutdown::Write).expect("connected");
    bench.plane.poll_peer(true);
    assert_eq!(bytes(&ours), [0; 64], "it has ended its direction");
}

/// Requests wait here only while the socket takes no answers.
#[test]
fn a_peer_may_ask_for_as_much_as_was_agreed() {
    for (kind, why) in [
        (DataKind::Read, "more gets than were agreed"),
        (DataKind::WriteRef, "more copies than were agreed"),
    ] {
        let mut bench = Bench::local();
        let (ours, theirs) = (bench.region(64), bench.table.allocate(64).expect("memory"));
        let window = bench.window(&ours);
        let request = |seq| match kind {
            DataKind::Read => asked(kind, seq, &window, 64),
            _ => by_ref(kind, seq, &window, &theirs),
        };
        let count = u32::try_from(MAX_REQUESTS).expect("small");
        for seq in 0..count {
            bench.send(&request(seq), &[]);
        }
        bench.plane.poll_peer(true);
        assert_eq!(bench.plane.close_reason(), None);
        let answered = bench.frames().iter().map(|f| f.total.max(1)).sum::<u64>();
        assert!(answered >= u64::from(count), "{answered}");
        for seq in count..=2 * count {
            bench.send(&request(seq), &[]);
        }
        bench.plane.poll_peer(true);
        assert_eq!(bench.plane.close_reason(), Some(DataCloseReason::Protocol(why)));
    }
}

#[test]
fn no_more_answers_wait_than_were_agreed() {
    let mut target = StreamTarget::new(None, true, false);
    for seq in 0..512 {
        assert!(target.has_space(0), "{seq}");
        assert_eq!(target.has_space(1), seq != 511, "{seq}");
        target.refuse(seq, Failure::UnknownRegion);
    }
    assert!(!target.has_space(0));
    assert_eq!(target.next_answer().map(|f| f.seq), Some(0));
    assert!(target.has_space(0));
}

#[test]
fn the_agreed_number_of_answers_is_a_limit_of_all_requests() {
    for (kind, why) in [
        (DataKind::Write, "more puts than were agreed"),
        (DataKind::Read, "more gets than were agreed"),
        (DataKind::ReadRef, "more copies than were agreed"),
    ] {
        for (waiting, down) in [(511, None), (512, Some(DataCloseReason::Protocol(why)))] {
            let mut bench = Bench::local();
            let (ours, theirs) = (bench.region(4), bench.table.allocate(4).expect("memory"));
            let window = bench.window(&ours);
            for seq in 0..waiting {
                bench.plane.target.refuse(seq, Failure::UnknownRegion);
            }
            match kind {
                DataKind::Write => bench.send(&asked(kind, 0, &window, 4), &[1; 4]),
                DataKind::Read => bench.send(&asked(kind, 0, &window, 4), &[]),
                _ => bench.send(&by_ref(kind, 0, &window, &theirs), &[]),
            }
            bench.plane.poll_peer(true);
            assert_eq!(bench.plane.close_reason(), down, "{kind:?}");
        }
    }
}

/// What is queued for the other window goes on.
#[test]
fn only_requests_on_the_window_that_is_taken_back_are_refused() {
    let mut bench = Bench::local();
    let ours = bench.region(64);
    let (kept, gone) = (bench.window(&ours), bench.window(&ours));
    let theirs = bench.table.allocate(64).expect("memory");
    for (seq, window) in [(0, &gone), (2, &kept)] {
        bench.send(&by_ref(DataKind::WriteRef, seq, window, &theirs), &[]);
        bench.send(&asked(DataKind::Read, seq + 1, window, 64), &[]);
    }
    // Takes what came, and neither copies nor answers.
    bench.plane.receive();
    assert!(bench.plane.revoke(kept.window, hmc_core::region::Epoch(kept.epoch.0 + 1)).is_err());
    bench.plane.revoke(gone.window, gone.epoch).expect("exposed");
    bench.plane.poll_peer(true);
    let refused = |seq| DataFrame::nack(seq, REVOKED);
    let mut reply = DataFrame::new(DataKind::ReadData, 3);
    (reply.len, reply.total, reply.flags) = (64, 64, DataFlags::LAST);
    assert_eq!(bench.frames(), [refused(1), refused(0), DataFrame::ack(2, 1), reply]);
    bench.send(&asked(DataKind::Read, 4, &gone, 64), &[]);
    bench.plane.poll_peer(true);
    assert_eq!(bench.frames(), [refused(4)]);
}

#[test]
fn a_put_that_is_arriving_ends_with_its_window_and_no_other() {
    for failure in [Some(REVOKED), None] {
        let mut bench = Bench::local();
        let ours = bench.region(64);
        let (written, other) = (bench.window(&ours), bench.window(&ours));
        bench.send(&asked(DataKind::Write, 0, &written, 64), &[1; 16]);
        bench.plane.poll_peer(true);
        let gone = if failure.is_some() { &written } else { &other };
        bench.plane.revoke(gone.window, gone.epoch).expect("exposed");
        std::io::Write::write_all(&mut (&bench.peer), &[2; 48]).expect("space");
        bench.plane.poll_peer(true);
        let rest = if failure.is_some() { 0 } else { 2 };
        assert_eq!(bytes(&ours), [[1; 16], [rest; 16], [rest; 16], [rest; 16]].concat());
        let answer = failure.map_or(DataFrame::ack(0, 1), |why| DataFrame::nack(0, why));
        assert_eq!(bench.frames(), [answer]);
        assert_eq!(bench.plane.bytes_in, if failure.is_some() { 16 } else { 64 });
    }
}

#[test]
fn a_put_goes_on_where_it_has_stopped() {
    let ours = |bench: &mut Bench| bench.region(64);
    let cases: [(u32, u64, u32, Option<&str>); 6] = [
        (0, 16, 48, None),
        (1, 16, 48, Some("a put in the middle of another")),
        (0, 15, 48, Some("a put that does not continue")),
        (0, 17, 47, Some("a put that does not continue")),
        (0, 16, 49, Some("a put that does not continue")),
        (0, 16, 47, Some("a put that ends early")),
    ];
    for (seq, offset, len, why) in cases {
        let mut bench = Bench::local();
        let region = ours(&mut bench);
        let window = bench.window(&region);
        let whole = asked(DataKind::Write, 0, &window, 64);
        bench.send(&DataFrame { len: 16, flags: DataFlags::empty(), ..whole }, &[1; 16]);
        let payload = vec![2; usize::try_from(len).expect("small")];
        bench.send(&DataFrame { seq, offset, len, ..whole }, &payload);
        bench.plane.poll_peer(true);
        assert_eq!(
            bench.plane.close_reason(),
            why.map(DataCloseReason::Protocol),
            "{seq} {offset} {len}"
        );
        if why.is_none() {
            assert_eq!(bytes(&region), [vec![1; 16], vec![2; 48]].concat());
            assert_eq!(bench.frames(), [DataFrame::ack(0, 1)]);
        }
    }
}

/// Puts reach the part of it that was opened.
#[test]
fn a_closed_window_refuses_the_peer_until_it_is_opened_again() {
    let mut bench = Bench::local();
    let region = bench.region(64);
    let window = bench.window(&region);
    let (id, epoch) = (window.window, window.epoch);
    let mut seq = 0..;
    let mut put = |bench: &mut Bench, at| {
        let mut frame = asked(DataKind::Write, seq.next().expect("endless"), &window, 16);
        frame.offset = at;
        bench.send(&frame, &[3; 16]);
        bench.plane.poll_peer(true);
        bench.frames().pop().expect("an answer").why()
    };
    let close = |bench: &mut Bench| {
        assert!(matches!(bench.plane.revoke(id, epoch), Ok(Fence::Passed)));
        assert!(!bench.plane.reopen(id, epoch, (0, 64)), "it is being revoked");
        bench.plane.windows().apply(id, epoch, WindowTransition::Close).expect("it is revoked");
    };
    assert!(!bench.plane.reopen(id, epoch, (0, 64)), "it is open");
    close(&mut bench);
    assert_eq!(put(&mut bench, 0), Some(REVOKED));
    assert!(!bench.plane.reopen(id, epoch, (40, 25)), "beyond the window");
    assert!(bench.plane.reopen(id, epoch, (16, 16)));
    assert_eq!(
        [0, 8, 24, 16].map(|at| put(&mut bench, at)),
        [Some(REVOKED), Some(REVOKED), Some(REVOKED), None]
    );
    close(&mut bench);
    assert!(bench.plane.reopen(id, epoch, (0, 64)));
    assert_eq!(put(&mut bench, 48), None);
    let want = [[0; 16], [3; 16], [0; 16], [3; 16]].concat();
    assert_eq!(bytes(&region), want);
}

/// Only those that ended well, and only into the window that was named.
#[test]
fn bytes_of_puts_are_counted_until_their_window_is_revoked() {
    let mut bench = Bench::local();
    let region = bench.region(64);
    let (window, other) = (bench.window(&region), bench.window(&region));
    let (id, epoch) = (window.window, window.epoch);
    let mut seq = 0..;
    let mut put = |bench: &mut Bench, window: &WindowDesc, len: u64| {
        let frame = asked(DataKind::Write, seq.next().expect("endless"), window, len);
        bench.send(&frame, &vec![3; usize::try_from(len).expect("small")]);
        bench.plane.poll_peer(true);
        (bench.plane.are_all_put(id, epoch), bench.plane.take_all_put())
    };
    assert_eq!(put(&mut bench, &window, 40), (false, false), "nobody counts");
    bench.plane.count_puts(id, epoch, 40);
    assert_eq!(put(&mut bench, &window, 16), (false, false));
    assert_eq!(put(&mut bench, &window, 65), (false, false), "it was refused");
    assert_eq!(put(&mut bench, &other, 64), (false, false));
    assert_eq!(put(&mut bench, &window, 24), (true, true));
    assert_eq!(put(&mut bench, &window, 8), (true, false), "said once");
    bench.plane.close(DataCloseReason::Eof);
    assert!(bench.plane.are_all_put(id, epoch), "what has come was received");
    assert!(matches!(bench.plane.revoke(id, epoch), Ok(Fence::Passed)));
    assert!(!bench.plane.are_all_put(id, epoch));
}

/// Its first frame was stored before the window was opened for what is counted.
#[test]
fn a_put_between_whose_frames_its_window_was_closed_is_refused() {
    let mut bench = Bench::local();
    let region = bench.region(64);
    let window = bench.window(&region);
    let (id, epoch) = (window.window, window.epoch);
    let whole = asked(DataKind::Write, 0, &window, 64);
    bench.send(&DataFrame { len: 16, flags: DataFlags::empty(), ..whole }, &[1; 16]);
    bench.plane.poll_peer(true);
    assert!(matches!(bench.plane.revoke(id, epoch), Ok(Fence::Passed)));
    bench.plane.windows().apply(id, epoch, WindowTransition::Close).expect("it is revoked");
    assert!(bench.plane.reopen(id, epoch, (0, 64)));
    bench.plane.count_puts(id, epoch, 64);
    bench.send(&DataFrame { offset: 16, len: 48, ..whole }, &[2; 48]);
    bench.plane.poll_peer(true);
    assert_eq!(bench.frames().pop().expect("an answer").why(), Some(REVOKED));
    assert!(!bench.plane.are_all_put(id, epoch));
    assert_eq!(bytes(&region), [vec![1; 16], vec![0; 48]].concat());
}

#[test]
fn a_put_goes_on_in_the_window_where_it_began() {
    let mut bench = Bench::local();
    let region = bench.region(64);
    let (window, other) = (bench.window(&region), bench.window(&region));
    let whole = asked(DataKind::Write, 0, &window, 64);
    bench.send(&DataFrame { len: 16, flags: DataFlags::empty(), ..whole }, &[1; 16]);
    let elsewhere = asked(DataKind::Write, 0, &other, 64);
    bench.send(&DataFrame { offset: 16, len: 48, ..elsewhere }, &[2; 48]);
    bench.plane.poll_peer(true);
    let why = DataCloseReason::Protocol("a put that does not continue");
    assert_eq!(bench.plane.close_reason(), Some(why));
}
