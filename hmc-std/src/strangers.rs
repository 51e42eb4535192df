//! Strangers: connections that have not said who they are, and what becomes of them.
//!
//! Until its first frame is whole, a connection costs its descriptor and a line in a table: nothing is received, only looked
//! at. Each has two seconds and half a kilobyte for it. When places run out, the connection that has been silent for longest
//! is closed; its dialer may come again. None of them can delay another.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hmc_core::ctrl::framer::{Framer, Next};
use hmc_core::ctrl::machine::{Acceptor, Control, Upstream};
use hmc_core::ctrl::output::{Event, Output, Violation};
use hmc_core::kinds::Rank;
use hmc_core::limits::{
    FRAME_HEADER_BYTES, HELLO_DEADLINE_NS, MAX_HELLO_BYTES, MAX_HELLO_FRAME_BYTES,
};
#[cfg(hmc_mutants)]
use hmc_core::mutant::{self, Mutant};
use hmc_core::time::{Duration, Instant};
use hmc_core::wire::cursor::WireErrorKind;
use hmc_core::wire::header::Header;
use hmc_core::wire::hello::LinkToken;
use hmc_core::wire::proof::{Challenge, Proof};
use hmc_core::wire::reject::RejectReason;
use rustix::io::Errno;

use crate::claim::Claim;
use crate::clock;
use crate::driver::Token;
use crate::link::ctrl::CtrlState;
use crate::listen::{Source, tune_tcp};
use crate::shared::{Shared, lock};
use crate::socket::Socket;

/// Connections that are accepted before others get their turn.
const ACCEPTS_A_TURN: usize = 64;

/// A connection that has not said who it is.
#[derive(Debug)]
pub(crate) struct Stranger {
    source: Source,
    door: u32,
    /// By when its first frame must be whole.
    by: Instant,
    /// When bytes came last; when it came, if none did.
    heard: Instant,
    stage: Stage,
}

/// The strangers of a session, by number and by how long they have been silent.
#[derive(Debug, Default)]
pub(crate) struct Strangers {
    by_number: BTreeMap<u32, Stranger>,
    by_silence: BTreeSet<(Instant, u32)>,
    /// When a refusal was last worth a warning, and how many were not since then.
    warned: Option<Instant>,
    unsaid: u64,
}

impl Strangers {
    fn insert(&mut self, id: u32, stranger: Stranger) {
        self.by_silence.insert((stranger.heard, id));
        self.by_number.insert(id, stranger);
    }

    fn remove(&mut self, id: u32) -> Option<Stranger> {
        let stranger = self.by_number.remove(&id)?;
        self.by_silence.remove(&(stranger.heard, id));
        Some(stranger)
    }

    /// Takes out the one that has been silent for longest.
    fn take_most_silent(&mut self) -> Option<(u32, Stranger)> {
        let (_, id) = self.by_silence.pop_first()?;
        self.by_number.remove(&id).map(|stranger| (id, stranger))
    }

    /// Takes out those about which something has to be done.
    fn take_late(&mut self, now: Instant) -> Vec<(u32, Stranger)> {
        let late = self.by_number.iter().filter(|(_, s)| now >= s.deadline());
        let late: Vec<u32> = late.map(|(id, _)| *id).collect();
        late.into_iter().filter_map(|id| Some((id, self.remove(id)?))).collect()
    }

    /// When something has to be done about one of them.
    fn next_late(&self) -> Instant {
        self.by_number.values().map(Stranger::deadline).min().unwrap_or(Instant::NEVER)
    }

    /// Whether a refusal is worth a warning: the first one is, and one a second. How many were not before it.
    pub(crate) fn is_worth_a_warning(&mut self, now: Instant) -> Option<u64> {
        let pause = Duration::from_millis(1000);
        if self.warned.is_some_and(|last| now < last.after(pause)) {
            self.unsaid = self.unsaid.saturating_add(1);
            return None;
        }
        self.warned = Some(now);
        Some(std::mem::take(&mut self.unsaid))
    }

    fn len(&self) -> usize {
        self.by_number.len()
    }

    #[cfg(hmc_mutants)]
    fn keeps_out(&self, source: &Source, places: usize) -> bool {
        let ip = |source: &Source| match source {
            Source::Tcp(from) => Some(from.ip()),
            Source::Uds { .. } => None,
        };
        let same = || self.by_number.values().filter(|s| ip(&s.source) == ip(source)).count();
        mutant::is(Mutant::NewcomerGoes) && self.len() >= places
            || (mutant::is(Mutant::FewOfAnAddress) || mutant::is(Mutant::TurnManyAway))
                && same() >= 4
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_number.is_empty()
    }

    /// Whether that one is still a stranger.
    #[cfg(feature = "testing")]
    pub(crate) fn has(&self, id: u32) -> bool {
        self.by_number.contains_key(&id)
    }

    /// All go: their connections close.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[derive(Debug)]
enum Stage {
    /// Its first frame is not whole: nothing was received.
    Silent(Socket),
    /// It has spoken.
    Talking(Box<Pending>),
}

/// A stranger that has spoken.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) socket: Arc<Socket>,
    pub(crate) source: Source,
    pub(crate) door: u32,
    pub(crate) control: Control,
    pub(crate) framer: Framer<Vec<u8>>,
    /// Who it says that it is, until it has proved what it must.
    claim: Option<Claim>,
}

/// What can be seen of a first frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Nothing,
    /// Its beginning.
    Part,
    /// All of it, or enough to refuse it.
    Whole,
    /// Its sender is gone.
    End,
}

/// What a stranger turned out to be.
enum Turned {
    /// Still unknown.
    Waiting,
    /// Gone, or refused.
    Away,
    /// Connected or attached: no stranger any more.
    Home,
}

/// A first message, copied out of the buffer.
pub(crate) enum First {
    Native(Claim),
    /// It has to prove itself first.
    Promised(Claim, Challenge, Proof),
    /// It proved itself.
    Proven,
    /// It is refused without a look at its rank.
    Refused(RejectReason),
    Upstream {
        rank: Rank,
    },
    Attach {
        rank: Rank,
        token: LinkToken,
        channel: u8,
    },
}

/// Looks at what came, and leaves it where it is.
fn look(socket: &Socket) -> Seen {
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

impl Shared {
    /// Lets in who waits at a door. `Err` when descriptors are used up: pause.
    pub(crate) fn greet(&self, door: u32) -> std::result::Result<(), Errno> {
        for _ in 0..ACCEPTS_A_TURN {
            match self.doors.accept(door) {
                Ok(Some((fd, source))) => {
                    self.meet(fd.into(), source, door);
                }
                Ok(None) => break,
                // Its descriptor is worth more to the next one.
                Err(Errno::MFILE | Errno::NFILE) if self.send_one_away() => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// A stranger came by a door. Gives it a number, or turns it away: the connection closes with `socket`.
    pub(crate) fn meet(&self, socket: Socket, source: Source, door: u32) -> Option<u32> {
        if self.is_leaving() {
            // Dropped: closed at once.
            self.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        #[cfg(hmc_mutants)]
        if lock(&self.pending).keeps_out(&source, self.places) {
            return None;
        }
        if lock(&self.pending).len() >= self.places {
            self.send_one_away();
        }
        let id = self.next_pending.fetch_add(1, Ordering::Relaxed);
        if self.driver.watch_stranger(&socket, Token::Pending(id)).is_err() {
            return None;
        }
        let now = clock::now();
        let by = now.after(Duration::from_nanos(HELLO_DEADLINE_NS));
        let stranger = Stranger { source, door, by, heard: now, stage: Stage::Silent(socket) };
        lock(&self.pending).insert(id, stranger);
        Some(id)
    }

    /// Makes room for another: the one that has been silent for longest goes, unless it has just spoken. Whether one went.
    fn send_one_away(&self) -> bool {
        let most_silent = lock(&self.pending).take_most_silent();
        let Some((id, stranger)) = most_silent else { return false };
        match stranger.stage {
            Stage::Silent(ref socket) if look(socket) == Seen::Whole => self.hear(id, stranger),
            Stage::Silent(socket) => self.turn_away(&socket),
            Stage::Talking(p) => self.turn_away(&p.socket),
        }
        true
    }

    /// A stranger's socket is readable.
    pub(crate) fn hear_stranger(&self, id: u32) {
        let stranger = lock(&self.pending).remove(id);
        if let Some(stranger) = stranger {
            self.hear(id, stranger);
        }
    }

    /// To be called before it is dropped, which closes it.
    fn turn_away(&self, socket: &Socket) {
        self.driver.unwatch_socket(socket);
        socket.end_if_local();
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Listens to a stranger that was taken out of the table.
    fn hear(&self, id: u32, stranger: Stranger) {
        let Stranger { source, door, by, mut heard, stage } = stranger;
        let mut p = match stage {
            Stage::Talking(p) => p,
            Stage::Silent(socket) => match look(&socket) {
                Seen::Whole => {
                    if let (Source::Tcp(_), Some(fd)) = (source, socket.fd()) {
                        tune_tcp(fd);
                    }
                    Box::new(self.pending(socket, source, door))
                }
                Seen::End => return self.turn_away(&socket),
                seen @ (Seen::Nothing | Seen::Part) => {
                    if seen == Seen::Part {
                        heard = clock::now();
                    }
                    let stage = Stage::Silent(socket);
                    let stranger = Stranger { source, door, by, heard, stage };
                    lock(&self.pending).insert(id, stranger);
                    return;
                }
            },
        };
        match self.listen_to(&mut p) {
            Turned::Waiting => {
                let (heard, stage) = (clock::now(), Stage::Talking(p));
                lock(&self.pending).insert(id, Stranger { source, door, by, heard, stage });
            }
            Turned::Away => self.turn_away(&p.socket),
            Turned::Home => {}
        }
    }

    fn pending(&self, socket: Socket, source: Source, door: u32) -> Pending {
        let acceptor = Acceptor {
            rank: self.config.rank,
            job: self.config.job,
            upstream: if self.accepts_upstream() { Upstream::Allowed } else { Upstream::Refused },
        };
        let control = Control::accepted(&acceptor, clock::now());
        Pending {
            socket: Arc::new(socket),
            source,
            door,
            control,
            framer: CtrlState::new_framer(),
            claim: None,
        }
    }

    /// Turns away strangers whose time is up, and says when that of the next one is.
    pub(crate) fn tick_strangers(&self, now: Instant) -> Instant {
        #[cfg(hmc_mutants)]
        if mutant::is(Mutant::KeepSilent) {
            return Instant::NEVER;
        }
        let late = lock(&self.pending).take_late(now);
        for (id, mut stranger) in late {
            match &mut stranger.stage {
                // It was in time, and we were late.
                Stage::Silent(socket) if look(socket) == Seen::Whole => self.hear(id, stranger),
                Stage::Silent(socket) => self.turn_away(socket),
                Stage::Talking(p) => {
                    p.control.tick(now);
                    if p.control.close_reason().is_some() {
                        self.turn_away(&p.socket);
                    } else {
                        lock(&self.pending).insert(id, stranger);
                    }
                }
            }
        }
        lock(&self.pending).next_late()
    }

    fn listen_to(&self, p: &mut Pending) -> Turned {
        loop {
            let now = clock::now();
            let first = match p.framer.next(p.control.frame_limit()) {
                Ok(Next::Frame(header, payload)) => match p.control.receive(header, payload, now) {
                    Ok(Some(event)) => self.first_words(&event, p.source, &p.socket),
                    Ok(None) => None,
                    Err(v) => {
                        if is_of_other_version(&v) {
                            self.warn_refused(p.source, "another version", &v);
                        } else if v == Violation::Unproven {
                            self.warn_unproven(p.source);
                        } else {
                            tracing::debug!(why = %v, "refused a stranger");
                        }
                        say_last_words(p);
                        return Turned::Away;
                    }
                },
                Ok(Next::Need(n)) => {
                    // Exactly what belongs to the first frame: what follows an ATTACH is payload.
                    let space = p.framer.space();
                    let n = n.min(space.len());
                    match p.socket.recv(space.get_mut(..n).unwrap_or_default()) {
                        Ok(0) => return Turned::Away,
                        Ok(n) => {
                            p.framer.filled(n, now);
                            continue;
                        }
                        Err(Errno::AGAIN) => {
                            p.control.note_received(p.framer.began(), now);
                            return Turned::Waiting;
                        }
                        Err(_) => return Turned::Away,
                    }
                }
                Ok(Next::Grow(n)) => {
                    // At most MAX_HELLO_BYTES and a header: the limit was applied already.
                    if p.framer.grow(vec![0; n]).is_err() {
                        return Turned::Away;
                    }
                    continue;
                }
                Err(e) => {
                    let _ = p.control.malformed(e);
                    say_last_words(p);
                    return Turned::Away;
                }
            };
            let outcome = match first {
                Some(First::Native(claim)) => self.admit(p, claim),
                Some(First::Promised(claim, challenge, must)) => {
                    match p.control.challenge(&challenge, must) {
                        Ok(()) => {
                            p.claim = Some(claim);
                            say_last_words(p);
                            continue;
                        }
                        Err(_) => Err(RejectReason::Busy),
                    }
                }
                Some(First::Proven) => match p.claim.take() {
                    Some(claim) => self.admit(p, Claim { proven: true, ..claim }),
                    None => Err(RejectReason::NotAuthorised),
                },
                Some(First::Refused(why)) => Err(why),
                Some(First::Upstream { rank }) => self.admit_upstream(p, rank),
                Some(First::Attach { rank, token, channel }) => {
                    self.admit_channel(p, rank, &token, channel)
                }
                None => return Turned::Away,
            };
            return match outcome {
                Ok(()) => Turned::Home,
                Err(why) => {
                    if why == RejectReason::NotAuthorised {
                        self.warn_unproven(p.source);
                    } else {
                        tracing::debug!(?why, "refused a stranger");
                    }
                    let _ = p.control.reject(why);
                    say_last_words(p);
                    Turned::Away
                }
            };
        }
    }

    fn first_words(&self, event: &Event<'_>, source: Source, socket: &Socket) -> Option<First> {
        Some(match event {
            Event::HelloReceived(h) => self.claim_of(h, source, socket),
            Event::Proven => First::Proven,
            Event::UpstreamHello { rank } => First::Upstream { rank: *rank },
            Event::AttachReceived { rank, token, channel } => {
                First::Attach { rank: *rank, token: *token, channel: *channel }
            }
            _ => return None,
        })
    }
}

impl Stranger {
    /// When something has to be done about it.
    fn deadline(&self) -> Instant {
        match &self.stage {
            Stage::Silent(_) => self.by,
            Stage::Talking(p) => p.control.next_deadline(),
        }
    }
}

/// Sends what the machine still has to say. A socket that is full this early is not worth waiting
/// for.
pub(crate) fn say_last_words(p: &mut Pending) {
    while let Some(output) = p.control.poll_output() {
        if let Output::Transmit(frame) = output {
            let _ = p.socket.send(frame.as_bytes());
        }
    }
}

fn is_of_other_version(v: &Violation) -> bool {
    matches!(v, Violation::Wire(e) if matches!(e.kind, WireErrorKind::Version { .. }))
}
