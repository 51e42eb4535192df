//! Children of fork(2) that use what their parent made: objects of its sessions, and addresses of its memory.

use hmc_testkit::buffers::BufferTransfers as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hmc_std::{Error, ErrorKind, Message, Session, want};

use super::{Context, Outcome};
use crate::child::in_child;
use crate::env::TempDir;

const LONG: Duration = Duration::from_secs(30);

/// Ends the threads that keep a session busy.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What is wrong with the answer of a call in a child, if something is.
fn wrong<T>(call: &str, answer: Result<T, Error>) -> Option<String> {
    match answer {
        Err(e) if e.kind() == ErrorKind::Forked => None,
        Err(e) => Some(format!("{call}: {e}")),
        Ok(_) => Some(format!("{call} went on")),
    }
}

/// Calls objects of the parent in children, while threads of the parent take and release locks of its sessions.
///
/// # Panics
/// When two cannot be connected.
pub fn calls(context: &mut Context) -> Outcome {
    let dir = TempDir::new();
    let target = Session::builder(1).uds(dir.path()).buffer(1 << 16).start().expect("a session");
    let source = Session::builder(0).buffer(1 << 16).start().expect("a session");
    let peer = source.connect(&dir.address()).rank(1).wait().expect("connected");
    let back = target.accept(0).within(LONG).wait().expect("connected");
    let region = source.memory().allocate(1 << 16).expect("memory");
    // A child that could use them would copy by itself, without a call of the link.
    let remote = peer.buffer().expect("it has one");
    let range = source.buffer().range(0, 64).expect("in range");
    let stop = AtomicBool::new(false);
    let broken = std::thread::scope(|threads| {
        let _stop = Stop(&stop);
        for _ in 0..2 {
            threads.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let _ = (peer.put_at(4096, 4096, 64), source.stats(), target.stats());
                }
            });
        }
        while context.again(20) {
            let said = in_child(|| {
                let all = [
                    wrong("Session::peer", source.peer(1)),
                    wrong("Memory::allocate", source.memory().allocate(64)),
                    wrong("Remote::put", remote.put(0, range).wait()),
                    wrong("Request::start", remote.put(0, range).start()),
                    wrong("Peer::send", back.send(Message::Tag(1)).wait()),
                    wrong("Region::take", region.take(60_000, 8)),
                    wrong("ConnBuffer::read_at", source.buffer().read_at(0, &mut [0])),
                    wrong("Peer::recv_data", peer.recv_data(&mut [0]).wait().map(|d| d.bytes)),
                ];
                drop((peer.clone(), region.clone()));
                all.into_iter().flatten().next().unwrap_or_default()
            });
            match said {
                Ok(said) if said.is_empty() => {}
                Ok(said) => return Some(said),
                Err(signal) => return Some(format!("the child ended by signal {signal}")),
            }
        }
        None
    });
    if let Some(seen) = broken {
        return context.broken(seen);
    }
    match peer
        .put_at(0, 8192, 64)
        .and_then(|()| peer.send(Message::Tag(7)).wait())
        .map(|()| target.recv(0, want::Tag).wait().map(|m| m.1))
    {
        Ok(Ok(7)) => context.held("8 calls in each child answer Forked, the parent goes on"),
        other => context.broken(format!("the parent cannot go on: {other:?}")),
    }
}

/// Reads, in children that map much memory of their own and have sessions of their own, where the parent's memory was.
///
/// # Panics
/// When two cannot be connected.
pub fn views(context: &mut Context) -> Outcome {
    let dir = TempDir::new();
    let target = Session::builder(1).uds(dir.path()).buffer(1 << 20).start().expect("a session");
    let source = Session::builder(0).buffer(1 << 20).start().expect("a session");
    let region = source.memory().allocate(1 << 16).expect("memory");
    let mut span = region.take_all().expect("free");
    span.fill(7);
    let own = |rank: u32| -> Result<Session, Error> {
        let own = Session::builder(rank).buffer(1 << 20).start()?;
        own.buffer().fill(0, 64, 9)?;
        own.connect(&dir.address()).rank(1).wait()?.put_at(0, 0, 64)?;
        Ok(own)
    };
    let said = in_child(|| match own(2).and_then(|own| own.shutdown().within(LONG).wait()) {
        Ok(()) => "done".to_owned(),
        Err(e) => e.to_string(),
    });
    let mut got = [0; 64];
    target.buffer().read_at(0, &mut got).expect("ours");
    if said.as_deref() != Ok("done") || got != [9; 64] {
        return context.broken(format!("a child has no session of its own: {said:?}"));
    }
    while context.again(2) {
        let in_span = context.attempts() % 2 == 1;
        let at =
            if in_span { span.as_slice().as_ptr() } else { source.buffer().as_ptr().cast_const() };
        let rank = 3 + u32::try_from(context.attempts() % 1000).expect("small");
        let said = in_child(|| {
            let own = own(rank);
            let taken: Vec<Vec<u8>> = (0..64).map(|_| vec![1; 1 << 20]).collect();
            let large = vec![0u8; 1 << 30];
            drop(region.clone());
            // SAFETY: an address that was handed out; in this process the kernel has no memory there.
            let byte = unsafe { at.read_volatile() };
            let (taken, own) = (taken.len() + large.len(), own.is_ok());
            format!("read {byte} beside {taken} blocks and bytes and a session ({own})")
        });
        if said != Err(libc::SIGSEGV) {
            return context.broken(format!("the child that reads an old view: {said:?}"));
        }
    }
    match span.as_slice().first() {
        Some(7) => context.held("each read of an old view ends the child by SIGSEGV"),
        byte => context.broken(format!("the parent's memory holds {byte:?}")),
    }
}
