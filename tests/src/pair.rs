//! Two sessions of one process that are connected, and what tests of messages send between them.

use std::time::Duration;

use hmc_std::{ConnType, Peer, Session, SessionBuilder};

use crate::env::{TempDir, Via};

const LONG: Duration = Duration::from_secs(30);

/// Two sessions of this process, or one with itself, and each end's peer.
#[derive(Debug)]
pub struct Pair {
    /// The receiver and, unless it is the same, the sender.
    pub sessions: Vec<Session>,
    /// The receiver, as its peer sees it.
    pub a: Peer,
    /// The sender, as its peer sees it.
    pub b: Peer,
    /// Where they listen.
    pub dir: TempDir,
}

impl Pair {
    /// Connects two.
    ///
    /// # Panics
    /// When they cannot be.
    #[must_use]
    pub fn new(conn: ConnType, buffer: u64) -> Self {
        Self::with(conn, buffer, |builder| builder)
    }

    /// The same, of sessions that are set up by `more`.
    ///
    /// # Panics
    /// When they cannot be.
    #[must_use]
    pub fn with(
        conn: ConnType,
        buffer: u64,
        more: impl Fn(SessionBuilder) -> SessionBuilder,
    ) -> Self {
        let dir = TempDir::new();
        let part = |rank| {
            let part = more(Session::builder(rank).buffer(buffer));
            if conn == ConnType::Ucx { part.ucx() } else { part }
        };
        let first = part(1).uds(dir.path()).tcp("127.0.0.1:0").start().expect("two sessions");
        if conn == ConnType::Loopback {
            let me = first.peer(1).expect("two sessions");
            return Self { sessions: vec![first], a: me.clone(), b: me, dir };
        }
        let second = part(0).start().expect("two sessions");
        let a = second
            .connect(&dir.address())
            .rank(1)
            .over(conn)
            .within(LONG)
            .wait()
            .expect("two sessions");
        let b = first.accept(0).within(LONG).wait().expect("two sessions");
        Self { sessions: vec![first, second], a, b, dir }
    }

    /// Who sends.
    ///
    /// # Panics
    /// Never: there is a session.
    #[must_use]
    pub fn sender(&self) -> &Session {
        self.sessions.last().expect("two sessions")
    }

    /// Who receives.
    #[must_use]
    pub fn receiver(&self) -> &Session {
        &self.sessions[0]
    }
}

/// Every transport.
pub const ALL: [ConnType; 3] = [ConnType::Loopback, ConnType::Shm, ConnType::Tcp];

/// Every transport, or the one that `HMC_TEST_VIA` names.
///
/// # Panics
/// As [`Via::all`].
#[must_use]
pub fn transports() -> Vec<ConnType> {
    match Via::all().as_slice() {
        [one] => vec![one.conn()],
        _ => ALL.to_vec(),
    }
}

/// Bytes that tell a shift, a swap and a repetition.
#[must_use]
pub fn pattern(len: u64, salt: u64) -> Vec<u8> {
    let mut x = salt.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let len = usize::try_from(len).expect("small");
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        out.extend_from_slice(&x.to_le_bytes());
    }
    out.truncate(len);
    out
}

/// In a thread each, the later one after `first` was surely begun.
///
/// # Panics
/// As either does.
pub fn both<A: Send, B: Send>(
    sender_first: bool,
    send: impl FnOnce() -> A + Send,
    receive: impl FnOnce() -> B + Send,
) -> (A, B) {
    std::thread::scope(|s| {
        if sender_first {
            let a = s.spawn(send);
            // No order is promised by this; every order has to work.
            std::thread::yield_now();
            let b = receive();
            (a.join().expect("two sessions"), b)
        } else {
            let b = s.spawn(receive);
            std::thread::yield_now();
            (send(), b.join().expect("two sessions"))
        }
    })
}
