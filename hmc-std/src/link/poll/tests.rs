//! Polls of links between two ends that no other thread touches.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Wake;

use hmc_core::limits::FRAME_DEADLINE_NS;
use hmc_core::region::{Epoch, WindowId};
use hmc_core::rndv::{RndvId, RndvMsg};
use hmc_core::time::{Duration, Instant};
use hmc_core::types::ConnType;
use hmc_core::wire::advert::{RegionAdvert, WindowBacking, WindowRole};
use hmc_core::wire::message::ControlMessage;
use hmc_core::work::CompleteWhen;

use super::{LinkState, Received, Tick};
use crate::base::clock;
use crate::base::error::{Error, ErrorKind};
use crate::callbacks::wakers::Notice;
use crate::io::eventfd::EventfdWaker;
use crate::io::reactor::Channel;
use crate::link::ends::{End, alone, first_byte, near_alone, pair, pair_that_beats, stopped};
use crate::link::park_waker::ParkWaker;

#[test]
fn a_poll_of_the_control_connection_reports_whatever_came() {
    let (near, far) = pair(ConnType::Tcp);
    let (_region, region) = far.expose(8);
    let advert =
        RegionAdvert { region, backing: WindowBacking::Process, role: WindowRole::Named(3) };
    let (window, epoch) = (WindowId(1), Epoch(1));
    let messages = [
        ControlMessage::Tag(1),
        ControlMessage::Advert(advert),
        ControlMessage::Revoke { window, epoch },
        ControlMessage::Revoked { window, epoch },
        ControlMessage::Rndv(RndvMsg::Offer { id: RndvId(0), len: 1 }),
    ];
    for m in &messages {
        assert!(!near.link.poll(Channel::Ctrl), "nothing came before {m:?}");
        far.link.send(m).expect("sent");
        assert!(near.link.poll(Channel::Ctrl), "{m:?}");
    }
    assert_eq!(near.link.data().named_remote(3), Some(region));
    far.link.bye(clock::now().after(Duration::from_millis(10_000)));
    assert!(near.link.poll(Channel::Ctrl), "the peer leaves");
    assert_eq!(near.link.state(), LinkState::Leaving);
}

/// A tick that would end the link looks for bytes first, in place of a poll.
#[test]
fn a_tick_that_receives_wakes_who_waits_for_several_links() {
    let (near, far) = pair_that_beats(Duration::from_millis(100));
    let waker = ParkWaker::new().expect("a descriptor");
    near.link.park_wakers.register(&waker);
    far.link.send(&ControlMessage::Pong(0)).expect("sent");
    near.link.has_channels.store(true, Ordering::Relaxed);
    waker.park();
    let now = near.link.ctrl().machine.ends_at();
    near.link.tick(Tick { now, late: Duration::ZERO, spread: 1 });
    assert!(!waker.is_parked(), "its words may have changed");
    assert_ne!(near.link.state(), LinkState::Dead);
}

#[test]
fn only_the_leader_receives_while_there_is_one() {
    let (near, far) = pair(ConnType::Tcp);
    let (region, window) = near.expose(1);
    far.link.send(&ControlMessage::Tag(1)).expect("sent");
    let op = far.put(&window, 9);
    near.link.data().set_claimed(true);
    near.link.ctrl().set_claimed(true);
    assert!(!near.link.poll(Channel::Data) && !near.link.poll(Channel::Ctrl));
    assert_eq!((first_byte(&region), near.link.inbox().len()), (0, 0));
    assert!(near.link.poll_data(true) && near.link.poll_ctrl(true));
    assert_eq!((first_byte(&region), near.link.inbox().len()), (9, 1));
    near.link.data().set_claimed(false);
    near.link.ctrl().set_claimed(false);
    assert!(!near.link.poll(Channel::Data) && !near.link.poll(Channel::Ctrl), "nothing more");
    // The answer has come to the other end, whose poll reports it.
    assert!(far.link.is_running(op));
    assert!(far.link.poll(Channel::Data));
    assert!(!far.link.is_running(op));
}

/// A leader that looks after bytes were taken and before they have had their effect must not sleep.
#[test]
fn a_poll_that_no_leader_makes_counts_as_acting_until_its_events_are_reported() {
    let (near, far) = pair(ConnType::Tcp);
    let (_region, window) = near.expose(1);
    far.link.send(&ControlMessage::Tag(1)).expect("sent");
    assert!(near.link.poll(Channel::Ctrl));
    far.put_notify(&window, 2);
    assert!(near.link.poll(Channel::Data));
    // The second poll found the link ready, too.
    assert_eq!((near.link.state(), near.event_counts().0), (LinkState::Ready, 3));
    assert_eq!(near.unawaited_events(), 0);
    // A leader does not wait for itself.
    far.link.send(&ControlMessage::Tag(3)).expect("sent");
    assert!(near.link.poll_ctrl(true));
    assert_eq!((near.event_counts().0, near.unawaited_events()), (4, 1));
}

/// Whether the background thread was asked to run the link since the last call.
fn is_queued(end: &End) -> bool {
    let mut queue = VecDeque::new();
    end.link.reactor.take_queued(&mut queue);
    end.link.unschedule();
    !queue.is_empty()
}

#[test]
fn work_that_no_socket_reports_is_left_to_the_links_driver() {
    let (near, _far) = stopped();
    assert!(!is_queued(&near));
    near.link.data().set_claimed(true);
    near.link.poll_data(false);
    assert!(near.link.data().has_work() && !is_queued(&near), "its waiter does it");
    near.link.data().set_claimed(false);
    near.link.resume_background();
    assert!(is_queued(&near), "nobody waits any more");
    near.link.poll_data(false);
    assert_eq!((near.link.inbox().len(), is_queued(&near)), (2, false));
    near.link.resume_background();
    near.link.poll_data(false);
    assert!(!is_queued(&near), "there is nothing to do");
    // Asked for twice, it is run once.
    let mut queue = VecDeque::new();
    near.link.schedule();
    near.link.schedule();
    near.link.reactor.take_queued(&mut queue);
    assert_eq!(queue, [1]);
    near.link.schedule();
    assert!(!is_queued(&near), "it was not run since");
    near.link.schedule();
    assert!(is_queued(&near));
}

#[test]
fn bytes_on_the_data_plane_end_its_idleness() {
    let (near, far) = pair(ConnType::Tcp);
    let (_region, window) = near.expose(1);
    while !near.link.idle_waits.add() {}
    near.link.poll_data(true);
    assert!(near.link.idle_waits.add(), "nothing came");
    far.put(&window, 1);
    near.link.poll_data(true);
    assert!(!near.link.idle_waits.add());
}

/// Whether `act` wakes those who follow a leader of the link.
fn notifies(end: &End, act: impl FnOnce()) -> bool {
    let before = format!("{:?}", end.link.leader_lock.follow().wait_key());
    act();
    before != format!("{:?}", end.link.leader_lock.follow().wait_key())
}

#[test]
fn each_thing_received_has_its_own_consequence() {
    type Set = fn(&mut Received);
    // What was received; whether it wakes followers, and notifies the session.
    let cases: [(Set, bool, u32); 7] = [
        (|_| (), false, 0),
        (|h| h.messages = true, true, 1),
        (|h| h.adverts = true, true, 1),
        (|h| h.left = true, true, 0),
        (|h| h.space = true, true, 0),
        (|h| h.revoked = true, false, 1),
        (|h| h.rndv = true, false, 0),
    ];
    for (at, (set, wakes, events)) in cases.into_iter().enumerate() {
        let (near, _far) = pair(ConnType::Tcp);
        let before = near.event_counts().0;
        let mut received = Received::default();
        set(&mut received);
        assert_eq!(
            notifies(&near, || near.link.apply_received(received, clock::now())),
            wakes,
            "case {at}"
        );
        assert_eq!(near.event_counts().0 - before, events, "case {at}");
    }
    // Notes are looked at, also when there is space to answer again.
    for set in [|h: &mut Received| h.rndv = true, |h: &mut Received| h.space = true] {
        let (near, _far) = pair(ConnType::Tcp);
        assert!(near.link.rndv_receive(RndvMsg::Offer { id: RndvId(0), len: 1 }.into()));
        assert!(near.link.is_rndv_idle(), "nobody has looked");
        let mut received = Received::default();
        set(&mut received);
        near.link.apply_received(received, clock::now());
        assert!(!near.link.is_rndv_idle());
    }
}

#[test]
fn a_peer_that_leaves_is_answered_when_no_operation_runs() {
    // A put that is complete locally runs until its answer.
    for when in [CompleteWhen::Visible, CompleteWhen::Local] {
        let (near, far) = pair(ConnType::Tcp);
        let (_region, window) = far.expose(1);
        let op = near.put_when(when, &window, 1);
        let before = near.event_counts().0;
        far.link.bye(clock::now().after(Duration::from_millis(10_000)));
        near.link.poll_ctrl(false);
        assert!(near.link.was_leaving());
        assert_eq!((near.link.state(), near.event_counts().0 - before), (LinkState::Leaving, 1));
        near.link.answer_bye();
        far.link.poll_ctrl(false);
        assert_eq!(far.link.state(), LinkState::Leaving, "no BYE while the operation runs");
        far.run_until_idle();
        near.link.poll_data(false);
        assert!(!near.link.is_running(op), "{when:?}");
        far.link.poll_ctrl(false);
        assert_eq!(
            (far.link.state(), far.event_counts().1),
            (LinkState::Dead, 1),
            "now it was sent"
        );
    }
}

#[test]
fn a_transport_that_cannot_be_used_ends_the_link() {
    let (near, _far) = pair(ConnType::Tcp);
    let failed = Some(Error::new(ErrorKind::Io, "no such device"));
    let received = Received { failed, messages: true, ..Received::default() };
    near.link.apply_received(received, clock::now());
    assert_eq!((near.link.state(), near.event_counts().1), (LinkState::Dead, 1));
    assert!(near.link.reason().contains("no such device"), "{}", near.link.reason());
}

#[test]
fn a_link_that_does_not_open_ends_at_its_time_and_a_late_process_has_more() {
    let at = |end: &End, ns: u64| end.link.born.after(Duration::from_nanos(ns));
    let tick = |end: &End, now: Instant, late: u64| {
        let late = Duration::from_nanos(late);
        end.link.tick(Tick { now, late, spread: 1 });
        end.link.state()
    };
    let last = FRAME_DEADLINE_NS - 1;
    let end = alone(1, 1);
    assert_eq!(tick(&end, at(&end, last), 1_000), LinkState::Opening);
    assert_eq!(tick(&end, at(&end, last + 1), 1_000), LinkState::Dead, "the peer is of elsewhere");
    assert_eq!(tick(&end, at(&end, last + 1), 0), LinkState::Dead);
    assert_eq!(end.event_counts().1, 1, "it ends once");
    let ready = alone(1, 1);
    ready.link.check_ready();
    assert_eq!(tick(&ready, at(&ready, last + 1), 0), LinkState::Ready);
    // How late all ticks were, in all.
    let near = near_alone(1, 1);
    assert_eq!(tick(&near, at(&near, 10), 7), LinkState::Opening);
    assert_eq!(tick(&near, at(&near, last + 8), 1), LinkState::Opening);
    assert_eq!(near.link.late_ns.load(Ordering::Relaxed), 8);
    assert_eq!(tick(&near, at(&near, last + 8), 0), LinkState::Opening);
    assert_eq!(tick(&near, at(&near, last + 9), 0), LinkState::Dead);
    // It was not late before there was a link.
    let near = near_alone(1, 1);
    assert_eq!(tick(&near, at(&near, 3), 1_000), LinkState::Opening);
    assert_eq!(near.link.late_ns.load(Ordering::Relaxed), 3);
}

#[test]
fn a_link_becomes_ready_once_and_reports_it() {
    let end = alone(1, 1);
    assert!(notifies(&end, || end.link.check_ready()));
    assert_eq!((end.link.state(), end.event_counts().0), (LinkState::Ready, 1));
    assert!(!notifies(&end, || end.link.check_ready()));
    assert_eq!(end.event_counts().0, 1);
}
#[test]
fn the_end_of_an_operation_wakes_those_who_wait_for_it_and_for_space() {
    let (near, far) = pair(ConnType::Tcp);
    let (_region, window) = far.expose(1);
    let op = near.put(&window, 1);
    let (woken, space) = (EventfdWaker::new().expect("one"), Arc::<Woken>::default());
    let notice = Notice::Own(Arc::clone(&woken));
    assert!(near.link.data().set_waker(op, notice).is_none());
    near.link.space().add(&Arc::clone(&space).into());
    assert!(!notifies(&near, || _ = near.link.poll_data(false)), "it runs");
    far.run_until_idle();
    assert!(notifies(&near, || _ = near.link.poll_data(false)));
    assert_eq!((Arc::strong_count(&woken), space.0.load(Ordering::Relaxed)), (1, 1));
    // What is delivered beside the bytes is an event.
    let before = far.event_counts().0;
    near.put_notify(&window, 3);
    assert!(notifies(&far, || _ = far.link.poll_data(false)));
    assert_eq!((far.event_counts().0 - before, far.link.inbox().len()), (1, 1));
}

#[derive(Default)]
struct Woken(AtomicU32);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn more_operations_than_a_poll_can_note_end_in_it() {
    let (near, far) = pair(ConnType::Tcp);
    let (_region, window) = far.expose(1);
    let ops = [(); 8].map(|()| near.put(&window, 1));
    far.run_until_idle();
    near.link.poll_data(true);
    assert!(ops.iter().all(|op| !near.link.is_running(*op)));
    // Each let go of its memory.
    drop(near.link.data().evict_unused());
    let mut held = 0;
    near.link.data().unfenced_bytes(&mut |bytes, _| held += bytes);
    assert_eq!(held, 0);
}
