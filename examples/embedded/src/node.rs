//! One end of the control connection: the core's machine, its framer, and the lines.
//!
//! The driver's rule of the core, in full: one input, then `poll_output` until it is empty. Nothing
//! here decides anything; [`ControlConn`] does. A node never waits.

use crate::board::FRAME_BYTES;
use hmc_core::ctrl::conn::{AcceptConfig, ControlConn, CxxPolicy};
use hmc_core::ctrl::framer::{Framer, Next};
use hmc_core::ctrl::io::{CloseReason, CommandError, ControlEvent, ControlOutput, Violation};
use hmc_core::time::{Duration, Instant};
use hmc_core::types::{Incarnation, Rank};
use hmc_core::wire::advert::RegionAdvert;
use hmc_core::wire::cursor::{WireError, Writer};
use hmc_core::wire::hello::{Asked, Endpoints, Features, Hello, HostId, LinkToken};
use hmc_core::wire::message::ControlMessage;

/// The job that both nodes belong to.
const JOB: u64 = 7;
/// The longest message of the owner's that this node sends.
const MESSAGE_BYTES: usize = 128;

/// Why the control connection ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkFault {
    /// The peer broke the protocol.
    Violation(Violation),
    /// This end asked for something that makes no sense now.
    Command(CommandError),
    /// A message does not fit.
    Wire(WireError),
    /// The line holds no more bytes.
    LineFull,
    /// A frame is longer than the buffer.
    FrameTooLong,
    /// The connection closed for another reason than a goodbye.
    Closed(CloseReason),
}

impl core::fmt::Display for LinkFault {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Violation(e) => write!(f, "{e}"),
            Self::Command(e) => write!(f, "{e}"),
            Self::Wire(e) => write!(f, "{e}"),
            Self::LineFull => f.write_str("the line is full"),
            Self::FrameTooLong => write!(f, "a frame is longer than {FRAME_BYTES} bytes"),
            Self::Closed(why) => write!(f, "{why}"),
        }
    }
}

impl core::error::Error for LinkFault {}

/// Bytes on their way in one direction.
#[derive(Debug)]
pub struct Line<'s> {
    storage: &'s mut [u8],
    held: usize,
}

impl<'s> Line<'s> {
    /// An empty line.
    pub const fn new(storage: &'s mut [u8]) -> Self {
        Self { storage, held: 0 }
    }

    /// Appends all of `bytes`.
    ///
    /// # Errors
    /// `LineFull`, and nothing was appended.
    fn write(&mut self, bytes: &[u8]) -> Result<(), LinkFault> {
        let free = self.storage.get_mut(self.held..).unwrap_or(&mut []);
        let Some(free) = free.get_mut(..bytes.len()) else {
            return Err(LinkFault::LineFull);
        };
        for (to, from) in free.iter_mut().zip(bytes) {
            *to = *from;
        }
        self.held = self.held.saturating_add(bytes.len());
        Ok(())
    }

    /// Moves as much as there is space for into a framer.
    fn read_into(&mut self, framer: &mut Framer<&mut [u8]>, now: Instant) -> usize {
        let held = self.storage.get(..self.held).unwrap_or(&[]);
        let taken = framer.push(held, now).min(self.held);
        self.storage.rotate_left(taken.min(self.storage.len()));
        self.held = self.held.saturating_sub(taken);
        taken
    }
}

/// One end.
#[derive(Debug)]
pub struct Node<'s> {
    control: ControlConn,
    framer: Framer<&'s mut [u8]>,
    notes: Notes,
}

/// What the owner of the connection learned.
#[derive(Clone, Copy, Debug, Default)]
struct Notes {
    rank: Rank,
    up: bool,
    hello_received: bool,
    advert: Option<RegionAdvert>,
    tag: Option<u64>,
    peer_bye: bool,
    beats: u32,
    closed: bool,
}

fn hello(rank: Rank, expected: Option<Rank>) -> Hello<'static> {
    Hello {
        features: Features::empty(),
        job: JOB,
        rank,
        incarnation: Incarnation(1),
        // A real board takes these from its entropy source.
        nonce: [0x5A; 16],
        expected,
        host: HostId([1; 16]),
        heartbeat: Duration::from_millis(500),
        slots: 4,
        asked: &Asked::ANY,
        proves: false,
        endpoints: Endpoints::EMPTY,
    }
}

impl<'s> Node<'s> {
    /// The end that speaks first.
    ///
    /// # Errors
    /// `Wire`, when its HELLO does not fit a frame.
    pub fn dial(
        own: Rank,
        peer: Rank,
        storage: &'s mut [u8],
        now: Instant,
    ) -> Result<Self, LinkFault> {
        let control = ControlConn::dial(&hello(own, Some(peer)), now).map_err(LinkFault::Wire)?;
        Ok(Self::new(own, control, storage))
    }

    /// The end that accepts a pending connection.
    pub fn accept(own: Rank, storage: &'s mut [u8], now: Instant) -> Self {
        let acceptor = AcceptConfig { rank: own, job: JOB, cxx: CxxPolicy::Refused };
        Self::new(own, ControlConn::accepted(&acceptor, now), storage)
    }

    fn new(rank: Rank, control: ControlConn, storage: &'s mut [u8]) -> Self {
        Self { control, framer: Framer::new(storage), notes: Notes { rank, ..Notes::default() } }
    }

    /// Whether HELLO was said and accepted.
    #[must_use]
    pub const fn is_up(&self) -> bool {
        self.notes.up
    }

    /// Whether the connection ended in good order.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        self.notes.closed
    }

    /// The last window that the peer described.
    #[must_use]
    pub const fn advert(&self) -> Option<RegionAdvert> {
        self.notes.advert
    }

    /// The last tag that the peer sent.
    #[must_use]
    pub const fn last_tag(&self) -> Option<u64> {
        self.notes.tag
    }

    /// Whether the peer said BYE.
    #[must_use]
    pub const fn received_bye(&self) -> bool {
        self.notes.peer_bye
    }

    /// Heartbeats that this node sent or answered.
    #[must_use]
    pub const fn beats(&self) -> u32 {
        self.notes.beats
    }

    /// Sends a message of the owner's.
    ///
    /// # Errors
    /// `Wire` or `LineFull`; nothing was sent.
    pub fn send(
        &mut self,
        message: &ControlMessage<'_>,
        out: &mut Line<'_>,
        now: Instant,
    ) -> Result<(), LinkFault> {
        let mut bytes = [0; MESSAGE_BYTES];
        let mut w = Writer::new(&mut bytes);
        message.emit(&mut w).map_err(LinkFault::Wire)?;
        let len = usize::try_from(w.written()).unwrap_or(usize::MAX);
        out.write(bytes.get(..len).unwrap_or(&[]))?;
        self.control.on_sent(now);
        Ok(())
    }

    /// Says that this end posts nothing new; the peer has until `by` to say so too.
    ///
    /// # Errors
    /// `Command`, when the connection is not up.
    pub fn bye(&mut self, by: Instant, now: Instant) -> Result<(), LinkFault> {
        self.control.bye(by, now).map_err(LinkFault::Command)
    }

    /// One turn: the timer, then all bytes that came, then all that is to be sent.
    ///
    /// # Errors
    /// The connection is over.
    pub fn work(
        &mut self,
        input: &mut Line<'_>,
        out: &mut Line<'_>,
        now: Instant,
    ) -> Result<(), LinkFault> {
        if self.notes.closed {
            return Ok(());
        }
        if self.control.next_deadline() <= now {
            self.control.tick(now);
        }
        self.flush(out)?;
        while input.read_into(&mut self.framer, now) > 0 {
            while self.receive(now)? {
                self.flush(out)?;
            }
            self.control.on_received(self.framer.began(), now);
        }
        self.flush(out)
    }

    /// Hands one frame to the machine. False when there is no whole one.
    fn receive(&mut self, now: Instant) -> Result<bool, LinkFault> {
        let Self { control, framer, notes } = self;
        match framer.next(control.frame_limit()) {
            Ok(Next::Frame(header, payload)) => {
                if let Some(event) =
                    control.receive(header, payload, now).map_err(LinkFault::Violation)?
                {
                    notes.take(control, event, now).map_err(LinkFault::Command)?;
                }
                Ok(true)
            }
            Ok(Next::Need(_)) => Ok(false),
            // This storage does not grow.
            Ok(Next::Grow(_)) => Err(LinkFault::FrameTooLong),
            Err(e) => Err(LinkFault::Violation(control.malformed(e))),
        }
    }

    /// Does what the machine asks for, until it asks for nothing.
    fn flush(&mut self, out: &mut Line<'_>) -> Result<(), LinkFault> {
        while let Some(output) = self.control.poll_output() {
            match output {
                ControlOutput::Transmit(frame) => {
                    // The first frame that the protocol makes is HELLO or its answer, the
                    // last one is BYE; those between are heartbeats.
                    if self.notes.hello_received {
                        self.notes.beats = self.notes.beats.saturating_add(1);
                    }
                    self.notes.hello_received = true;
                    out.write(frame.as_bytes())?;
                }
                // The loop looks at `next_deadline` in every turn; a timer would be set here.
                ControlOutput::WakeAt(_) => {}
                ControlOutput::Close(CloseReason::Orderly) => self.notes.closed = true,
                ControlOutput::Close(why) => return Err(LinkFault::Closed(why)),
            }
        }
        Ok(())
    }
}

impl Notes {
    /// What the owner does with an event.
    fn take(
        &mut self,
        control: &mut ControlConn,
        event: ControlEvent<'_>,
        now: Instant,
    ) -> Result<(), CommandError> {
        match event {
            ControlEvent::HelloReceived(_) => {
                // Whom to accept is the owner's decision; this one takes everybody of its job.
                control.accept(&hello(self.rank, None), LinkToken([9; 16]), now)?;
                self.up = true;
            }
            ControlEvent::Connected(_) => self.up = true,
            ControlEvent::Deliver(ControlMessage::Advert(advert)) => self.advert = Some(advert),
            ControlEvent::Deliver(ControlMessage::Tag(tag)) => self.tag = Some(tag),
            ControlEvent::PeerBye => self.peer_bye = true,
            // This board has one peer, one connection and no use for the other messages.
            ControlEvent::Deliver(_)
            | ControlEvent::Finished
            | ControlEvent::CxxHello { .. }
            | ControlEvent::Challenged(_)
            | ControlEvent::Proven
            | ControlEvent::AttachReceived { .. }
            | ControlEvent::Attached
            | ControlEvent::Refused(_) => {}
        }
        Ok(())
    }
}
