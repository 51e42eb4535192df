//! The subjects of this crate: the reference transport, alone or wrapped, and the simulated NIC.

use hmc_core::limits::MAX_ENDPOINT_BYTES;
use hmc_core::region::{LocalRegion, LocalSlice, WindowDesc};
use hmc_core::transport::{
    DataCloseReason, DataPlane, Fence, Notes as _, PeerWindows as _, Progress as _,
    Registration as _, Target as _, Transport,
};
use hmc_core::types::{Access, MemoryKind};

use super::transport::{IdleLimit, Subject, Support};
use crate::memory::Corruption;
use crate::nic::{Config, ProcessMemory, SimNic};
use crate::reference::{RefPair, RefTransport};

/// The reference transport, or a wrapper of it, as a subject.
#[derive(Debug)]
pub struct RefSubject<W, F> {
    wrap: F,
    built: Option<(W, RefPair)>,
    tags: Vec<u64>,
}

impl<W, F> RefSubject<W, F>
where
    W: Transport + AsMut<RefTransport>,
    F: Fn(RefTransport, RefPair) -> W,
{
    /// A subject whose transport `wrap` makes of a reference transport and its only pair.
    pub const fn new(wrap: F) -> Self {
        Self { wrap, built: None, tags: Vec::new() }
    }

    fn pair(&self) -> RefPair {
        self.built.as_ref().expect("fresh was called").1
    }

    fn reference(&mut self) -> &mut RefTransport {
        self.built.as_mut().expect("fresh was called").0.as_mut()
    }
}

/// Checks the margins around a window.
fn margins(region: LocalRegion, mut read: impl FnMut(u64, &mut [u8])) -> Result<(), String> {
    for offset in [0, region.extent.len().saturating_sub(RefPair::MARGIN)] {
        let mut margin = [0; 96];
        read(offset, &mut margin);
        if let Some(at) = margin.iter().position(|b| *b != RefPair::MARGIN_BYTE) {
            return Err(format!("byte {at} of the margin at {offset} of the target was written"));
        }
    }
    Ok(())
}

fn text_of(damage: Result<(), Corruption>) -> Result<(), String> {
    damage.map_err(|d| d.to_string())
}

impl<W, F> Subject for RefSubject<W, F>
where
    W: Transport + AsMut<RefTransport>,
    F: Fn(RefTransport, RefPair) -> W,
{
    type T = W;

    fn fresh(&mut self, local_len: u64, window_len: u64, access: Access) -> Result<(), String> {
        let mut reference = RefTransport::default();
        let pair = reference.pair(local_len, window_len, access).ok_or("no memory")?;
        self.built = Some(((self.wrap)(reference, pair), pair));
        self.tags.clear();
        Ok(())
    }

    fn transport(&mut self) -> &mut W {
        &mut self.built.as_mut().expect("fresh was called").0
    }

    fn local(&self) -> LocalRegion {
        self.pair().local
    }

    fn remote(&self) -> WindowDesc {
        self.pair().window
    }

    fn write_local(&mut self, offset: u64, bytes: &[u8]) {
        let region = self.pair().local;
        assert!(self.reference().local_mut().write(region, offset, bytes));
    }

    fn read_local(&mut self, offset: u64, out: &mut [u8]) {
        let region = self.pair().local;
        assert!(self.reference().local_mut().read(region, offset, out));
    }

    fn write_remote(&mut self, offset: u64, bytes: &[u8]) {
        let region = self.pair().target;
        assert!(self.reference().target_mut().write(region, RefPair::MARGIN + offset, bytes));
    }

    fn read_remote(&mut self, offset: u64, out: &mut [u8]) {
        let region = self.pair().target;
        assert!(self.reference().target_mut().read(region, RefPair::MARGIN + offset, out));
    }

    fn drive(&mut self) {}

    fn notifications(&mut self) -> Vec<u64> {
        let more = self.reference().take_tags();
        self.tags.extend(more);
        self.tags.clone()
    }

    fn revoke(&mut self) -> Support {
        let window = self.pair().window;
        self.reference().revoke(&window);
        Support::Done
    }

    fn kill_peer(&mut self) -> Support {
        self.reference().kill();
        Support::Done
    }

    fn check(&mut self) -> Result<(), String> {
        let region = self.pair().target;
        let reference = self.reference();
        margins(region, |offset, out| assert!(reference.target_mut().read(region, offset, out)))?;
        text_of(reference.local_mut().check())?;
        text_of(reference.target_mut().check())
    }

    fn idle_limit(&self) -> IdleLimit {
        IdleLimit::VIRTUAL
    }
}

/// How the target of a pair of simulated NICs goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerEnd {
    /// Its process dies.
    Dies,
    /// It closes its data plane.
    Closes,
}

/// A pair of simulated NICs, as a subject. Both are used as a host uses data planes, by the interface alone.
#[derive(Debug)]
pub struct SimSubject {
    config: Config,
    end: PeerEnd,
    built: Option<Built>,
    tags: Vec<u64>,
}

#[derive(Debug)]
struct Built {
    near: SimNic,
    far: SimNic,
    local: ProcessMemory,
    target: ProcessMemory,
    window: WindowDesc,
}

impl SimSubject {
    /// Pairs of that configuration; its seed is also the suite's.
    #[must_use]
    pub const fn new(config: Config, end: PeerEnd) -> Self {
        Self { config, end, built: None, tags: Vec::new() }
    }

    fn built(&self) -> &Built {
        self.built.as_ref().expect("fresh was called")
    }

    fn built_mut(&mut self) -> &mut Built {
        self.built.as_mut().expect("fresh was called")
    }
}

/// Sends the greeting of an end to the other.
fn exchange_wireup<P: DataPlane>(from: &mut P, to: &mut P) -> Result<(), P::Fault> {
    let mut buf = [0; MAX_ENDPOINT_BYTES];
    from.greeting(&mut buf)?.map_or(Ok(()), |note| to.receive_note(note))
}

/// Exposes a range of memory to the peer.
fn expose<P: DataPlane>(
    owner: &mut P,
    peer: &mut P,
    memory: &P::Memory,
    (range, access): (LocalSlice, Access),
    entropy: u64,
) -> Result<WindowDesc, String>
where
    P::Fault: core::fmt::Display,
{
    owner.add_memory(memory);
    let window = owner.windows().expose(range, MemoryKind::Cpu, access, entropy);
    let window = window.map_err(|e| e.to_string())?;
    let mut buf = [0; MAX_ENDPOINT_BYTES];
    let note = owner.open(memory, range, &window, &mut buf).map_err(|e| e.to_string())?;
    note.map_or(Ok(()), |note| peer.receive_note(note)).map_err(|e| e.to_string())?;
    Ok(window)
}

impl Subject for SimSubject {
    type T = SimNic;

    fn fresh(&mut self, local_len: u64, window_len: u64, access: Access) -> Result<(), String> {
        let (mut near, mut far) = SimNic::unconnected_pair(self.config);
        exchange_wireup(&mut near, &mut far).map_err(|e| e.to_string())?;
        exchange_wireup(&mut far, &mut near).map_err(|e| e.to_string())?;
        assert!(near.is_ready() && far.is_ready(), "both greetings have come");
        let local = near.allocate(MemoryKind::Cpu, local_len).ok_or("no memory")?;
        near.add_memory(&local);
        let size = window_len + 2 * RefPair::MARGIN;
        let target = far.allocate(MemoryKind::Cpu, size).ok_or("no memory")?;
        let margin = [RefPair::MARGIN_BYTE; 96];
        for offset in [0, size - RefPair::MARGIN] {
            assert!(far.write(target.region(), offset, &margin), "the process has it");
        }
        let range = target.region().slice(RefPair::MARGIN, window_len);
        let range = range.map_err(|e| e.to_string())?;
        let window = expose(&mut far, &mut near, &target, (range, access), self.config.seed)?;
        self.built = Some(Built { near, far, local, target, window });
        self.tags.clear();
        Ok(())
    }

    fn transport(&mut self) -> &mut SimNic {
        &mut self.built_mut().near
    }

    fn local(&self) -> LocalRegion {
        self.built().local.region()
    }

    fn remote(&self) -> WindowDesc {
        self.built().window
    }

    fn write_local(&mut self, offset: u64, bytes: &[u8]) {
        assert!(self.built().near.write(self.local(), offset, bytes));
    }

    fn read_local(&mut self, offset: u64, out: &mut [u8]) {
        assert!(self.built().near.read(self.local(), offset, out));
    }

    fn write_remote(&mut self, offset: u64, bytes: &[u8]) {
        let Built { far, target, .. } = self.built();
        assert!(far.write(target.region(), RefPair::MARGIN + offset, bytes));
    }

    fn read_remote(&mut self, offset: u64, out: &mut [u8]) {
        let Built { far, target, .. } = self.built();
        assert!(far.read(target.region(), RefPair::MARGIN + offset, out));
    }

    fn drive(&mut self) {
        // Slow network conditions pass in fewer turns, but never in one.
        let by_ns = self.config.faults.delay_max_ns >> 5;
        let far = &mut self.built_mut().far;
        far.advance(by_ns);
        far.poll_peer(false);
    }

    fn notifications(&mut self) -> Vec<u64> {
        let Self { built, tags, .. } = self;
        let far = &mut built.as_mut().expect("fresh was called").far;
        let (had, delivered) = (tags.len(), far.take_delivered());
        tags.extend(std::iter::from_fn(|| far.take_tag()));
        assert_eq!(delivered, tags.len() > had, "a delivery is reported once");
        tags.clone()
    }

    fn revoke(&mut self) -> Support {
        let Built { near, far, window, .. } = self.built_mut();
        let (id, epoch) = (window.window, window.epoch);
        let fence = far.revoke(id, epoch).expect("the window is open");
        let is_unused = near.remove_window(id, epoch);
        assert_ne!(is_unused, near.has_releases(), "a release follows what is in flight");
        while fence == Fence::PeerAck && !far.is_released(id, epoch) {
            far.poll_peer(false);
        }
        if let Some((id, epoch)) = near.next_release() {
            far.receive_release(id, epoch);
        }
        far.free_window(id, epoch);
        Support::Done
    }

    fn kill_peer(&mut self) -> Support {
        let is_death = self.end == PeerEnd::Dies;
        let Built { near, far, .. } = self.built_mut();
        if is_death {
            far.kill();
        } else {
            far.close(DataCloseReason::Silent);
            while !far.is_fenced() {
                far.poll_peer(false);
            }
        }
        assert!(near.peer_has_ended() && near.close_reason() == Some(DataCloseReason::Eof));
        Support::Done
    }

    fn check(&mut self) -> Result<(), String> {
        let Built { near, far, target, .. } = self.built();
        let region = target.region();
        margins(region, |offset, out| assert!(far.read(region, offset, out)))?;
        text_of(near.check())?;
        text_of(far.check())
    }

    fn idle_limit(&self) -> IdleLimit {
        IdleLimit::VIRTUAL
    }

    fn seed(&self) -> u64 {
        self.config.seed
    }
}
