//! A session that a peer sends wrong frames to, and an honest peer of it beside that one.

use hmc_testkit::buffers::BufferTransfers as _;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use hmc_hw::ucx::library::Library;
use hmc_std::{Address, ConnBuffer, Peer, Session};

use super::losses;
use crate::env::{TempDir, Via};
use crate::listening::Listening as _;
use crate::pair::pattern;

/// Time within which everything here has surely happened.
pub const LONG: Duration = Duration::from_secs(20);
/// Bytes of the session's buffer, and of the area in which it exposes a window.
pub const BYTES: u64 = 64 << 10;
/// Where the honest peer writes in the buffer.
const HONEST_AT: u64 = 48 << 10;

/// A session of rank 0 over one transport, with an honest peer.
#[derive(Debug)]
pub struct Target {
    /// The session.
    pub session: Session,
    /// Where its window lies, with bytes before and behind it.
    pub area: ConnBuffer,
    /// What the area has to hold.
    pub area_image: Vec<u8>,
    /// What the session's buffer has to hold.
    pub buffer_image: Vec<u8>,
    /// The transport.
    pub via: Via,
    /// The UCX over which they are connected, if they are.
    pub library: Option<&'static Library>,
    honest: Session,
    /// The session, as the honest peer sees it.
    friend: Peer,
    puts: u64,
    dir: TempDir,
}

/// A rank that nobody else of this process has.
///
/// # Panics
/// When there is none.
#[must_use]
pub fn fresh_rank() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let rank = NEXT.fetch_add(1, Ordering::Relaxed);
    assert!(rank < 4096, "no rank is left");
    rank
}

impl Target {
    /// Starts both.
    ///
    /// # Panics
    /// When they cannot be.
    #[must_use]
    pub fn new(via: Via) -> Self {
        Self::start(via, None)
    }

    /// Starts both over UCX, by messages.
    ///
    /// # Panics
    /// When they cannot be.
    #[must_use]
    pub fn over_ucx(library: &'static Library) -> Self {
        Self::start(Via::Ucx, Some(library))
    }

    fn start(via: Via, library: Option<&'static Library>) -> Self {
        losses::listen();
        let dir = TempDir::new();
        let session = Session::builder(0).uds(dir.path()).tcp("127.0.0.1:0").insecure_loopback();
        let session = session.buffer(BYTES).heartbeat(None).inbox(INBOX, 1 << 20);
        let session = if via == Via::Ucx { session.ucx() } else { session };
        let session = session.start().expect("a session");
        let honest = Session::builder(fresh_rank()).buffer(BYTES).heartbeat(None);
        let honest = honest.start().expect("a session");
        let at = address(&session, &dir, via);
        let friend =
            honest.connect(&at).rank(0).over(via.conn()).within(LONG).wait().expect("connected");
        assert_eq!(friend.explain().conn, Some(via.conn()));
        let area = session.memory().allocate(BYTES).and_then(|area| area.share()).expect("memory");
        let (area_image, buffer_image) = (pattern(BYTES, 1), pattern(BYTES, 2));
        area.write_at(0, &area_image).expect("in range");
        session.buffer().write_at(0, &buffer_image).expect("in range");
        let puts = 0;
        Self { session, area, area_image, buffer_image, via, library, honest, friend, puts, dir }
    }

    /// Where it listens over that transport.
    #[must_use]
    pub fn address(&self) -> Address {
        address(&self.session, &self.dir, self.via)
    }

    /// Where it listens for processes of this system.
    #[must_use]
    pub fn local_address(&self) -> Address {
        self.dir.address()
    }

    /// Nothing but what was foreseen has changed, and the honest peer goes on.
    ///
    /// # Panics
    /// When not.
    pub fn assert_unharmed(&mut self, what: &str) {
        let read = |from: &ConnBuffer, image: &[u8]| {
            let mut held = vec![0; image.len()];
            from.read_at(0, &mut held).expect("in range");
            held.iter().zip(image).position(|(held, image)| held != image)
        };
        let via = self.via;
        let changed = read(&self.area, &self.area_image);
        assert_eq!(changed, None, "{via:?} {what}: a byte of the area was written");
        let changed = read(self.session.buffer(), &self.buffer_image);
        assert_eq!(changed, None, "{via:?} {what}: a byte of the buffer was written");
        self.puts += 1;
        let bytes = pattern(512, 100 + self.puts);
        self.honest.buffer().write_at(0, &bytes).expect("in range");
        let put = self.friend.put_at(0, HONEST_AT, 512);
        put.unwrap_or_else(|e| panic!("{via:?} {what}: the honest peer cannot go on: {e}"));
        let at = usize::try_from(HONEST_AT).expect("small");
        self.buffer_image[at..at + 512].copy_from_slice(&bytes);
        let changed = read(self.session.buffer(), &self.buffer_image);
        assert_eq!(changed, None, "{via:?} {what}: the honest peer's put");
        assert!(
            !losses::has_lost(self.honest.rank().0),
            "{via:?} {what}: the honest peer was lost"
        );
    }
}

/// Messages that the session's inbox of one peer takes.
pub const INBOX: usize = 8;

fn address(session: &Session, dir: &TempDir, via: Via) -> Address {
    if via == Via::Shm {
        dir.address()
    } else {
        Address::Tcp(session.tcp_addr().expect("it listens"))
    }
}
