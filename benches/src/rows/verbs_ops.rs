//! put + poll by a data plane over RDMA verbs: what our own logic costs, with a fake in libibverbs' place.
//!
//! Counted are the instructions of this program from the post of a put until its completion is taken: `VerbsDataPlane::post` and `poll`, the loop
//! around them included. Those of the fake library are counted apart (see [`instructions`]). A visible put is a write and the flush behind it,
//! and one completion; a local put is a write and its completion.

use std::sync::Arc;

use hmc_core::limits::MAX_ENDPOINT_BYTES;
use hmc_core::place::Place;
use hmc_core::range::Extent;
use hmc_core::region::{LocalRegion, RegionKey};
use hmc_core::slots::SlotId;
use hmc_core::time::Instant;
use hmc_core::transport::{
    DataPlane as _, Note, Notes as _, Registration as _, Target as _, Transport as _,
};
use hmc_core::types::{Access, MemoryKind};
use hmc_core::work::{CompleteWhen, Completion, Opcode, WorkRequest};
use hmc_hw::host::{Event, Host, Notify, TagSink, WatchError};
use hmc_hw::verbs::data_plane::VerbsDataPlane;
use hmc_hw::verbs::domain::{DomainOptions, VerbsDomain};
use hmc_hw::verbs::library::{Library, Search};
use hmc_hw::verbs::select::{Port, Selector};
use hmc_mem::os::memfd::Mapping;
use hmc_mem::registered::Registered;
use hmc_mem::shared::SharedBytes;
use hmc_sim::vendor::library::beside;

use crate::allocations;
use crate::context::Context;
use crate::error::{Res, text};
use crate::instructions::{self, Over};
use crate::line::Line;
use crate::row::Row;

const OPS: u32 = 2_000;
const BYTES: u64 = 4096;
/// Puts of which few flushes serve all.
const AT_ONCE: u32 = 16;
/// Instructions of ours that one put may take.
const BOUND: f64 = 250.0;
const KEY: RegionKey = RegionKey { index: 0, generation: 1 };
const NOBODY: Completion = Completion { op: SlotId { index: 0, generation: 0 }, result: Ok(0) };

/// A host without a thread: callers look at completions.
struct NoHost;

impl Host for NoHost {
    fn now(&self) -> Instant {
        Instant::ZERO
    }

    fn watch(&self, _: u32, _: std::os::fd::BorrowedFd<'_>) -> Result<(), WatchError> {
        Ok(())
    }

    fn unwatch(&self, _: std::os::fd::BorrowedFd<'_>) {}

    fn report(&self, _: Event<'_>) {}
}

struct NoNotify;

impl Notify for NoNotify {
    fn notify(&self) {}
}

struct NoTags;

impl TagSink for NoTags {
    fn has_space(&self) -> bool {
        true
    }

    fn push(&self, _: u64) {}
}

/// Memory of a data plane.
#[derive(Clone, Debug)]
struct Pages(Arc<Mapping>);

// SAFETY: each handle keeps the mapping, which never moves; nobody but the fake accesses it.
unsafe impl Registered for Pages {
    fn local(&self) -> LocalRegion {
        LocalRegion { key: KEY, extent: Extent::new(BYTES), place: Place::HOST }
    }

    unsafe fn bytes(&self) -> SharedBytes<'_> {
        self.0.bytes()
    }

    fn note_pinned(&self) {}

    fn note_cached(&self, _: bool) {}

    fn is_only_cached(&self) -> bool {
        false
    }
}

/// One end, with its memory.
struct End(VerbsDataPlane<Pages>, Pages);

impl End {
    fn new(domain: &Arc<VerbsDomain>, serial: u32) -> Res<Self> {
        let (notify, tags) = (Box::new(NoNotify), Box::new(NoTags));
        let mut plane = VerbsDataPlane::new(domain, serial, 1, notify, tags).map_err(text)?;
        let memory = Pages(Arc::new(Mapping::create(BYTES).map_err(text)?));
        plane.add_memory(&memory);
        Ok(Self(plane, memory))
    }

    /// Tells `other` what its data plane has for it.
    fn tell(&mut self, other: &mut Self, is_first: bool) -> Res<()> {
        let mut buf = [0; MAX_ENDPOINT_BYTES];
        let note = if is_first {
            self.0.greeting(&mut buf).map_err(text)?
        } else {
            self.0.next_note(&mut buf)
        };
        other.0.receive_note(note.ok_or("nothing to tell")?).map_err(text)
    }
}

/// Two connected ends of this process over the fake.
struct Pair {
    near: End,
    work: WorkRequest,
    _far: End,
}

impl Pair {
    fn new() -> Res<Self> {
        let named = Some(beside("hmc_vendor_ibverbs")?);
        let library = Library::load(&Search { named }).map_err(text)?;
        let port = Port::open(library, &Selector::default()).map_err(text)?;
        let options = DomainOptions {
            lanes: 1,
            chosen: "",
            events_worker: 1,
            first_worker: 2,
            is_manual: true,
        };
        let domain = VerbsDomain::new(vec![port], Arc::new(NoHost), options).map_err(text)?;
        let (mut near, mut far) = (End::new(&domain, 1)?, End::new(&domain, 2)?);
        for is_first in [true, false] {
            near.tell(&mut far, is_first)?;
            far.tell(&mut near, is_first)?;
        }
        let slice = far.1.local().slice(128, 8).map_err(text)?;
        let window = far.0.windows().expose(slice, MemoryKind::Cpu, Access::all(), 1);
        let window = window.map_err(text)?;
        let mut buf = [0; MAX_ENDPOINT_BYTES];
        let note = far.0.open(&far.1, slice, &window, &mut buf).map_err(text)?;
        let Note { kind, bytes } = note.ok_or("a window without a key")?;
        near.0.receive_note(Note { kind, bytes }).map_err(text)?;
        let work = WorkRequest {
            op: SlotId { index: 1, generation: 1 },
            opcode: Opcode::Put,
            when: CompleteWhen::Visible,
            local: near.1.local().slice(64, 8).map_err(text)?,
            remote: window.slice(0, 8).map_err(text)?,
        };
        Ok(Self { near, work, _far: far })
    }

    /// Posts and polls as `over` says.
    fn rounds(&mut self, over: Over, count: u32) -> Res<()> {
        let many = if over == Over::VerbsMany { AT_ONCE } else { 1 };
        self.work.when = match over {
            Over::VerbsLocal => CompleteWhen::Local,
            _ => CompleteWhen::Visible,
        };
        let mut out = [NOBODY; AT_ONCE as usize];
        let plane = &mut self.near.0;
        let before = plane.bytes_moved().0;
        for _ in 0..count / many {
            for _ in 0..many {
                let posted = plane.post(std::hint::black_box(&self.work));
                posted.map_err(|e| format!("{e:?}"))?;
            }
            let mut done = 0;
            while done < many as usize {
                done += plane.poll(&mut out);
            }
        }
        // One that has failed has moved nothing.
        if plane.bytes_moved().0 - before != u64::from(count / many * many) * 8 {
            return Err("a put failed".to_owned());
        }
        Ok(())
    }
}

/// Does that many puts, for the count of instructions.
pub(crate) fn run_ops(over: Over, count: u32) -> Res<()> {
    Pair::new()?.rounds(over, count)
}

/// The row.
pub(crate) struct VerbsOps;

impl Row for VerbsOps {
    fn name(&self) -> &'static str {
        "verbs-ops"
    }

    fn unit(&self) -> &'static str {
        "instructions"
    }

    fn reference(&self) -> &'static str {
        "nothing; those of the fake libibverbs are counted apart"
    }

    fn target(&self) -> &'static str {
        "<= 250 instructions of ours, 0 allocations"
    }

    fn run(&self, _: &Context) -> Res<Vec<Line>> {
        let mut lines = Vec::new();
        let all = [
            (Over::VerbsTransport, "visible put + poll"),
            (Over::VerbsLocal, "local put + poll"),
            (Over::VerbsMany, "visible put + poll, 16 before a poll"),
        ];
        for (over, name) in all {
            let name = format!("fake verbs: our instructions for one {name}");
            lines.push(match instructions::ours(over) {
                Ok((ours, library)) => Line::value(name, ours, "", Some(BOUND))
                    .noted(format!("the fake: {library:.0} more")),
                Err(why) => Line::missing(name, "", why),
            });
        }
        let mut pair = Pair::new()?;
        pair.rounds(Over::VerbsTransport, OPS)?;
        let before = allocations::so_far();
        all.iter().try_for_each(|(over, _)| pair.rounds(*over, OPS))?;
        let count = (allocations::so_far() - before) as f64;
        let name = "fake verbs: allocations in all of these";
        lines.push(Line::value(name, count, "", Some(0.0)));
        Ok(lines)
    }
}
