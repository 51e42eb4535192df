//! Pending connections: accepted connections whose handshake is not finished.
//!
//! Until its first frame is complete, a connection costs its descriptor and a table entry: its bytes are only
//! peeked, not received. Each has two seconds and 512 bytes for that frame. At the limit, the connection that has
//! been silent longest is closed, and its dialer may retry. No pending connection delays another.

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

use crate::base::lock::lock;
use crate::io::listener::{PeerAddr, tune_tcp};
use crate::io::reactor::Token;
use crate::io::socket::Socket;
use crate::link::ctrl::CtrlState;
use crate::state::inner::SessionInner;
use crate::state::pending_conns::{
    Claim, FirstMessage, Handshaking, PendingConn, Seen, Stage, flush_reject, look,
};

/// Connections that are accepted in one call, before others are served.
const MAX_ACCEPTS: usize = 64;

/// What a pending connection turned out to be.
enum PendingOutcome {
    /// Still unknown.
    Waiting,
    /// Gone, or refused.
    Closed,
    /// Connected or attached: no pending connection any more.
    Done,
}

impl SessionInner {
    /// Accepts the connections that are queued on a listener. `Err` if descriptors are used up: pause.
    pub(crate) fn accept_all(&self, listener: u32) -> std::result::Result<(), Errno> {
        for _ in 0..MAX_ACCEPTS {
            match self.listeners.accept(listener) {
                Ok(Some((fd, source))) => {
                    self.add_pending(fd.into(), source, listener);
                }
                Ok(None) => break,
                // Its descriptor is worth more to the next one.
                Err(Errno::MFILE | Errno::NFILE) if self.evict_pending() => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Registers an accepted connection as pending and returns its number, or closes it with `socket`.
    pub(crate) fn add_pending(
        &self,
        socket: Socket,
        source: PeerAddr,
        listener: u32,
    ) -> Option<u32> {
        if self.is_leaving() {
            // Dropped: closed at once.
            self.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        if lock(&self.pending).len() >= self.places {
            self.evict_pending();
        }
        let id = self.next_pending.fetch_add(1, Ordering::Relaxed);
        if self.reactor.watch_pending(&socket, Token::Pending(id)).is_err() {
            return None;
        }
        let now = self.clock.now();
        let by = now.after(Duration::from_nanos(HELLO_DEADLINE_NS));
        let conn =
            PendingConn { source, listener, by, received: now, stage: Stage::Silent(socket) };
        lock(&self.pending).insert(id, conn);
        Some(id)
    }

    /// Makes space for another: the one that has been silent for longest goes, unless it has just spoken. Whether one went.
    fn evict_pending(&self) -> bool {
        let most_silent = lock(&self.pending).take_most_silent();
        let Some((id, conn)) = most_silent else { return false };
        match conn.stage {
            Stage::Silent(ref socket) if look(socket) == Seen::Whole => {
                self.advance_pending(id, conn)
            }
            Stage::Silent(socket) => self.close_pending(&socket),
            Stage::Talking(p) => self.close_pending(&p.socket),
        }
        true
    }

    /// A pending connection's socket is readable.
    pub(crate) fn poll_pending(&self, id: u32) {
        let conn = lock(&self.pending).remove(id);
        if let Some(conn) = conn {
            self.advance_pending(id, conn);
        }
    }

    /// To be called before it is dropped, which closes it.
    fn close_pending(&self, socket: &Socket) {
        self.reactor.unwatch_socket(socket);
        socket.end_if_local();
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes the next step with a pending connection that was taken out of the table.
    fn advance_pending(&self, id: u32, conn: PendingConn) {
        let PendingConn { source, listener, by, mut received, stage } = conn;
        let mut p = match stage {
            Stage::Talking(p) => p,
            Stage::Silent(socket) => match look(&socket) {
                Seen::Whole => {
                    if let (PeerAddr::Tcp(_), Some(fd)) = (source, socket.fd()) {
                        tune_tcp(fd);
                    }
                    Box::new(self.handshaking(socket, source, listener))
                }
                Seen::End => return self.close_pending(&socket),
                seen @ (Seen::Nothing | Seen::Part) => {
                    if seen == Seen::Part {
                        received = self.clock.now();
                    }
                    let stage = Stage::Silent(socket);
                    let conn = PendingConn { source, listener, by, received, stage };
                    lock(&self.pending).insert(id, conn);
                    return;
                }
            },
        };
        match self.poll_handshake(&mut p) {
            PendingOutcome::Waiting => {
                let (received, stage) = (self.clock.now(), Stage::Talking(p));
                lock(&self.pending)
                    .insert(id, PendingConn { source, listener, by, received, stage });
            }
            PendingOutcome::Closed => self.close_pending(&p.socket),
            PendingOutcome::Done => {}
        }
    }

    fn handshaking(&self, socket: Socket, source: PeerAddr, listener: u32) -> Handshaking {
        let acceptor = AcceptConfig {
            rank: self.config.rank,
            job: self.config.job,
            cxx: if self.accepts_cxx() { CxxPolicy::Allowed } else { CxxPolicy::Refused },
        };
        let control = ControlConn::accepted(&acceptor, self.clock.now());
        Handshaking {
            socket: Arc::new(socket),
            source,
            listener,
            control,
            framer: CtrlState::new_framer(),
            claim: None,
        }
    }

    /// Closes pending connections whose time is up. Returns when that of the next one is.
    pub(crate) fn expire_pending(&self, now: Instant) -> Instant {
        let late = lock(&self.pending).take_late(now);
        for (id, mut conn) in late {
            match &mut conn.stage {
                // It was in time, and we were late.
                Stage::Silent(socket) if look(socket) == Seen::Whole => {
                    self.advance_pending(id, conn)
                }
                Stage::Silent(socket) => self.close_pending(socket),
                Stage::Talking(p) => {
                    p.control.tick(now);
                    if p.control.close_reason().is_some() {
                        self.close_pending(&p.socket);
                    } else {
                        lock(&self.pending).insert(id, conn);
                    }
                }
            }
        }
        lock(&self.pending).next_late()
    }

    fn poll_handshake(&self, p: &mut Handshaking) -> PendingOutcome {
        loop {
            let now = self.clock.now();
            let first = match p.framer.next(p.control.frame_limit()) {
                Ok(Next::Frame(header, payload)) => match p.control.receive(header, payload, now) {
                    Ok(Some(event)) => self.first_message(&event, p.source, &p.socket),
                    Ok(None) => None,
                    Err(v) => {
                        if is_of_other_version(&v) {
                            self.warn_refused(p.source, "another version", &v);
                        } else if v == Violation::Unproven {
                            self.warn_unproven(p.source);
                        } else {
                            tracing::debug!(why = %v, "refused a pending connection");
                        }
                        flush_reject(p);
                        return PendingOutcome::Closed;
                    }
                },
                Ok(Next::Need(n)) => {
                    // Exactly what belongs to the first frame: what follows an ATTACH is payload.
                    let space = p.framer.space();
                    let n = n.min(space.len());
                    match p.socket.recv(space.get_mut(..n).unwrap_or_default()) {
                        Ok(0) => return PendingOutcome::Closed,
                        Ok(n) => {
                            p.framer.filled(n, now);
                            continue;
                        }
                        Err(Errno::AGAIN) => {
                            p.control.on_received(p.framer.began(), now);
                            return PendingOutcome::Waiting;
                        }
                        Err(_) => return PendingOutcome::Closed,
                    }
                }
                Ok(Next::Grow(n)) => {
                    // At most MAX_HELLO_BYTES and a header: the limit was applied already.
                    if p.framer.grow(vec![0; n]).is_err() {
                        return PendingOutcome::Closed;
                    }
                    continue;
                }
                Err(e) => {
                    let _ = p.control.malformed(e);
                    flush_reject(p);
                    return PendingOutcome::Closed;
                }
            };
            let outcome = match first {
                Some(FirstMessage::Native(claim)) => self.admit(p, claim),
                Some(FirstMessage::Promised(claim, challenge, must)) => {
                    match p.control.challenge(&challenge, must) {
                        Ok(()) => {
                            p.claim = Some(claim);
                            flush_reject(p);
                            continue;
                        }
                        Err(_) => Err(RejectReason::Busy),
                    }
                }
                Some(FirstMessage::Proven) => match p.claim.take() {
                    Some(claim) => self.admit(p, Claim { proven: true, ..claim }),
                    None => Err(RejectReason::NotAuthorised),
                },
                Some(FirstMessage::Refused(why)) => Err(why),
                Some(FirstMessage::Cxx { rank }) => self.admit_cxx(p, rank),
                Some(FirstMessage::Attach { rank, token, channel }) => {
                    self.admit_channel(p, rank, &token, channel)
                }
                None => return PendingOutcome::Closed,
            };
            return match outcome {
                Ok(()) => PendingOutcome::Done,
                Err(why) => {
                    if why == RejectReason::NotAuthorised {
                        self.warn_unproven(p.source);
                    } else {
                        tracing::debug!(?why, "refused a pending connection");
                    }
                    let _ = p.control.reject(why);
                    flush_reject(p);
                    PendingOutcome::Closed
                }
            };
        }
    }

    fn first_message(
        &self,
        event: &ControlEvent<'_>,
        source: PeerAddr,
        socket: &Socket,
    ) -> Option<FirstMessage> {
        Some(match event {
            ControlEvent::HelloReceived(h) => self.claim_of(h, source, socket),
            ControlEvent::Proven => FirstMessage::Proven,
            ControlEvent::CxxHello { rank } => FirstMessage::Cxx { rank: *rank },
            ControlEvent::AttachReceived { rank, token, channel } => {
                FirstMessage::Attach { rank: *rank, token: *token, channel: *channel }
            }
            _ => return None,
        })
    }
}

fn is_of_other_version(v: &Violation) -> bool {
    matches!(v, Violation::Wire(e) if matches!(e.kind, WireErrorKind::Version { .. }))
}
