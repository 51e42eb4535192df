//! A whole control connection, driven by a script of what the peer says and what the owner does.

use super::subject::Subject;
use super::wire;
use hmc_core::ctrl::conn::{AcceptConfig, ControlConn, CxxPolicy};
use hmc_core::ctrl::framer::{Framer, Next};
use hmc_core::ctrl::io::{CloseReason, ControlEvent, ControlOutput, Frame};
use hmc_core::ctrl::state::ControlState;
use hmc_core::limits::MAX_HELLO_BYTES;
use hmc_core::time::{Duration, Instant};
use hmc_core::types::{Incarnation, Rank};
use hmc_core::wire::header::Header;
use hmc_core::wire::hello::{Asked, Endpoints, Features, Hello, HostId, LinkToken};
use hmc_core::wire::message::ControlMessage;
use hmc_core::wire::proof::{Challenge, Proof};
use hmc_core::wire::reject::RejectReason;

fn own_hello<'a>() -> Hello<'a> {
    Hello {
        features: Features::empty(),
        job: 5,
        rank: Rank(1),
        incarnation: Incarnation(1),
        nonce: [1; 16],
        expected: None,
        host: HostId([2; 16]),
        heartbeat: Duration::from_millis(500),
        slots: 128,
        asked: &Asked::ANY,
        proves: false,
        endpoints: Endpoints::EMPTY,
    }
}

/// What a control connection did with a stream.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// Events and ends, as text.
    pub events: Vec<String>,
    /// Bytes that the machine sent by itself.
    pub sent: Vec<u8>,
}

/// A control connection with a driver that knows no socket.
pub struct Rig {
    /// The machine.
    pub control: ControlConn,
    framer: Framer<Vec<u8>>,
    subject: Subject,
    now: u64,
    closed: bool,
    /// The wake-up that the driver has set.
    timer: Instant,
    /// What happened so far.
    pub trace: Trace,
}

impl Rig {
    /// A rig of one of six roles.
    pub fn new(role: u8) -> Self {
        Self::of(role, Subject::Real)
    }

    /// The same around a machine that may be broken.
    pub fn of(role: u8, subject: Subject) -> Self {
        let t = Instant::ZERO;
        let acceptor = |cxx| AcceptConfig { rank: Rank(1), job: 5, cxx };
        let control = match role % 6 {
            0 => ControlConn::accepted(&acceptor(CxxPolicy::Refused), t),
            1 => ControlConn::accepted(&acceptor(CxxPolicy::Allowed), t),
            2 => ControlConn::dial(&own_hello(), t).unwrap(),
            3 => ControlConn::dial_cxx(Rank(1), Rank(2), t).unwrap(),
            4 => ControlConn::attach(Rank(1), LinkToken([7; 16]), 2, t).unwrap(),
            _ => ControlConn::dial(&Hello { proves: true, ..own_hello() }, t).unwrap(),
        };
        let framer = Framer::new(vec![0; 16]);
        let mut this = Self {
            control,
            framer,
            subject,
            now: 0,
            closed: false,
            timer: Instant::NEVER,
            trace: Trace::default(),
        };
        this.drain();
        this
    }

    /// What the driver has to do. The broken machine forgets to say that a violation ended it.
    fn poll(&mut self) -> Option<ControlOutput> {
        let out = self.control.poll_output();
        match (self.subject, &out) {
            (Subject::Broken, Some(ControlOutput::Close(CloseReason::Violation(_)))) => None,
            _ => out,
        }
    }

    fn at(&self) -> Instant {
        Instant::from_nanos(self.now)
    }

    fn note(&mut self, what: String) {
        self.trace.events.push(what);
    }

    /// Asks for outputs until there are none, and checks that nothing follows an end.
    pub fn drain(&mut self) {
        for round in 0.. {
            assert!(round < 8, "outputs do not end");
            match self.poll() {
                None => break,
                Some(ControlOutput::Transmit(frame)) => {
                    assert!(!self.closed, "sent after the end");
                    let bytes = frame.as_bytes();
                    let (head, payload) = bytes.split_first_chunk::<8>().unwrap();
                    let header = Header::parse(head, MAX_HELLO_BYTES).unwrap();
                    ControlMessage::parse(header, payload).unwrap();
                    self.trace.sent.extend_from_slice(bytes);
                }
                Some(ControlOutput::WakeAt(at)) => {
                    assert!(!self.closed, "a timer after the end");
                    assert_eq!(at, self.control.next_deadline());
                    self.timer = at;
                }
                Some(ControlOutput::Close(why)) => {
                    assert!(!self.closed, "two ends");
                    assert_eq!(self.control.state(), ControlState::Closed);
                    assert_eq!(self.control.close_reason(), Some(why));
                    self.closed = true;
                    self.note(format!("closed: {why:?}"));
                }
            }
        }
        assert_eq!(self.closed, self.control.state() == ControlState::Closed);
        assert!(self.closed || self.timer <= self.control.next_deadline(), "wakes too late");
        assert!(!self.closed || self.control.next_deadline() == Instant::NEVER);
    }

    /// Hands in bytes as a socket would.
    pub fn feed(&mut self, mut bytes: &[u8]) {
        while !self.closed && self.control.state() != ControlState::Attached {
            let now = self.at();
            match self.framer.next(self.control.frame_limit()) {
                Err(e) => {
                    let v = self.control.malformed(e);
                    self.note(format!("violation: {v:?}"));
                }
                Ok(Next::Frame(header, payload)) => {
                    let got = self.control.receive(header, payload, now);
                    let (text, answer) = match &got {
                        Ok(None) => (None, Answer::Nothing),
                        Ok(Some(e)) => (Some(format!("{e:?}")), Answer::to(e)),
                        Err(v) => (Some(format!("violation: {v:?}")), Answer::Nothing),
                    };
                    if let Some(text) = text {
                        self.note(text);
                    }
                    self.answer(answer);
                    self.control.on_received(self.framer.began(), now);
                }
                Ok(Next::Grow(to)) => {
                    assert_eq!(self.framer.held(), self.framer.capacity());
                    assert!(to > self.framer.capacity() && to <= 2 * self.framer.capacity());
                    self.framer.grow(vec![0; to]).unwrap();
                }
                Ok(Next::Need(n)) => {
                    assert!(n > 0);
                    let took = self.framer.push(bytes, now);
                    if took == 0 {
                        assert!(bytes.is_empty(), "no space although it needs bytes");
                        break;
                    }
                    bytes = &bytes[took..];
                    self.control.on_received(self.framer.began(), now);
                }
            }
            self.drain();
        }
    }

    fn answer(&mut self, answer: Answer) {
        match answer {
            Answer::Nothing => {}
            Answer::Accept => {
                self.control.accept(&own_hello(), LinkToken([9; 16]), self.at()).unwrap()
            }
            Answer::Upstream => self.control.accept_cxx().unwrap(),
            Answer::Attach => self.control.accept_attach().unwrap(),
            Answer::Challenge => {
                let proof = Proof([3; 32]);
                let challenge = Challenge { rank: Rank(1), nonce: [4; 16], proof };
                self.control.challenge(&challenge, proof).unwrap();
            }
            // The secret of these two is that there is none.
            Answer::Prove => {
                self.control.prove(&Proof([3; 32]), Proof([3; 32])).unwrap();
            }
            Answer::Reject => self.control.reject(RejectReason::Duplicate).unwrap(),
        }
    }

    /// One of the owner's own steps.
    pub fn step(&mut self, op: u8, amount: u8) {
        match op % 6 {
            0 => {
                self.now += u64::from(amount) * 20_000_000;
                let now = self.at();
                self.control.tick(now);
                self.timer = Instant::NEVER;
                assert!(self.control.next_deadline() > now, "a deadline that tick did not see");
            }
            1 => {
                let by = self.at().after(Duration::from_millis(u64::from(amount) * 10));
                let _ = self.control.bye(by, self.at());
            }
            2 => self.control.on_sent(self.at()),
            3 => {
                let _ = self.control.reject(RejectReason::ShuttingDown);
            }
            4 if amount > 250 => self.control.abort(),
            5 if amount > 250 => {
                self.control.eof();
            }
            _ => {}
        }
        self.drain();
    }
}

enum Answer {
    Nothing,
    Accept,
    Upstream,
    Attach,
    Challenge,
    Prove,
    Reject,
}

impl Answer {
    /// The owner of the rig refuses odd ranks beyond 100.
    fn to(e: &ControlEvent<'_>) -> Self {
        match e {
            ControlEvent::HelloReceived(h) if h.rank.0 > 100 && h.rank.0 % 2 == 1 => Self::Reject,
            ControlEvent::HelloReceived(h) if h.proves => Self::Challenge,
            ControlEvent::HelloReceived(_) | ControlEvent::Proven => Self::Accept,
            ControlEvent::Challenged(_) => Self::Prove,
            ControlEvent::CxxHello { rank } if rank.0 > 100 => Self::Reject,
            ControlEvent::CxxHello { .. } => Self::Upstream,
            ControlEvent::AttachReceived { channel, .. } if *channel == 0 => Self::Reject,
            ControlEvent::AttachReceived { .. } => Self::Attach,
            _ => Self::Nothing,
        }
    }
}

/// A whole connection: a byte for the role, then steps. A step is a byte `n`: below 128, the next
/// `n + 1` bytes come from the peer; else a step of the owner's, whose amount is the byte after it.
pub fn control_stream(bytes: &[u8], subject: Subject) {
    let _ = trace(bytes, subject);
}

/// What such a connection did.
pub fn trace(bytes: &[u8], subject: Subject) -> Trace {
    let Some((&role, mut rest)) = bytes.split_first() else {
        return Trace::default();
    };
    let mut rig = Rig::of(role, subject);
    while let Some((&n, after)) = rest.split_first() {
        if n < 128 {
            let take = (usize::from(n) + 1).min(after.len());
            rig.feed(&after[..take]);
            rest = &after[take..];
        } else {
            rig.step(n, after.first().copied().unwrap_or(0));
            rest = after.get(1..).unwrap_or(&[]);
        }
    }
    rig.trace
}

/// How a connection ended: the refusal that it sent, and its last event.
pub fn class(bytes: &[u8]) -> String {
    let trace = trace(bytes, Subject::Real);
    let last = trace.events.last().map_or("nothing", String::as_str);
    match wire::last_reject(&trace.sent) {
        Some(why) => format!("{last}; sent {why:?}"),
        None => last.to_owned(),
    }
}

/// The frame of a message that the protocol itself could send.
pub fn frame(m: &ControlMessage<'_>) -> Vec<u8> {
    Frame::of(m).unwrap().as_bytes().to_vec()
}
