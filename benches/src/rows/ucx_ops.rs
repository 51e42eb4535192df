//! put + poll over UCX's transport: what our own logic costs, with a fake in libucp's place that does almost nothing.
//!
//! Each put is done when a flush after it has passed, and one flush serves all that are posted before it: what a put costs
//! is measured in rounds of sixteen. One alone has a flush alone, which is a second request with a call-back of its own:
//! shown, too. The instructions of the library are counted apart (see [`instructions`]).

use std::sync::Arc;

use hmc_core::place::Place;
use hmc_core::queue::{Transfer, WorkQueue};
use hmc_core::range::Extent;
use hmc_core::region::{Epoch, LocalRegion, RegionKey, WindowDesc, WindowId};
use hmc_core::slots::{Slot, SlotId};
use hmc_core::time::Instant;
use hmc_core::transport::Transport as _;
use hmc_core::types::{Access, MemoryKind};
use hmc_core::work::{CompleteWhen, Completion, Opcode, WorkRequest};
use hmc_hw::ucx::Notify;
use hmc_hw::ucx::context::Context as Ucx;
use hmc_hw::ucx::library::{Library, Search};
use hmc_hw::ucx::memory::Memory;
use hmc_hw::ucx::settings::Settings;
use hmc_hw::ucx::transport::UcxTransport;
use hmc_hw::ucx::worker::Worker;
use hmc_sim::vendor::library::beside;

use crate::allocations;
use crate::context::Context;
use crate::error::{Res, text};
use crate::instructions::{self, Over};
use crate::line::Line;
use crate::row::Row;

const OPS: u32 = 2_000;
const BYTES: usize = 4096;
/// Puts of which one flush serves all.
const AT_ONCE: u32 = 16;
/// Instructions of ours that one put may take.
const BOUND: f64 = 300.0;
const KEY: RegionKey = RegionKey { index: 0, generation: 1 };
const NOBODY: Completion = Completion { op: SlotId { index: 0, generation: 0 }, result: Ok(0) };

struct NoNotify;

impl Notify for NoNotify {
    fn notify(&self) {}
}

/// Two workers of this process over the fake.
struct Pair {
    near: UcxTransport,
    transfer: Transfer,
    _far: Arc<Worker>,
    _there: Arc<Memory>,
}

impl Pair {
    fn new() -> Res<Self> {
        let named = Some(beside("hmc_vendor_ucp")?);
        let library = Library::load(&Search { named, ..Search::default() }).map_err(text)?;
        let ucx = Ucx::new(library, &Settings::default()).map_err(text)?;
        let (ours, far) = (Worker::new(&ucx).map_err(text)?, Worker::new(&ucx).map_err(text)?);
        let here = Arc::new(Memory::allocate(&ucx, BYTES).map_err(text)?);
        let there = Arc::new(Memory::allocate(&ucx, BYTES).map_err(text)?);
        let target = |worker: &Worker| worker.new_am_target(Box::new(NoNotify)).map_err(text);
        let (here_in, there_in) = (target(&ours)?, target(&far)?);
        let info = far.conn_info(&there_in).map_err(text)?;
        let mut near = UcxTransport::new(&ours, &here_in, &info, false).map_err(text)?;
        for _ in 0..1000 {
            near.advance();
        }
        if !near.is_wired_up() {
            return Err("the two workers do not meet".to_owned());
        }
        let extent = Extent::new(BYTES as u64);
        let window = WindowDesc {
            window: WindowId::new(0, 0x5EED << 16),
            epoch: Epoch(1),
            extent,
            access: Access::all(),
            kind: MemoryKind::Cpu,
        };
        let base = there.start().as_ptr().expose_provenance() as u64;
        near.add_remote(window, base, &there.pack().map_err(text)?).map_err(text)?;
        near.add_local(KEY, here);
        let local = LocalRegion { key: KEY, extent, place: Place::HOST };
        let transfer = Transfer {
            opcode: Opcode::Put,
            when: CompleteWhen::Visible,
            local: local.slice(64, 8).map_err(text)?,
            remote: window.slice(128, 8).map_err(text)?,
        };
        Ok(Self { near, transfer, _far: far, _there: there })
    }

    fn work(&self) -> WorkRequest {
        let Transfer { opcode, when, local, remote } = self.transfer;
        WorkRequest { op: SlotId { index: 1, generation: 1 }, opcode, when, local, remote }
    }

    /// Posts and polls, `many` at a time.
    fn rounds(&mut self, count: u32, many: u32) -> Res<()> {
        let work = self.work();
        let mut out = [NOBODY; AT_ONCE as usize];
        let out = out.get_mut(..many as usize).ok_or("too many at once")?;
        for _ in 0..count / many {
            for _ in 0..many {
                let posted = self.near.post(std::hint::black_box(&work));
                posted.map_err(|e| format!("{e:?}"))?;
            }
            let mut done = 0;
            while done < many as usize {
                let n = self.near.poll(out);
                if n == 0 || out[..n].iter().any(|c| c.result != Ok(8)) {
                    return Err("a put failed".to_owned());
                }
                done += n;
            }
        }
        Ok(())
    }
}

/// A work queue over such a transport.
struct QueueOver {
    queue: WorkQueue<UcxTransport, [Slot; 64]>,
    transfer: Transfer,
    _rest: (Arc<Worker>, Arc<Memory>),
}

impl QueueOver {
    fn new() -> Res<Self> {
        let Pair { near, transfer, _far, _there } = Pair::new()?;
        Ok(Self { queue: WorkQueue::new(near, [Slot::FREE; 64]), transfer, _rest: (_far, _there) })
    }

    fn rounds(&mut self, count: u32) -> Res<()> {
        for _ in 0..count {
            let op = self.queue.post(std::hint::black_box(&self.transfer), Instant::NEVER);
            let op = op.map_err(text)?;
            self.queue.progress();
            let outcome = self.queue.try_wait(op).map_err(text)?.ok_or("not done")?;
            if outcome.result != Ok(8) {
                return Err("the put failed".to_owned());
            }
            while self.queue.next_event().is_some() {}
        }
        Ok(())
    }
}

/// Sets a number of the fake's script.
fn set_knob(name: &core::ffi::CStr, value: u64) -> Res<()> {
    // SAFETY: the fake is ours: it runs nothing when it is loaded.
    let library = unsafe { libloading::Library::new(beside("hmc_vendor_ucp")?) }.map_err(text)?;
    // It stays, and its script with it.
    let library = std::mem::ManuallyDrop::new(library);
    type Set = unsafe extern "C" fn(*const core::ffi::c_char, u64) -> i32;
    // SAFETY: `hmc-sim/vendor/ucp/src/script.rs` declares it with this type.
    let set = unsafe { library.get::<Set>("hmc_fake_ucp_set") }.map_err(text)?;
    // SAFETY: a C string.
    match unsafe { set(name.as_ptr(), value) } {
        0 => Ok(()),
        _ => Err("the fake has no such knob".to_owned()),
    }
}

/// Does that many puts, for the count of instructions.
pub(crate) fn run_ops(over: Over, count: u32) -> Res<()> {
    match over {
        Over::UcxAtOnce => {
            let mut pair = Pair::new()?;
            set_knob(c"flush_delay", 0)?;
            pair.rounds(count, 1)
        }
        Over::UcxMapped => {
            set_knob(c"maps", 1)?;
            Pair::new()?.rounds(count, 1)
        }
        Over::UcxLane => QueueOver::new()?.rounds(count),
        Over::UcxMany => Pair::new()?.rounds(count, AT_ONCE),
        _ => Pair::new()?.rounds(count, 1),
    }
}

/// The row.
pub(crate) struct UcxOps;

impl Row for UcxOps {
    fn name(&self) -> &'static str {
        "ucx-ops"
    }

    fn unit(&self) -> &'static str {
        "instructions"
    }

    fn reference(&self) -> &'static str {
        "nothing; those of the fake libucp are counted apart"
    }

    fn target(&self) -> &'static str {
        "<= 300 instructions of ours, 0 allocations"
    }

    fn run(&self, _: &Context) -> Res<Vec<Line>> {
        let mut lines = Vec::new();
        for (over, name, bound) in [
            (Over::UcxMapped, "put + poll into mapped memory", Some(BOUND)),
            (Over::UcxMany, "put + poll, 16 before one flush", Some(BOUND)),
            (Over::UcxAtOnce, "put + its own flush + poll, answered at once", None),
            (Over::UcxTransport, "put + its own flush + poll", None),
            (Over::UcxLane, "put + its own flush + progress + wait by a work queue", None),
        ] {
            let name = format!("fake UCX: our instructions for one {name}");
            lines.push(match instructions::ours(over) {
                Ok((ours, library)) => {
                    Line::value(name, ours, "", bound).noted(format!("the fake: {library:.0} more"))
                }
                Err(why) => Line::missing(name, "", why),
            });
        }
        let (mut pair, mut laned) = (Pair::new()?, QueueOver::new()?);
        set_knob(c"maps", 1)?;
        let mut mapped = Pair::new()?;
        set_knob(c"maps", 0)?;
        mapped.rounds(OPS, 1)?;
        pair.rounds(OPS, 1)?;
        laned.rounds(OPS)?;
        let before = allocations::so_far();
        pair.rounds(OPS, 1)?;
        pair.rounds(OPS, AT_ONCE)?;
        mapped.rounds(OPS, 1)?;
        laned.rounds(OPS)?;
        let name = "fake UCX: allocations in all of these";
        lines.push(Line::value(name, (allocations::so_far() - before) as f64, "", Some(0.0)));
        Ok(lines)
    }
}
