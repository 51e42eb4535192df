//! Strangers: connections that have not said who they are, and what becomes of them.
//!
//! Until its first frame is whole, a connection costs its descriptor and a line in a table: nothing is received, only looked
//! at. Each has two seconds and half a kilobyte for it. When places run out, the connection that has been silent for longest
//! is closed; its dialer may come again. None of them can delay another.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hmc_core::ctrl::conn::{AcceptConfig, ControlConn, CxxPolicy};
use hmc_core::ctrl::framer::Next;
use hmc_core::ctrl::io::{ControlEvent, Violation};
use hmc_core::limits::HELLO_DEADLINE_NS;
use hmc_core::time::{Duration, Instant};
use hmc_core::wire::cursor::WireErrorKind;
use hmc_core::wire::reject::RejectReason;
use rustix::io::Errno;

use crate::base::clock;
use crate::base::lock::lock;
use crate::io::listener::{Source, tune_tcp};
use crate::io::reactor::Token;
use crate::io::socket::Socket;
use crate::link::ctrl::CtrlState;
use crate::state::inner::Shared;
use crate::state::pending_conns::{
    Claim, First, Pending, Seen, Stage, Stranger, look, say_last_words,
};

/// Connections that are accepted before others get their turn.
const ACCEPTS_A_TURN: usize = 64;

/// What a stranger turned out to be.
enum Turned {
    /// Still unknown.
    Waiting,
    /// Gone, or refused.
    Away,
    /// Connected or attached: no stranger any more.
    Home,
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
        let acceptor = AcceptConfig {
            rank: self.config.rank,
            job: self.config.job,
            cxx: if self.accepts_upstream() { CxxPolicy::Allowed } else { CxxPolicy::Refused },
        };
        let control = ControlConn::accepted(&acceptor, clock::now());
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
                            p.control.on_received(p.framer.began(), now);
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

    fn first_words(
        &self,
        event: &ControlEvent<'_>,
        source: Source,
        socket: &Socket,
    ) -> Option<First> {
        Some(match event {
            ControlEvent::HelloReceived(h) => self.claim_of(h, source, socket),
            ControlEvent::Proven => First::Proven,
            ControlEvent::CxxHello { rank } => First::Upstream { rank: *rank },
            ControlEvent::AttachReceived { rank, token, channel } => {
                First::Attach { rank: *rank, token: *token, channel: *channel }
            }
            _ => return None,
        })
    }
}

fn is_of_other_version(v: &Violation) -> bool {
    matches!(v, Violation::Wire(e) if matches!(e.kind, WireErrorKind::Version { .. }))
}
