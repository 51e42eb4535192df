//! What the stream beside the data plane does: tags, and the end of the link. And the worker that both have.

use std::io::Write as _;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use hmc_core::transport::{DataPlane as _, Progress as _};
use hmc_core::wire::data::{DataFlags, DataFrame, DataKind};
use hmc_hw::host::SharedWorker;

use super::*;
use crate::base::config::Progress;
use crate::io::reactor::Reactor;
use crate::node::inbox::{Message, Wanted};
use crate::transport::link_waker::LinkWaker;
use crate::transport::worker::Worker;

fn bench() -> Bench {
    Bench::new(PeerAccess::Remote, false, false)
}

/// What the peer puts by the stream, and its tags, are the stream's.
#[test]
fn a_full_inbox_pauses_the_stream() {
    let mut bench = bench();
    let local = bench.region.slice(0, 64).expect("all of it");
    let table = bench.layer.windows();
    let window = table.expose(local, MemoryKind::Cpu, Access::all(), 7).expect("a place");
    let fill = |bench: &Bench| bench.inbox.lock().expect("nobody panics").push(Message::Tag(1));
    let take = |bench: &Bench| bench.inbox.lock().expect("nobody panics").take(Wanted::Any);
    (0..16).for_each(|_| fill(&bench));
    let mut put = DataFrame::new(DataKind::Write, 0);
    (put.window, put.epoch, put.tag) = (window.window, window.epoch, 9);
    put.flags = DataFlags::LAST | DataFlags::NOTIFY;
    (&bench.peer).write_all(&put.emit()).expect("space");
    bench.layer.poll_peer(true);
    assert!(bench.layer.is_paused() && !bench.layer.take_delivered());
    assert_eq!(take(&bench), Some(Message::Tag(1)));
    assert!(bench.layer.interest().work, "it can go on");
    bench.layer.poll_peer(true);
    assert!(!bench.layer.is_paused());
    assert!(bench.layer.take_delivered() && !bench.layer.take_delivered());
    (1..16).for_each(|_| assert_eq!(take(&bench), Some(Message::Tag(1))));
    assert_eq!(take(&bench), Some(Message::Notify(9)));
}

/// The bytes of the put are there already: the stream carries none, and the completion names them.
#[test]
fn a_tag_carries_no_bytes_and_reports_those_of_its_put() {
    let mut bench = bench();
    let mut put = bench.work(3, TAGGED, 64);
    put.local = bench.region.slice(8, 40).expect("a part");
    put.remote.span = put.local.span;
    bench.layer.plane.notifies.push_back(put);
    assert_eq!(bench.poll(), []);
    let mut sent = Vec::new();
    assert!(std::io::Read::read_to_end(&mut &bench.peer, &mut sent).is_err(), "no end");
    let mut tag = DataFrame::new(DataKind::Write, 0);
    (tag.window, tag.epoch, tag.offset, tag.tag) = (WindowId(1), Epoch(1), 8, 7);
    tag.flags = DataFlags::LAST | DataFlags::NOTIFY;
    assert_eq!(sent, tag.emit());
    (&bench.peer).write_all(&DataFrame::ack(0, 1).emit()).expect("space");
    bench.layer.poll_peer(true);
    assert_eq!(bench.poll(), [(3, Ok(40))]);
}

#[test]
fn the_link_ends_with_the_stream() {
    let mut bench = Bench::new(PeerAccess::Process(None), true, true);
    assert!(!bench.layer.peer_life().has_ended());
    bench.peer.shutdown(std::net::Shutdown::Write).expect("connected");
    assert!(bench.layer.peer_life().has_ended());
    bench.layer.poll_peer(true);
    assert_eq!(bench.layer.close_reason(), Some(DataCloseReason::Eof));
    assert_eq!(bench.layer.plane.closed, Some(DataCloseReason::Eof), "it is told");
}

/// A worker without a thread.
struct Idle(OwnedFd);

impl AsFd for Idle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl SharedWorker for Idle {
    fn claim(&self) {}

    fn release(&self) {}

    fn can_sleep(&self) -> bool {
        true
    }

    fn must_poll(&self) -> bool {
        false
    }

    fn resume(&self) {}

    fn wake_on_completion(&self) {}
}

#[test]
fn the_worker_is_the_one_it_was_made_with() {
    let mut bench = bench();
    assert!(bench.layer.worker().is_none());
    let reactor = Arc::new(Reactor::new(Progress::Thread).expect("descriptors"));
    let waker = LinkWaker::new(1, reactor).expect("a descriptor");
    let (fd, _other) = UnixStream::pair().expect("a pair");
    let shared: Arc<dyn SharedWorker> = Arc::new(Idle(fd.into()));
    bench.layer.worker = Some(Worker { shared: Arc::clone(&shared), waker });
    assert!(bench.layer.worker().is_some_and(|w| Arc::ptr_eq(&w.shared, &shared)));
}
