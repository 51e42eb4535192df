//! Wakers are code of the application: one that panics, blocks, or ends the session.

use std::future::Future as _;
use std::pin::pin;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context as Polled, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use hmc_std::{ConnType, ErrorKind, Message, Op, Peer, Progress, Session, want};
use hmc_testkit::buffers::BufferTransfers as _;

use super::{Context, Outcome};
use crate::env::until;
use crate::listening::Listening as _;

const LIMIT: Duration = Duration::from_secs(30);
/// A waker that is to be called is called by then.
const CALLED_BY: Duration = Duration::from_secs(5);

/// Runs `0` once when it is woken.
struct Code<F>(Mutex<Option<F>>);

impl<F: FnOnce() + Send + 'static> Wake for Code<F> {
    fn wake(self: Arc<Self>) {
        let code = self.0.lock().expect("no panic").take();
        if let Some(code) = code {
            code();
        }
    }
}

/// A waker that runs `code` once.
pub fn waker(code: impl FnOnce() + Send + 'static) -> Waker {
    Waker::from(Arc::new(Code(Mutex::new(Some(code)))))
}

/// A waker that sends `what` once.
#[must_use]
pub fn notifies(wakes: &Sender<&'static str>, what: &'static str) -> Waker {
    let wakes = wakes.clone();
    waker(move || {
        let _ = wakes.send(what);
    })
}

/// A session that lands puts only when it is told to.
///
/// # Panics
/// When there can be none.
#[must_use]
pub fn target(rank: u32) -> Session {
    let target = Session::builder(rank).tcp("127.0.0.1:0").buffer(1 << 16);
    target.progress(Progress::Manual).start().expect("a session")
}

/// Connects one to it.
///
/// # Panics
/// When it cannot.
#[must_use]
pub fn connect(source: &Session, target: &Session, rank: u32) -> Peer {
    let address = hmc_std::Address::Tcp(target.tcp_addr().expect("it listens"));
    source.connect(&address).rank(rank).over(ConnType::Tcp).within(LIMIT).wait().expect("connected")
}

/// A put that cannot end before the target is told to make progress; `waker` waits for it.
///
/// # Panics
/// When it has ended.
pub fn waiting(peer: &Peer, waker: &Waker) -> Op {
    let mut future = peer.start_put_at(0, 0, 64).expect("posted");
    assert!(pin!(&mut future).poll(&mut Polled::from_waker(waker)).is_pending());
    future
}

/// How a put ended, if it has.
pub fn result(mut future: Op) -> Poll<Result<u64, ErrorKind>> {
    let polled = pin!(&mut future).poll(&mut Polled::from_waker(Waker::noop()));
    polled.map_ok(|done| done.bytes).map_err(|e| e.kind())
}

/// Lets puts land until `look` finds something.
///
/// # Panics
/// When it does not.
pub fn land<R>(target: &Session, what: &str, mut look: impl FnMut() -> Option<R>) -> R {
    until(what, LIMIT, || {
        target.progress();
        look()
    })
}

/// Lets puts land until a waker has said something. `None`: none does.
fn woken(target: &Session, told: &Receiver<&'static str>) -> Option<&'static str> {
    let begun = Instant::now();
    while begun.elapsed() < CALLED_BY {
        target.progress();
        if let Ok(said) = told.try_recv() {
            return Some(said);
        }
        std::thread::yield_now();
    }
    None
}

fn source() -> Session {
    Session::builder(0).buffer(1 << 16).start().expect("a session")
}

/// A waker panics: later ones are called, and the panic is counted.
///
/// # Panics
/// When two cannot be connected.
pub fn panics(context: &mut Context) -> Outcome {
    while context.again(3) {
        let (source, target) = (source(), target(1));
        let peer = connect(&source, &target, 1);
        let (tell, told) = channel();
        let first = waiting(&peer, &waker(|| panic!("a waker of the test panics")));
        let second = waiting(&peer, &notifies(&tell, "second"));
        if woken(&target, &told) != Some("second") {
            return context.broken("the waker after the one that panicked was not called");
        }
        // The thread is there: the peer's messages come in while nobody calls.
        let third = waiting(&peer, &notifies(&tell, "third"));
        if woken(&target, &told) != Some("third") {
            return context.broken("a later waker was not called");
        }
        let results = [first, second, third].map(result);
        if results.iter().any(|r| *r != Poll::Ready(Ok(64))) {
            return context.broken(format!("the puts ended with {results:?}"));
        }
        let caught = source.stats().panics_caught;
        if caught != 1 {
            return context.broken(format!("{caught} panics were counted"));
        }
    }
    context.held("the panic was counted, later wakers were called")
}

/// A waker drops the last handle of its session, which ends.
///
/// # Panics
/// When two cannot be connected.
pub fn drops(context: &mut Context) -> Outcome {
    while context.again(3) {
        let (source, target) = (source(), target(1));
        let peer = connect(&source, &target, 1);
        let (tell, told) = channel();
        let held = Arc::new(Mutex::new(Some(source)));
        let future = waiting(
            &peer,
            &waker(move || {
                let session = held.lock().expect("no panic").take();
                drop(session);
                let _ = tell.send("dropped");
            }),
        );
        if woken(&target, &told).is_none() {
            return context.broken("the session did not end within the waker");
        }
        until("the peer sees the end", LIMIT, || {
            (!target.peer(0).is_ok_and(|p| p.is_connected())).then_some(())
        });
        let result = result(future);
        if result != Poll::Ready(Ok(64)) || peer.is_connected() {
            return context.broken(format!("after the end the put is {result:?}"));
        }
    }
    context.held("the session ended within the waker")
}

/// A waker of one peer blocks, while another peer beats and sends messages.
///
/// # Panics
/// When they cannot be connected.
pub fn blocks(context: &mut Context) -> Outcome {
    const BLOCKED: Duration = Duration::from_secs(3);
    let beat = Some(Duration::from_millis(250));
    while context.again(1) {
        let source =
            Session::builder(0).buffer(1 << 16).heartbeat(beat).start().expect("a session");
        let stuck = target(1);
        let other = Session::builder(2).tcp("127.0.0.1:0").buffer(1 << 16).heartbeat(beat).start();
        let other = other.expect("a session");
        let (peer, third) = (connect(&source, &stuck, 1), connect(&source, &other, 2));
        let back = other.accept(0).within(LIMIT).wait().expect("connected");
        let (tell, told) = channel();
        let (release, released) = channel::<()>();
        let blocked = tell.clone();
        let future = waiting(
            &peer,
            &waker(move || {
                let _ = blocked.send("blocked");
                let _ = released.recv_timeout(LIMIT);
            }),
        );
        if woken(&stuck, &told) != Some("blocked") {
            return context.broken("the waker was not called");
        }
        // Five missed heartbeats, 1.25 s, are a death at either end.
        let begun = Instant::now();
        let mut tags = 0;
        while begun.elapsed() < BLOCKED {
            // Nobody calls the session: its own thread answers, or nothing does.
            if told.recv_timeout(Duration::from_millis(300)).is_ok() {
                return context.broken("another waker was called meanwhile");
            }
            if !(third.is_connected() && back.is_connected() && peer.is_connected()) {
                let after = begun.elapsed();
                return context
                    .broken(format!("a peer was lost {after:?} after the waker blocked"));
            }
            let said = back
                .send(Message::Tag(7))
                .wait()
                .map(|()| source.recv(2, want::Tag).wait().map(|m| m.1));
            if !matches!(said, Ok(Ok(7))) {
                return context.broken(format!("a message beside the waker: {said:?}"));
            }
            tags += 1;
        }
        let lost = source.stats().peers_lost + other.stats().peers_lost;
        release.send(()).expect("it waits");
        let result = result(future);
        if lost != 0 || result != Poll::Ready(Ok(64)) {
            return context.broken(format!("{lost} peers were lost, the put is {result:?}"));
        }
        context.count(tags);
    }
    context.held("no peer was lost while a waker blocked for 3 s")
}
