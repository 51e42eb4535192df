//! Accepted connections whose handshake is not finished.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hmc_core::ctrl::conn::ControlConn;
use hmc_core::ctrl::framer::Framer;
use hmc_core::ctrl::io::ControlOutput;
use hmc_core::limits::{FRAME_HEADER_BYTES, MAX_HELLO_BYTES, MAX_HELLO_FRAME_BYTES};
use hmc_core::time::{Duration, Instant};
use hmc_core::types::{Incarnation, Rank};
use hmc_core::wire::header::Header;
use hmc_core::wire::hello::{HostId, LinkToken};
use hmc_core::wire::proof::{Challenge, Proof};
use hmc_core::wire::reject::RejectReason;
use rustix::io::Errno;

use crate::base::address::Address;
use crate::io::listener::PeerAddr;
use crate::io::socket::Socket;

/// A connection that has not named its rank.
#[derive(Debug)]
pub(crate) struct PendingConn {
    pub(crate) source: PeerAddr,
    pub(crate) listener: u32,
    /// By when its first frame must be whole.
    pub(crate) by: Instant,
    /// When bytes came last; when it came, if none did.
    pub(crate) received: Instant,
    pub(crate) stage: Stage,
}

/// The pending connections of a session, by number and by how long they have been silent.
#[derive(Debug, Default)]
pub(crate) struct PendingConns {
    by_number: BTreeMap<u32, PendingConn>,
    by_silence: BTreeSet<(Instant, u32)>,
    /// When a refusal was last worth a warning, and how many were not since then.
    warned: Option<Instant>,
    unreported: u64,
}

impl PendingConns {
    pub(crate) fn insert(&mut self, id: u32, conn: PendingConn) {
        self.by_silence.insert((conn.received, id));
        self.by_number.insert(id, conn);
    }

    pub(crate) fn remove(&mut self, id: u32) -> Option<PendingConn> {
        let conn = self.by_number.remove(&id)?;
        self.by_silence.remove(&(conn.received, id));
        Some(conn)
    }

    /// Takes out the one that has been silent for longest.
    pub(crate) fn take_most_silent(&mut self) -> Option<(u32, PendingConn)> {
        let (_, id) = self.by_silence.pop_first()?;
        self.by_number.remove(&id).map(|conn| (id, conn))
    }

    /// Takes out those about which something has to be done.
    pub(crate) fn take_late(&mut self, now: Instant) -> Vec<(u32, PendingConn)> {
        let late = self.by_number.iter().filter(|(_, s)| now >= s.deadline());
        let late: Vec<u32> = late.map(|(id, _)| *id).collect();
        late.into_iter().filter_map(|id| Some((id, self.remove(id)?))).collect()
    }

    /// When something has to be done about one of them.
    pub(crate) fn next_late(&self) -> Instant {
        self.by_number.values().map(PendingConn::deadline).min().unwrap_or(Instant::NEVER)
    }

    /// Whether a refusal is worth a warning: the first one is, and one a second. How many were not before it.
    pub(crate) fn is_worth_a_warning(&mut self, now: Instant) -> Option<u64> {
        let pause = Duration::from_millis(1000);
        if self.warned.is_some_and(|last| now < last.after(pause)) {
            self.unreported = self.unreported.saturating_add(1);
            return None;
        }
        self.warned = Some(now);
        Some(std::mem::take(&mut self.unreported))
    }

    pub(crate) fn len(&self) -> usize {
        self.by_number.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_number.is_empty()
    }

    /// All go: their connections close.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[derive(Debug)]
pub(crate) enum Stage {
    /// Its first frame is not whole: nothing was received.
    Silent(Socket),
    /// It has spoken.
    Talking(Box<Handshaking>),
}

/// A pending connection that has spoken.
#[derive(Debug)]
pub(crate) struct Handshaking {
    pub(crate) socket: Arc<Socket>,
    pub(crate) source: PeerAddr,
    pub(crate) listener: u32,
    pub(crate) control: ControlConn,
    pub(crate) framer: Framer<Vec<u8>>,
    /// Who it says that it is, until it has proved what it must.
    pub(crate) claim: Option<Claim>,
}

/// What can be seen of a first frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Nothing,
    /// Its beginning.
    Part,
    /// All of it, or enough to refuse it.
    Whole,
    /// Its sender is gone.
    End,
}

/// Who a pending connection says that it is.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) rank: Rank,
    pub(crate) incarnation: Incarnation,
    pub(crate) host: HostId,
    /// Where it can be dialed.
    pub(crate) route: Option<Address>,
    /// It is in another network namespace.
    pub(crate) elsewhere: bool,
    /// It belongs to the same user: the kernel says so, or it proved it.
    pub(crate) proven: bool,
}

/// A first message, copied out of the buffer.
pub(crate) enum FirstMessage {
    Native(Claim),
    /// It has to prove itself first.
    Promised(Claim, Challenge, Proof),
    /// It proved itself.
    Proven,
    /// It is refused without a look at its rank.
    Refused(RejectReason),
    Cxx {
        rank: Rank,
    },
    Attach {
        rank: Rank,
        token: LinkToken,
        channel: u8,
    },
}

/// Looks at what came, and leaves it where it is.
pub(crate) fn look(socket: &Socket) -> Seen {
    let mut bytes = [0; MAX_HELLO_FRAME_BYTES];
    let held = match socket.peek(&mut bytes) {
        Ok(0) => return Seen::End,
        Ok(n) => bytes.get(..n).unwrap_or_default(),
        Err(Errno::AGAIN) => return Seen::Nothing,
        Err(_) => return Seen::End,
    };
    let whole = match held.first_chunk::<FRAME_HEADER_BYTES>() {
        None => false,
        Some(header) => match Header::parse(header, MAX_HELLO_BYTES) {
            Ok(header) => held.len() >= header.frame_bytes(),
            // Nothing better will come.
            Err(_) => true,
        },
    };
    match whole {
        true => Seen::Whole,
        false if socket.has_ended() => Seen::End,
        false => Seen::Part,
    }
}

impl PendingConn {
    /// When something has to be done about it.
    pub(crate) fn deadline(&self) -> Instant {
        match &self.stage {
            Stage::Silent(_) => self.by,
            Stage::Talking(p) => p.control.next_deadline(),
        }
    }
}

/// Sends what the machine still has to say. A socket that is full this early is not worth waiting
/// for.
pub(crate) fn flush_reject(p: &mut Handshaking) {
    while let Some(output) = p.control.poll_output() {
        if let ControlOutput::Transmit(frame) = output {
            let _ = p.socket.send(frame.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing, reason = "tests may panic")]

    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;

    use hmc_core::ctrl::conn::{AcceptConfig, ControlConn, CxxPolicy};
    use hmc_core::ctrl::framer::Framer;
    use hmc_core::ctrl::io::Frame;
    use hmc_core::time::Instant;
    use hmc_core::types::Rank;
    use hmc_core::wire::message::ControlMessage;

    use super::{
        Handshaking, PeerAddr, PendingConn, PendingConns, Seen, Stage, flush_reject, look,
    };
    use crate::io::socket::Socket;

    fn sockets() -> (Socket, UnixStream) {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        ours.set_nonblocking(true).expect("it does not block");
        (OwnedFd::from(ours).into(), theirs)
    }

    fn at(ns: u64) -> Instant {
        Instant::from_nanos(ns)
    }

    fn silent(received: u64, by: u64) -> PendingConn {
        let stage = Stage::Silent(sockets().0);
        PendingConn {
            source: PeerAddr::Uds { pid: 1 },
            listener: 0,
            by: at(by),
            received: at(received),
            stage,
        }
    }

    fn ids(all: Vec<(u32, PendingConn)>) -> Vec<u32> {
        all.into_iter().map(|(id, _)| id).collect()
    }

    #[test]
    fn the_most_silent_goes_first() {
        let mut all = PendingConns::default();
        assert!(all.is_empty() && all.take_most_silent().is_none());
        for (id, received) in [(1, 30), (2, 10), (3, 20), (4, 10)] {
            all.insert(id, silent(received, 99));
        }
        assert_eq!(all.len(), 4);
        assert!(all.remove(4).is_some() && all.remove(4).is_none() && all.remove(9).is_none());
        let taken = std::iter::from_fn(|| all.take_most_silent().map(|(id, _)| id));
        assert_eq!(taken.collect::<Vec<_>>(), [2, 3, 1]);
        assert!(all.is_empty());
        all.insert(5, silent(1, 1));
        assert!(!all.is_empty());
        all.clear();
        assert!(all.is_empty() && all.take_most_silent().is_none());
    }

    #[test]
    fn who_is_late_is_taken_at_its_time() {
        let mut all = PendingConns::default();
        assert_eq!(all.next_late(), Instant::NEVER);
        for (id, by) in [(1, 30), (2, 10), (3, 20)] {
            all.insert(id, silent(0, by));
        }
        assert_eq!(all.next_late(), at(10));
        assert_eq!(ids(all.take_late(at(9))), [0; 0]);
        assert_eq!(ids(all.take_late(at(20))), [2, 3]);
        assert_eq!((all.next_late(), all.len()), (at(30), 1));
        assert_eq!(all.take_most_silent().map(|(id, _)| id), Some(1), "the others are forgotten");
    }

    #[test]
    fn one_refusal_a_second_is_worth_a_warning() {
        let mut all = PendingConns::default();
        let second = 1_000_000_000;
        let worth = [0, 1, second - 1, second, second + 1, 2 * second - 1, 2 * second, 9 * second];
        let warned = worth.map(|ns| all.is_worth_a_warning(at(7 + ns)));
        assert_eq!(warned, [Some(0), None, None, Some(2), None, None, Some(2), Some(0)]);
    }

    #[test]
    fn a_first_frame_is_looked_at_where_it_lies() {
        use std::io::Write as _;
        let frame = Frame::of(&ControlMessage::HelloV1 { rank: Rank(3) }).expect("it fits");
        let bytes = frame.as_bytes();
        for (sent, ended, seen) in [
            (0, false, Seen::Nothing),
            (0, true, Seen::End),
            (1, false, Seen::Part),
            (1, true, Seen::End),
            (bytes.len() - 1, false, Seen::Part),
            (bytes.len() - 1, true, Seen::End),
            (bytes.len(), false, Seen::Whole),
            (bytes.len(), true, Seen::Whole),
        ] {
            let (ours, mut theirs) = sockets();
            theirs.write_all(&bytes[..sent]).expect("sent");
            if ended {
                drop(theirs);
            }
            assert_eq!(look(&ours), seen, "{sent} bytes, ended {ended}");
            assert_eq!(look(&ours), seen, "it stays there");
        }
        // More than a first frame, and what is none: nothing better will come.
        for bytes in [vec![0xFF; 8], [bytes, &[0; 3]].concat()] {
            let (ours, mut theirs) = sockets();
            theirs.write_all(&bytes).expect("sent");
            assert_eq!(look(&ours), Seen::Whole);
        }
    }

    #[test]
    fn a_pending_conn_with_a_first_frame_has_its_machines_deadline_and_receives_the_reason() {
        use std::io::Read as _;
        let (ours, mut theirs) = sockets();
        let acceptor = AcceptConfig { rank: Rank(0), job: 0, cxx: CxxPolicy::Refused };
        let control = ControlConn::dial_cxx(Rank(0), Rank(1), at(5)).expect("it fits");
        let accepted = ControlConn::accepted(&acceptor, at(5));
        let (by, source) = (accepted.next_deadline(), PeerAddr::Uds { pid: 1 });
        let pending = |socket: Socket, control| Handshaking {
            socket: Arc::new(socket),
            source,
            listener: 0,
            control,
            framer: Framer::new(vec![0; 64]),
            claim: None,
        };
        let stage = Stage::Talking(Box::new(pending(sockets().0, accepted)));
        let talking = PendingConn { source, listener: 0, by: at(1), received: at(1), stage };
        assert_eq!(talking.deadline(), by);
        assert_eq!(silent(3, 4).deadline(), at(4));
        flush_reject(&mut pending(ours, control));
        let mut sent = Vec::new();
        theirs.read_to_end(&mut sent).expect("it is dropped");
        assert_eq!(
            sent,
            Frame::of(&ControlMessage::HelloV1 { rank: Rank(0) }).expect("fits").as_bytes()
        );
    }
}
