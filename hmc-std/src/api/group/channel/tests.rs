//! Channels whose peer writes any word at any time: a call copies no byte beyond the window or the message, and ends with an error
//! that names the reason.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hmc_core::types::{Access, ConnType, Rank};
use hmc_mem::os::mapped_window::MappedWindow;
use hmc_mem::shared::SharedBytes;

use super::peer_memory::PeerMemory;
use super::stream::{LEN_MASK, REFUSED, announcement};
use super::{
    Channel, FAILED, FILLED, OFFERED, PARKED, READ, RING, RING_BYTES, SOURCE, TAKEN, WANTED,
    WINDOW_BYTES, get,
};
use crate::api::peer::Peer;
use crate::api::session::Session;
use crate::base::address::Address;
use crate::base::error::ErrorKind;
use crate::memory::ConnBuffer;
use crate::ops::window::Window;
use crate::transport::stream::PeerLife;

/// Bytes on both sides of the peer's window, and of a message, that nobody may write.
const GUARD: usize = 4096;
const GUARD_BYTE: u8 = 0xA5;
const LONG: Duration = Duration::from_secs(20);
/// More than a ring.
const LEN: usize = 300 << 10;

/// A member with a channel, and a peer that writes what it likes into the member's window.
struct Rig {
    channel: Channel,
    peer: Peer,
    /// The member's window, as the peer has it mapped.
    mapped: Arc<MappedWindow>,
    window: Option<Window<ConnBuffer>>,
    /// The peer's memory: its window between guards.
    memory: ConnBuffer,
    _pair: Pair,
}

/// Two sessions that are connected over shared memory.
pub(in crate::api::group) struct Pair {
    /// Of each session, the other one.
    pub(in crate::api::group) peers: [Peer; 2],
    _sessions: [Session; 2],
    dir: PathBuf,
}

/// Returns a window of the other end as it is mapped here.
fn mapped(peer: &Peer, window: &Window<ConnBuffer>) -> Arc<MappedWindow> {
    let (id, epoch) = window.name();
    loop {
        peer.link.poll_data(false);
        if let Some(found) = peer.link.data().mapped(id, epoch) {
            return found;
        }
        std::thread::yield_now();
    }
}

fn small(n: u64) -> usize {
    usize::try_from(n).expect("small")
}

fn bytes(n: usize) -> u64 {
    u64::try_from(n).expect("small")
}

impl Pair {
    pub(in crate::api::group) fn new(name: &str) -> Self {
        Self::with(name, 32)
    }

    /// The same with so many places for windows.
    pub(in crate::api::group) fn with(name: &str, windows: usize) -> Self {
        let dir = std::env::temp_dir().join(format!("hmc-channel-{name}-{}", std::process::id()));
        let builder = |rank| Session::builder(rank).uds(&dir).buffer(4096).windows(windows);
        let start = |rank| builder(rank).start().expect("a session");
        let sessions = [start(0), start(1)];
        let connect = sessions[1].connect(&Address::Uds(dir.clone())).rank(0).over(ConnType::Shm);
        let second = connect.within(LONG).wait().expect("connected");
        let first = sessions[0].accept(1).within(LONG).wait().expect("connected");
        Self { peers: [first, second], _sessions: sessions, dir }
    }
}

impl Rig {
    fn new(name: &str) -> Self {
        let pair = Pair::new(name);
        let [peer, hostile] = pair.peers.clone();
        let allocate = |peer: &Peer, len| {
            peer.shared.regions.allocate(len).expect("memory").share().expect("nobody has it")
        };
        let buffer = allocate(&peer, WINDOW_BYTES);
        let ours = peer.expose_unannounced(buffer.clone(), Access::all()).expect("a window");
        let memory = allocate(&hostile, WINDOW_BYTES + 2 * bytes(GUARD));
        memory.fill(0, memory.len(), GUARD_BYTE).expect("in range");
        let range = memory.range(bytes(GUARD), WINDOW_BYTES).expect("in range");
        let window = hostile.expose(range, Access::all(), 7).expect("a window");
        let (mapped_there, theirs) = (mapped(&hostile, &ours), mapped(&peer, &window));
        assert!(Channel::fits(&theirs));
        let channel = Channel::new(ours, buffer, theirs, &peer);
        Self { channel, peer, mapped: mapped_there, window: Some(window), memory, _pair: pair }
    }

    /// The peer writes a word.
    fn write(&self, at: u64, word: u64) {
        self.mapped.publish(None, &[(at, word)], PARKED).expect("an open window");
    }

    /// Returns a word of the peer's window.
    fn told(&self, at: u64) -> u64 {
        let mut word = [0; 8];
        self.memory.read_at(bytes(GUARD) + at, &mut word).expect("in range");
        u64::from_le_bytes(word)
    }

    fn assert_guarded(&self, what: &str) {
        let mut guard = [0; GUARD];
        for at in [0, bytes(GUARD) + WINDOW_BYTES] {
            self.memory.read_at(at, &mut guard).expect("in range");
            assert_eq!(guard, [GUARD_BYTE; GUARD], "{what}: beside the peer's window");
        }
        // What the owner of a window writes is nobody else's.
        let mut rest = [0; 72];
        self.memory.read_at(bytes(GUARD) + READ + 8, &mut rest).expect("in range");
        assert_eq!(rest, [GUARD_BYTE; 72], "{what}: beside the words");
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// The latest words of a peer, by what is wrong with them; whether this member sends, and the error that it gets.
type Case = (&'static str, bool, &'static [(u64, u64)], Option<ErrorKind>);

const L: u64 = 300 << 10;
const FIT: u64 = announcement(1, L);
const CASES: &[Case] = &[
    ("nothing", true, &[], None),
    ("nothing", false, &[], None),
    ("more taken than there was", true, &[(TAKEN, RING_BYTES + 1)], Some(ErrorKind::Protocol)),
    ("less than nothing taken", true, &[(TAKEN, u64::MAX)], Some(ErrorKind::Protocol)),
    ("half of all numbers taken", true, &[(TAKEN, 1 << 63)], Some(ErrorKind::Protocol)),
    ("a receive after the next", true, &[(WANTED, announcement(3, L))], Some(ErrorKind::Protocol)),
    ("a receive long ago", true, &[(WANTED, announcement(0xFFFF, L))], Some(ErrorKind::Protocol)),
    ("a shorter receive", true, &[(WANTED, announcement(1, L - 1))], Some(ErrorKind::Length)),
    ("the longest receive", true, &[(WANTED, announcement(1, LEN_MASK))], Some(ErrorKind::Length)),
    ("the next receive, and no space", true, &[(WANTED, announcement(2, 0))], None),
    ("a failure", true, &[(FAILED, 1)], Some(ErrorKind::Cancelled)),
    ("a deadline", true, &[(FAILED, 2)], Some(ErrorKind::DeadlineExceeded)),
    ("an unknown failure", true, &[(FAILED, 4)], Some(ErrorKind::Cancelled)),
    ("its own death", true, &[(FAILED, 1 << 32 | 3)], Some(ErrorKind::Cancelled)),
    ("this member's death", true, &[(FAILED, 3)], Some(ErrorKind::Cancelled)),
    (
        "a failure and a length",
        true,
        &[(WANTED, announcement(1, 7)), (FAILED, 9)],
        Some(ErrorKind::Length),
    ),
    (
        "more than a ring",
        false,
        &[(OFFERED, FIT), (FILLED, RING_BYTES + 1)],
        Some(ErrorKind::Protocol),
    ),
    ("less than nothing", false, &[(OFFERED, FIT), (FILLED, u64::MAX)], Some(ErrorKind::Protocol)),
    ("half of all numbers", false, &[(OFFERED, FIT), (FILLED, 1 << 63)], Some(ErrorKind::Protocol)),
    (
        "a message after the next",
        false,
        &[(OFFERED, announcement(3, L))],
        Some(ErrorKind::Protocol),
    ),
    ("a message long ago", false, &[(OFFERED, announcement(0x8001, L))], Some(ErrorKind::Protocol)),
    ("a longer message", false, &[(OFFERED, announcement(1, L + 1))], Some(ErrorKind::Length)),
    ("no length", false, &[(OFFERED, announcement(1, 0))], Some(ErrorKind::Length)),
    ("bytes that were not offered", false, &[(FILLED, RING_BYTES)], None),
    ("the next message, and no bytes", false, &[(OFFERED, announcement(2, 0))], None),
    ("an unknown failure", false, &[(FAILED, u64::MAX)], Some(ErrorKind::Cancelled)),
    ("a deadline", false, &[(FAILED, 2)], Some(ErrorKind::DeadlineExceeded)),
    ("a deadline in the upper half", false, &[(FAILED, 2 << 32)], Some(ErrorKind::Cancelled)),
    ("a sleeping owner", false, &[(PARKED, u64::MAX)], None),
    ("a read of what is not lent", true, &[(READ, announcement(1, L))], None),
    ("a refusal of what is not lent", true, &[(READ, announcement(1, LEN_MASK))], None),
    ("a place that was not offered", false, &[(SOURCE, announcement(1, 4096))], None),
    ("a place of another message", false, &[(OFFERED, FIT), (SOURCE, announcement(2, 4096))], None),
    ("bytes in the ring alone", false, &[(RING, u64::MAX), (RING + RING_BYTES - 8, 7)], None),
];

#[test]
fn words_that_cannot_be_are_errors_and_others_wait() {
    for (what, sends, words, kind) in CASES {
        let rig = Rig::new("words");
        let mut memory = vec![GUARD_BYTE; LEN + 2 * GUARD];
        let part = memory.get_mut(GUARD..GUARD + LEN).expect("in range");
        let mut stream = rig.channel.begin(&rig.peer, SharedBytes::of_mut(part), *sends, true);
        stream.send_first().expect("an empty ring");
        words.iter().for_each(|(at, word)| rig.write(*at, *word));
        // The first call may copy something, and the second one nothing more.
        let found = stream.move_on().and_then(|_| stream.move_on());
        match (found, kind) {
            (Ok(over), None) => assert!(!over, "{what}: it is not over"),
            (Err(e), Some(kind)) => {
                assert_eq!((e.kind(), e.peer()), (*kind, Some(rig.peer.rank())), "{what}: {e}")
            }
            (found, _) => panic!("{what}: {found:?}"),
        }
        drop(stream);
        assert!(memory.iter().all(|b| *b == GUARD_BYTE), "{what}: a byte was received");
        rig.assert_guarded(what);
    }
}

#[test]
fn a_death_is_that_of_the_member_that_is_named() {
    for sends in [true, false] {
        let rig = Rig::new("death");
        let mut stream = rig.channel.begin(&rig.peer, SharedBytes::of_mut(&mut []), sends, true);
        rig.write(FAILED, 7 << 32 | 3);
        let e = stream.move_on().expect_err("a member died");
        assert_eq!((e.kind(), e.peer()), (ErrorKind::PeerDead, Some(Rank(7))), "{e}");
    }
}

/// The peer's group is gone: what it wrote before counts, and nothing else comes.
#[test]
fn a_closed_window_ends_messages_that_make_no_progress() {
    for (sends, word) in [(true, WANTED), (false, OFFERED)] {
        for is_done in [true, false] {
            let mut rig = Rig::new("closed");
            let mut stream =
                rig.channel.begin(&rig.peer, SharedBytes::of_mut(&mut []), sends, true);
            if is_done {
                rig.write(word, announcement(1, 0));
            }
            drop(rig.window.take());
            rig.channel.flush(&rig.peer).expect("counts are nobody's");
            match stream.move_on() {
                Ok(over) => assert!(over && is_done),
                Err(e) => assert_eq!((e.kind(), is_done), (ErrorKind::Closed, false), "{e}"),
            }
        }
    }
}

/// Before each message the peer writes words that may be, then random ones.
#[test]
fn a_peer_that_writes_any_words_reaches_no_other_byte() {
    let rig = Rig::new("any");
    let mut state: u64 = 0x9E37_79B9_7F4A_7C15;
    // Marsaglia, "Xorshift RNGs", 2003.
    let mut next = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.checked_rem(below).unwrap_or(state)
    };
    // By kind of error, and the others.
    let mut met = [0; 4];
    let kinds = [ErrorKind::Protocol, ErrorKind::Length, ErrorKind::Cancelled];
    for number in 1..=4000 {
        let (sends, len) = (next(2) == 0, small(next(bytes(LEN))));
        let mut memory = vec![GUARD_BYTE; len + 2 * GUARD];
        let part = memory.get_mut(GUARD..GUARD + len).expect("in range");
        let (sent, received) = (get(&rig.channel.sent), get(&rig.channel.received));
        let mut stream = rig.channel.begin(&rig.peer, SharedBytes::of_mut(part), sends, true);
        let fit = announcement(stream.number, bytes(len));
        let first = [fit, fit.wrapping_sub(1 << 48), announcement(stream.number, next(L))];
        let first = first[small(next(3))];
        for (at, word) in
            [(TAKEN, sent), (FILLED, received), (WANTED, first), (OFFERED, first), (FAILED, 0)]
        {
            rig.write(at, word);
        }
        let found = stream.send_first().and_then(|()| {
            for _ in 0..8 {
                let any = 8 * next(WINDOW_BYTES / 8);
                let at =
                    [FILLED, TAKEN, WANTED, OFFERED, FAILED, PARKED, RING, any][small(next(8))];
                let count =
                    if at == FILLED { get(&rig.channel.received) } else { get(&rig.channel.sent) };
                let count = match at {
                    FILLED => count.wrapping_add(next(RING_BYTES + 1)),
                    TAKEN => count.wrapping_sub(next(RING_BYTES + 1)),
                    _ => fit,
                };
                let word = [count, count, count, fit.wrapping_add(next(3) << 48), 0, next(0)];
                rig.write(at, word[small(next(6))]);
                if stream.move_on()? {
                    return Ok(());
                }
            }
            Ok(())
        });
        let kind = found.err().map_or(3, |e| {
            kinds.iter().position(|k| *k == e.kind()).unwrap_or_else(|| panic!("{e}"))
        });
        met[kind] += 1;
        drop(stream);
        let beside = memory.iter().take(GUARD).chain(memory.iter().skip(GUARD + len));
        assert!(beside.into_iter().all(|b| *b == GUARD_BYTE), "beside message {number} of {len}");
    }
    rig.assert_guarded("any words");
    assert!(met.iter().all(|n| *n > 20), "{met:?}");
}

/// What the peer writes about a message that is lent to it, and whether that ends it, or the error.
type Reads = (&'static str, &'static [(u64, u64)], Result<bool, ErrorKind>);
const READS: &[Reads] = &[
    ("no receive", &[(READ, announcement(1, L))], Ok(false)),
    ("a part", &[(WANTED, FIT), (READ, announcement(1, L - 1))], Ok(false)),
    ("all", &[(WANTED, FIT), (READ, announcement(1, L))], Ok(true)),
    ("the next receive", &[(WANTED, announcement(2, 9)), (READ, announcement(2, 0))], Ok(true)),
    ("a read of an earlier one", &[(WANTED, FIT), (READ, announcement(0, L))], Ok(false)),
    ("a read of a later one", &[(WANTED, FIT), (READ, announcement(3, L))], Ok(false)),
    ("too much", &[(WANTED, FIT), (READ, announcement(1, L + 1))], Err(ErrorKind::Protocol)),
    ("a ring alone", &[(WANTED, FIT), (TAKEN, RING_BYTES)], Ok(false)),
    ("a failure", &[(WANTED, FIT), (FAILED, 1)], Err(ErrorKind::Cancelled)),
];

#[test]
fn a_lent_message_ends_when_all_of_it_is_read() {
    for (what, words, expected) in READS {
        let rig = Rig::new("lent");
        rig.channel.lends.store(true, Ordering::Relaxed);
        let message = vec![7; LEN];
        let mut stream = rig.channel.begin(&rig.peer, SharedBytes::of(&message), true, true);
        stream.send_first().and_then(|()| rig.channel.flush(&rig.peer)).expect("a window");
        let place = bytes(message.as_ptr().expose_provenance());
        assert_eq!(rig.told(SOURCE), announcement(1, place), "{what}");
        assert_eq!(rig.told(FILLED), 0, "{what}: nothing is put into the ring");
        words.iter().for_each(|(at, word)| rig.write(*at, *word));
        assert_eq!(stream.move_on().map_err(|e| e.kind()), *expected, "{what}");
        let is_over = *expected == Ok(true);
        drop(stream);
        // The peer must not read it any more.
        assert_eq!(rig.told(FAILED) == 1, !is_over, "{what}");
    }
    let rig = Rig::new("polled");
    rig.channel.lends.store(true, Ordering::Relaxed);
    let message = vec![7; LEN];
    let stream = rig.channel.begin(&rig.peer, SharedBytes::of(&message), true, false);
    assert!(!stream.is_lent, "a future can be forgotten");
}

#[test]
fn a_refused_message_goes_through_the_ring() {
    let rig = Rig::new("refused");
    rig.channel.lends.store(true, Ordering::Relaxed);
    let message = vec![7; LEN];
    let mut stream = rig.channel.begin(&rig.peer, SharedBytes::of(&message), true, true);
    rig.write(WANTED, FIT);
    rig.write(READ, announcement(1, 8));
    assert!(!stream.move_on().expect("a part is read"));
    rig.write(READ, announcement(1, REFUSED));
    assert!(!stream.move_on().expect("a whole ring"));
    assert_eq!(rig.told(FILLED), RING_BYTES);
    rig.write(TAKEN, RING_BYTES);
    assert!(stream.move_on().expect("the rest"));
    assert_eq!(rig.told(FILLED), L);
    drop(stream);
    let next = rig.channel.begin(&rig.peer, SharedBytes::of(&message), true, true);
    assert!(!next.is_lent, "nor are later ones lent");
}

#[test]
fn a_message_is_read_where_it_lies_unless_it_is_withdrawn_or_the_link_is_over() {
    // A sender whose own end of the link is shut can withdraw nothing.
    for why in [None, Some(ErrorKind::DeadlineExceeded), Some(ErrorKind::PeerDead)] {
        let mut rig = Rig::new("read");
        rig.channel.memory = Some(PeerMemory::of_this(PeerLife::default()));
        let message: Vec<u8> = (0..5 << 20).map(|n: u32| n.to_le_bytes()[1]).collect();
        let len = bytes(message.len());
        let mut into = vec![GUARD_BYTE; message.len()];
        let mut stream = rig.channel.begin(&rig.peer, SharedBytes::of_mut(&mut into), false, true);
        let place = bytes(message.as_ptr().expose_provenance());
        rig.write(SOURCE, announcement(1, place));
        rig.write(OFFERED, announcement(1, len));
        assert!(!stream.move_on().expect("some pieces") && stream.has_more);
        assert_eq!(rig.told(READ), announcement(1, 4 << 20));
        match why {
            Some(ErrorKind::DeadlineExceeded) => rig.write(FAILED, 2),
            Some(_) => rig.peer.link.close(false, "the test ends it"),
            None => {}
        }
        let over = stream.move_on().map_err(|e| e.kind());
        drop(stream);
        if let Some(why) = why {
            assert_eq!(over, Err(why));
            assert!(into.iter().skip(4 << 20).all(|b| *b == GUARD_BYTE));
        } else {
            assert_eq!(over, Ok(true));
            assert!(into == message);
            assert_eq!(rig.told(READ), announcement(1, len));
        }
    }
}

#[test]
fn a_message_that_cannot_be_read_comes_through_the_ring() {
    // No process, memory that is not there, and a place that ends beyond all memory.
    for (has_memory, place) in [(false, 1 << 20), (true, 4096), (true, LEN_MASK - 4096)] {
        let mut rig = Rig::new("unread");
        rig.channel.memory = has_memory.then(|| PeerMemory::of_this(PeerLife::default()));
        let mut into = vec![GUARD_BYTE; LEN];
        let mut stream = rig.channel.begin(&rig.peer, SharedBytes::of_mut(&mut into), false, true);
        rig.write(SOURCE, announcement(1, place));
        rig.write(OFFERED, FIT);
        assert!(!stream.move_on().expect("a refusal"));
        assert_eq!(rig.told(READ), announcement(1, REFUSED));
        rig.write(FILLED, RING_BYTES);
        assert!(!stream.move_on().expect("a ring"));
        rig.write(FILLED, L);
        assert!(stream.move_on().expect("the rest"));
        drop(stream);
        assert!(into.iter().all(|b| *b == 0), "what the peer put there");
    }
}

#[test]
fn nothing_is_received_of_a_process_that_has_ended() {
    let mut rig = Rig::new("ended");
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    let life = PeerLife::of(None, &Arc::new(OwnedFd::from(ours).into()));
    rig.channel.memory = Some(PeerMemory::of_this(life));
    let (message, mut into) = (vec![7; LEN], vec![GUARD_BYTE; LEN]);
    let mut stream = rig.channel.begin(&rig.peer, SharedBytes::of_mut(&mut into), false, true);
    rig.write(SOURCE, announcement(1, bytes(message.as_ptr().expose_provenance())));
    rig.write(OFFERED, FIT);
    drop(theirs);
    assert!(!stream.move_on().expect("the link reports the end"));
    assert_ne!(rig.told(READ), announcement(1, REFUSED), "nobody is there to send again");
    drop(stream);
    assert!(into.iter().all(|b| *b == GUARD_BYTE));
}
