//! A worked embedding of hmc-core: no operating system, no allocator, no thread, no clock.
//!
//! Two nodes in one program, so that it can run anywhere: a control connection over two lines
//! ([`node`]), a bus that copies between two memories ([`board`]), and the walkthrough that every
//! program over HMC makes ([`run`]): say HELLO, learn of a window, put bytes into it, say so, leave.
//! `bin/embedded.rs` runs it on a small stack with an operating system below. In the repository of HMC,
//! `cargo xtask nostd` builds it for a bare-metal target against the package of hmc-core, and links the
//! same library into a program without libc and runs that.
//!
//! To embed the core elsewhere, copy this folder, let `Cargo.toml` name the hmc-core that you use,
//! replace three things and keep the rest:
//!
//! 1. [`board::Bus`], the one implementation of [`Transport`](hmc_core::transport::Transport): its
//!    `post` fills a descriptor of your DMA engine, its `poll` reads the finished ones;
//! 2. [`node::Line`]: a UART, a mailbox, a socket;
//! 3. the time: here a counter, elsewhere a timer's register in nanoseconds.
//!
//! All storage is in [`board::Storage`], whose size is known when it is compiled. Nothing here may
//! allocate, block or panic. Start at [`run`].
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod board;
pub mod node;

use board::{Bus, KEY_HERE, MEMORY_BYTES, Storage};
use hmc_core::place::Place;
use hmc_core::queue::{Transfer, WorkQueue};
use hmc_core::range::{Extent, RangeError};
use hmc_core::region::{LocalRegion, WindowDesc};
use hmc_core::slots::{Outcome, SlotId};
use hmc_core::time::{Duration, Instant};
use hmc_core::transport::PostErrorKind;
use hmc_core::types::{Access, MemoryKind, Rank};
use hmc_core::window::WindowFault;
use hmc_core::wire::advert::{RegionAdvert, WindowBacking, WindowRole};
use hmc_core::wire::message::ControlMessage;
use hmc_core::work::{CompleteWhen, Failure, Opcode};
use node::{Line, Node};

/// Nanoseconds that one turn of the loop stands for.
const TURN: Duration = Duration::from_millis(1);
/// Turns after which the walkthrough has failed.
const MAX_TURNS: u32 = 5_000;
/// The tag that tells the other node where to look.
const TAG: u64 = 0x00C0_FFEE;
/// What is moved.
const CARGO: &[u8] = b"These bytes were put through a window, and got back from it.";

/// Why the walkthrough ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The control connection broke.
    Control(node::LinkFault),
    /// A range was wrong.
    Range(RangeError),
    /// The work queue took no operation.
    Queue(hmc_core::queue::QueueError<PostErrorKind>),
    /// An operation was not known any more.
    Stale(hmc_core::slots::Stale),
    /// A transfer failed.
    Transfer(Failure),
    /// No place for a window.
    Expose(hmc_core::window::ExposeError),
    /// Nothing happened for too long.
    TooManyTurns,
    /// The bytes that came back are not those that were sent.
    WrongBytes,
    /// An access that must be refused was not.
    NotRefused,
}

impl core::fmt::Display for Fault {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Control(e) => write!(f, "control connection: {e}"),
            Self::Range(e) => write!(f, "{e}"),
            Self::Queue(e) => write!(f, "{e}"),
            Self::Stale(e) => write!(f, "{e}"),
            Self::Transfer(e) => write!(f, "{e}"),
            Self::Expose(e) => write!(f, "{e}"),
            Self::TooManyTurns => write!(f, "no end after {MAX_TURNS} turns"),
            Self::WrongBytes => f.write_str("the bytes that came back are other bytes"),
            Self::NotRefused => f.write_str("an access outside its rights was not refused"),
        }
    }
}

impl core::error::Error for Fault {}

/// What the walkthrough did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Bytes put and got back.
    pub bytes: u64,
    /// Heartbeats that this node answered or sent.
    pub beats: u32,
    /// Turns of the loop.
    pub turns: u32,
}

/// The two ends of the control connection, their lines, and the time.
struct Link<'s> {
    here: Node<'s>,
    there: Node<'s>,
    to_there: Line<'s>,
    to_here: Line<'s>,
    now: Instant,
    turns: u32,
}

impl Link<'_> {
    /// One turn of the main loop: both nodes look at their timers, read, answer and write.
    fn poll(&mut self) -> Result<(), Fault> {
        self.now = self.now.after(TURN);
        self.turns = self.turns.saturating_add(1);
        if self.turns > MAX_TURNS {
            return Err(Fault::TooManyTurns);
        }
        self.here.work(&mut self.to_here, &mut self.to_there, self.now).map_err(Fault::Control)?;
        self.there.work(&mut self.to_there, &mut self.to_here, self.now).map_err(Fault::Control)
    }

    fn poll_until(&mut self, ready: impl Fn(&Self) -> bool) -> Result<(), Fault> {
        while !ready(self) {
            self.poll()?;
        }
        Ok(())
    }
}

/// Runs the whole walkthrough on the storage that the caller supplies.
///
/// # Errors
/// [`Fault`] says where it ended.
pub fn run(storage: &mut Storage) -> Result<Report, Fault> {
    let start = Instant::ZERO;
    let mut link = Link {
        here: Node::dial(Rank(0), Rank(1), &mut storage.frames_here, start)
            .map_err(Fault::Control)?,
        there: Node::accept(Rank(1), &mut storage.frames_there, start),
        to_there: Line::new(&mut storage.line_to_there),
        to_here: Line::new(&mut storage.line_to_here),
        now: start,
        turns: 0,
    };
    link.poll_until(|l| l.here.is_up() && l.there.is_up())?;

    // The other node opens its memory for writing and reading, and says so over the control line:
    // the name of a window travels nowhere else.
    let mut bus = Bus::new(&mut storage.here, &mut storage.there, &mut storage.windows);
    let all = bus.memory_there().slice(0, MEMORY_BYTES).map_err(Fault::Range)?;
    // A real board takes these bits from its entropy source: names must not be guessable.
    let entropy = 0x5EED_0123_4567_89AB;
    let region = bus
        .windows()
        .expose(all, MemoryKind::Cpu, Access::WRITE | Access::READ, entropy)
        .map_err(Fault::Expose)?;
    let advert =
        RegionAdvert { region, backing: WindowBacking::Process, role: WindowRole::Default };
    let now = link.now;
    link.there
        .send(&ControlMessage::Advert(advert), &mut link.to_here, now)
        .map_err(Fault::Control)?;
    link.poll_until(|l| l.here.advert().is_some())?;
    let Some(advert) = link.here.advert() else {
        return Err(Fault::TooManyTurns);
    };

    let mut queue = WorkQueue::new(bus, &mut storage.slots[..]);
    let bytes = transfer(&mut queue, &mut link, &advert.region)?;

    // The bytes are visible at the target, so whoever gets the tag may read them.
    let now = link.now;
    link.here.send(&ControlMessage::Tag(TAG), &mut link.to_there, now).map_err(Fault::Control)?;
    link.poll_until(|l| l.there.last_tag() == Some(TAG))?;
    if !queue.transport().memory_there_starts_with(CARGO) {
        return Err(Fault::WrongBytes);
    }

    // Nobody speaks for a while: the heartbeats do.
    link.poll_until(|l| l.here.beats() > 0 && l.there.beats() > 0)?;
    let beats = link.here.beats();

    // Goodbye: both ends, in order, then the connection closes.
    let by = link.now.after(Duration::from_millis(1_000));
    link.here.bye(by, link.now).map_err(Fault::Control)?;
    link.poll_until(|l| l.there.received_bye())?;
    link.there.bye(by, link.now).map_err(Fault::Control)?;
    link.poll_until(|l| l.here.is_closed() && l.there.is_closed())?;
    Ok(Report { bytes, beats, turns: link.turns })
}

type BoardQueue<'s> = WorkQueue<Bus<'s>, &'s mut [hmc_core::slots::Slot]>;

/// Puts the cargo, gets it back to another place, compares, and tries what is not allowed.
fn transfer(
    queue: &mut BoardQueue<'_>,
    link: &mut Link<'_>,
    window: &WindowDesc,
) -> Result<u64, Fault> {
    let here = LocalRegion { key: KEY_HERE, extent: Extent::new(MEMORY_BYTES), place: Place::HOST };
    let len = u64::try_from(CARGO.len()).unwrap_or(u64::MAX);
    queue.transport_mut().load(CARGO);
    let put = Transfer {
        opcode: Opcode::Put,
        when: CompleteWhen::Visible,
        local: here.slice(0, len).map_err(Fault::Range)?,
        remote: window.slice(0, len).map_err(Fault::Range)?,
    };
    let op = post(queue, &put, link.now)?;
    let moved = wait(queue, link, op)?.result.map_err(Fault::Transfer)?;

    // Back to the second half of this node's memory, so that the comparison means something.
    let half = MEMORY_BYTES.div_ceil(2);
    let get = Transfer {
        opcode: Opcode::Get,
        local: here.slice(half, len).map_err(Fault::Range)?,
        ..put
    };
    let op = post(queue, &get, link.now)?;
    let back = wait(queue, link, op)?.result.map_err(Fault::Transfer)?;
    if !queue.transport().halves_agree(CARGO.len()) {
        return Err(Fault::WrongBytes);
    }

    // A range outside the window has no `WindowSlice`: it is refused before anything is posted.
    if window.slice(MEMORY_BYTES, 1).is_ok() {
        return Err(Fault::NotRefused);
    }
    // A stale description is refused by the target.
    let mut stale = get;
    stale.remote.epoch.0 = stale.remote.epoch.0.wrapping_add(1);
    let op = post(queue, &stale, link.now)?;
    match wait(queue, link, op)?.result {
        Err(Failure::Window(WindowFault::StaleEpoch)) => Ok(moved.saturating_add(back)),
        Ok(_) | Err(_) => Err(Fault::NotRefused),
    }
}

fn post(queue: &mut BoardQueue<'_>, t: &Transfer, now: Instant) -> Result<SlotId, Fault> {
    queue.post(t, now.after(Duration::from_millis(100))).map_err(Fault::Queue)
}

/// The wait of a program without threads: progress, deadlines, and the other business, in turns.
fn wait(queue: &mut BoardQueue<'_>, link: &mut Link<'_>, op: SlotId) -> Result<Outcome, Fault> {
    loop {
        queue.progress();
        queue.expire(link.now);
        // A larger program lets go of an operation's memory at its `fenced` event.
        while queue.next_event().is_some() {}
        if let Some(outcome) = queue.try_wait(op).map_err(Fault::Stale)? {
            return Ok(outcome);
        }
        link.poll()?;
    }
}

#[cfg(test)]
mod tests {
    use super::{CARGO, board::Storage, run};

    #[test]
    fn the_walkthrough_ends_well_and_can_be_made_again_on_the_same_storage() {
        let mut storage = Storage::new();
        for _ in 0..2 {
            let report = run(&mut storage);
            let both_ways = u64::try_from(CARGO.len()).ok().map(|n| n.saturating_mul(2));
            assert_eq!(report.ok().map(|r| r.bytes), both_ways, "{report:?}");
        }
    }
}
