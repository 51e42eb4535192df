//! The sending end: file, registered memory, put, tag; as far ahead as the receiver has slots.

use std::collections::VecDeque;
use std::time::Duration;

use hmc_std::{Done, Op, Peer, Remote, Session, Span, Waited};

use crate::crc::Crc32c;
use crate::failure::{Failure, Result};
use crate::transfer::meter::Meter;
use crate::transfer::protocol::{self, AbortCode, RingInfo, TransferStep};
use crate::transfer::ring::{Layout, NOTE, SlotHeader};
use crate::transfer::source::Source;

/// Puts that may be under way at once: enough for a socket to stay busy.
const IN_FLIGHT: usize = 4;

/// How a transfer ended early.
#[derive(Debug)]
enum EarlyEnd {
    /// Here.
    Ours(AbortCode),
    /// There.
    Theirs(AbortCode),
    /// The link failed.
    Link(hmc_std::Error),
}

impl From<hmc_std::Error> for EarlyEnd {
    fn from(e: hmc_std::Error) -> Self {
        Self::Link(e)
    }
}

impl From<AbortCode> for EarlyEnd {
    fn from(why: AbortCode) -> Self {
        Self::Ours(why)
    }
}

/// Memory of ours for one slot: the note, and the bytes after it.
#[derive(Debug)]
struct Slot {
    note: Span,
    data: Span,
}

#[derive(Debug)]
struct InFlight {
    seq: u64,
    op: Op<Span>,
    /// What of the slot's bytes is not in the put.
    rest: Span,
}

struct Sender<'a> {
    peer: &'a Peer,
    window: Remote,
    layout: Layout,
    timeout: Duration,
    slots: Vec<Option<Slot>>,
    in_flight: VecDeque<InFlight>,
    /// Slots that the receiver has emptied.
    emptied: u64,
    next: u64,
}

/// Sends a file into the ring that the peer exposes, up to the last step of both ends. Gives the
/// CRC-32C of the file.
pub(crate) fn send(
    session: &Session,
    peer: &Peer,
    source: &Source,
    ring: RingInfo,
    meter: &mut Meter,
    timeout: Duration,
) -> Result<u32> {
    let prepared = Sender::new(session, peer, ring, timeout);
    let result = match prepared {
        Ok(mut sender) => sender.run(source, meter),
        // The receiver waits for our last step.
        Err(f) => {
            protocol::send_step(peer, TransferStep::Abort(AbortCode::Other))?;
            let _ = wait_final_step(peer, timeout);
            return Err(f);
        }
    };
    match result {
        Ok(crc) => Ok(crc),
        Err(EarlyEnd::Link(e)) => Err(e.into()),
        Err(EarlyEnd::Ours(why)) => {
            protocol::send_step(peer, TransferStep::Abort(why))?;
            wait_final_step(peer, timeout)?;
            Err(Failure::new(format!("gave up: {why}")))
        }
        Err(EarlyEnd::Theirs(why)) => Err(Failure::new(format!("the receiver gave up: {why}"))),
    }
}

/// Waits for the receiver's last step, whatever it is.
fn wait_final_step(peer: &Peer, timeout: Duration) -> hmc_std::Result<()> {
    while !matches!(
        protocol::recv_step(peer, timeout)?,
        Some(TransferStep::Done(_) | TransferStep::Abort(_))
    ) {}
    Ok(())
}

fn is_over(size: u64, window: &Remote) -> Failure {
    Failure::new(format!("the peer's ring needs {size} bytes, its window has {}", window.len()))
}

impl<'a> Sender<'a> {
    fn new(session: &Session, peer: &'a Peer, ring: RingInfo, timeout: Duration) -> Result<Self> {
        let layout = ring.layout.check()?;
        let window = peer.window(ring.label).within(timeout).wait()?;
        if layout.bytes() > window.len() {
            return Err(is_over(layout.bytes(), &window));
        }
        let region = session.memory().allocate(layout.bytes())?;
        let slot = |i: u32| -> hmc_std::Result<Option<Slot>> {
            let seq = u64::from(i);
            let note = region.take(layout.note_at(seq), NOTE)?;
            let data = region.take(layout.data_at(seq), layout.data_bytes())?;
            Ok(Some(Slot { note, data }))
        };
        let slots = (0..layout.slots).map(slot).collect::<hmc_std::Result<_>>()?;
        let in_flight = VecDeque::with_capacity(IN_FLIGHT);
        Ok(Self { peer, window, layout, timeout, slots, in_flight, emptied: 0, next: 0 })
    }

    fn run(&mut self, source: &Source, meter: &mut Meter) -> std::result::Result<u32, EarlyEnd> {
        let mut sum = Crc32c::default();
        let mut at = 0;
        while let Some((start, end)) = source.next_data(at)? {
            sum.zeros(start - at);
            at = start;
            while at < end {
                let len = self.layout.data_bytes().min(end - at);
                let crc = self.chunk(source, at, len)?;
                sum.append(crc, len);
                at += len;
                meter.reached(at);
            }
        }
        let size = source.meta().size;
        sum.zeros(size - at);
        meter.reached(size);
        while !self.in_flight.is_empty() {
            self.land()?;
        }
        protocol::send_step(self.peer, TransferStep::End(sum.get()))?;
        loop {
            match protocol::recv_step(self.peer, self.timeout)? {
                Some(TransferStep::Emptied(n)) => self.emptied = n,
                Some(TransferStep::Done(crc)) if crc == sum.get() => return Ok(crc),
                Some(TransferStep::Done(_)) => return Err(EarlyEnd::Theirs(AbortCode::Checksum)),
                // The receiver takes END as our last step.
                Some(TransferStep::Abort(why)) => return Err(EarlyEnd::Theirs(why)),
                _ => return Err(EarlyEnd::Theirs(AbortCode::Protocol)),
            }
        }
    }

    /// Reads `len` bytes at `at` of the file and begins to put them. Gives their sum.
    fn chunk(&mut self, source: &Source, at: u64, len: u64) -> std::result::Result<u32, EarlyEnd> {
        let seq = self.next;
        self.land_ready()?;
        while self.in_flight.len() >= IN_FLIGHT.min(self.slots.len()) {
            self.land()?;
        }
        while seq - self.emptied >= u64::from(self.layout.slots) {
            // The receiver empties only slots that were announced.
            while !self.in_flight.is_empty() {
                self.land()?;
            }
            self.recv_emptied()?;
        }
        let Slot { mut note, data } = self.slot(seq)?.take().ok_or(AbortCode::Protocol)?;
        let (mut data, rest) = data.split_at(len).map_err(|_| AbortCode::Protocol)?;
        source.read(at, data.as_mut_slice())?;
        let crc = data.crc32c();
        note.write_at(0, &SlotHeader { offset: at, len, crc }.to_bytes())?;
        let both = note.join(data).map_err(|_| AbortCode::Protocol)?;
        let put = self.window.put(self.layout.note_at(seq), both).within(self.timeout);
        let op = put.start_blocking().map_err(|e| EarlyEnd::Link(e.into()))?;
        self.in_flight.push_back(InFlight { seq, op, rest });
        self.next += 1;
        self.land_ready()?;
        Ok(crc)
    }

    fn slot(&mut self, seq: u64) -> std::result::Result<&mut Option<Slot>, AbortCode> {
        let i = usize::try_from(seq % u64::from(self.layout.slots)).unwrap_or(usize::MAX);
        self.slots.get_mut(i).ok_or(AbortCode::Protocol)
    }

    /// Announces all puts that have ended.
    fn land_ready(&mut self) -> std::result::Result<(), EarlyEnd> {
        let ended = |put: &InFlight| matches!(put.op.wait_for(Duration::ZERO), Waited::Ended(_));
        while self.in_flight.front().is_some_and(ended) {
            self.land()?;
        }
        Ok(())
    }

    /// Waits for the oldest put and announces it.
    fn land(&mut self) -> std::result::Result<(), EarlyEnd> {
        let Some(InFlight { seq, op, rest }) = self.in_flight.pop_front() else { return Ok(()) };
        let Done { memory, .. } = op.wait().map_err(|e| EarlyEnd::Link(e.into()))?;
        let (note, data) = memory.split_at(NOTE).map_err(|_| AbortCode::Protocol)?;
        let data = data.join(rest).map_err(|_| AbortCode::Protocol)?;
        *self.slot(seq)? = Some(Slot { note, data });
        protocol::send_step(self.peer, TransferStep::Full(seq))?;
        Ok(())
    }

    fn recv_emptied(&mut self) -> std::result::Result<(), EarlyEnd> {
        match protocol::recv_step(self.peer, self.timeout)? {
            Some(TransferStep::Emptied(n)) if n > self.emptied && n <= self.next => {
                self.emptied = n;
                Ok(())
            }
            Some(TransferStep::Abort(why)) => {
                // Our last step, so that the receiver stops listening.
                protocol::send_step(self.peer, TransferStep::Abort(why))?;
                Err(EarlyEnd::Theirs(why))
            }
            _ => Err(EarlyEnd::Ours(AbortCode::Protocol)),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may panic")]
mod tests {
    use std::time::Duration;

    use hmc_std::{Message, Session, want};

    use super::wait_final_step;
    use crate::transfer::protocol::{AbortCode, TransferStep, send_step};

    const LONG: Duration = Duration::from_secs(20);

    /// Whoever gives up takes all that the receiver says up to its last step, and nothing behind it.
    #[test]
    fn the_last_step_of_the_receiver_is_waited_for() {
        let receiver = Session::builder(1).buffer(4096).tcp("127.0.0.1:0").start().unwrap();
        let sender = Session::builder(0).buffer(4096).start().unwrap();
        let there =
            sender.connect(receiver.info().listeners.remove(0).address()).rank(1).wait().unwrap();
        let here = receiver.accept(0).within(LONG).wait().unwrap();
        for last in [TransferStep::Done(7), TransferStep::Abort(AbortCode::Other)] {
            send_step(&here, TransferStep::Emptied(3)).unwrap();
            here.send(Message::Tag(42)).wait().unwrap();
            send_step(&here, last).unwrap();
            here.send(Message::Tag(43)).wait().unwrap();
            wait_final_step(&there, LONG).unwrap();
            assert_eq!(there.recv(want::Tag).within(LONG).wait().unwrap(), 43, "{last:?}");
        }
    }
}
