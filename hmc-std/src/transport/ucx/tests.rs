//! What UCX has of a session, and what of UCX is logged.

use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};

use hmc_hw::host::{Event, Host as _, WatchError};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Level, Metadata, Subscriber};

use crate::base::clock;
use crate::base::config::Progress;
use crate::base::lock::lock;
use crate::io::reactor::{Events, Reactor, Token};
use crate::transport::session_host::SessionHost;

/// What was logged, with all its fields.
type Lines = Arc<Mutex<Vec<(Level, String)>>>;

/// Keeps what is logged.
struct Keeps(Lines);

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.push_str(&format!("{}={value:?} ", field.name()));
    }
}

impl Subscriber for Keeps {
    fn enabled(&self, _of: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        lock(&self.0).push((*event.metadata().level(), text.0));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// What `run` logs on this thread.
pub(super) fn logged(run: impl FnOnce()) -> Vec<(Level, String)> {
    let lines = Lines::default();
    tracing::subscriber::with_default(Keeps(Arc::clone(&lines)), run);
    std::mem::take(&mut *lock(&lines))
}

fn host() -> (SessionHost, Arc<Reactor>) {
    let reactor = Arc::new(Reactor::new(Progress::Thread).expect("descriptors"));
    (SessionHost(Arc::clone(&reactor)), reactor)
}

#[test]
fn a_descriptor_of_ucx_is_watched_until_it_is_not() {
    let (host, reactor) = host();
    let ready = || {
        let mut events = Events::new();
        let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        reactor.wait(&mut events, Some(&now));
        events.tokens().collect::<Vec<_>>()
    };
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    std::io::Write::write_all(&mut &theirs, &[1]).expect("space");
    assert_eq!(ready(), []);
    host.watch(5, ours.as_fd()).expect("watched");
    assert_eq!(ready(), [Token::Worker(5)]);
    let twice = host.watch(5, ours.as_fd());
    assert_eq!(twice, Err(WatchError(rustix::io::Errno::EXIST.raw_os_error())));
    host.unwatch(ours.as_fd());
    assert_eq!(ready(), []);
    let (before, now, after) = (clock::now(), host.now(), clock::now());
    assert!(before <= now && now <= after, "{before:?} {now:?} {after:?}");
}

#[test]
fn what_no_call_of_the_application_returns_is_logged() {
    let (host, _reactor) = host();
    let [no_memory, port, error] = ["no memory", "port 1 of rxe0", "EBUSY"].map(str::to_owned);
    for (event, level, part) in [
        (Event::NeverArmed, Level::WARN, "cannot be slept on"),
        (Event::NotWatched(WatchError(28)), Level::ERROR, "No space left"),
        (Event::NotRegistered(&no_memory), Level::WARN, "no memory"),
        (Event::PortDown(&port), Level::WARN, "a port is down: no link begins over it"),
        (Event::PortChanged(&port), Level::INFO, "a port has changed what=port 1 of rxe0"),
        (Event::NotDestroyed(&error), Level::ERROR, "was not destroyed error=EBUSY"),
        (Event::DeviceFailed(&port), Level::ERROR, "an RDMA device has failed what=port 1"),
    ] {
        let said = logged(|| host.report(event));
        let [(at, text)] = said.as_slice() else { panic!("{part}: {said:?}") };
        assert!(*at == level && text.contains(part), "{at} {text}");
    }
}
