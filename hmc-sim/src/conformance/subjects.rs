//! The subjects of this crate: the reference transport, alone or wrapped, and the simulated NIC.

use hmc_core::region::{LocalRegion, WindowDesc};
use hmc_core::transport::Transport;
use hmc_core::types::Access;

use super::transport::{IdleLimit, Subject, Support};
use crate::memory::Corruption;
use crate::nic::{Config, SimNic};
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

/// A pair of simulated NICs, as a subject.
#[derive(Debug)]
pub struct SimSubject {
    config: Config,
    built: Option<Built>,
    tags: Vec<u64>,
}

#[derive(Debug)]
struct Built {
    near: SimNic,
    far: SimNic,
    local: LocalRegion,
    target: LocalRegion,
    window: WindowDesc,
}

impl SimSubject {
    /// Pairs of that configuration; its seed is also the suite's.
    #[must_use]
    pub const fn new(config: Config) -> Self {
        Self { config, built: None, tags: Vec::new() }
    }

    fn built(&self) -> &Built {
        self.built.as_ref().expect("fresh was called")
    }
}

impl Subject for SimSubject {
    type T = SimNic;

    fn fresh(&mut self, local_len: u64, window_len: u64, access: Access) -> Result<(), String> {
        let (near, mut far) = SimNic::pair(self.config);
        let local = near.register(local_len).ok_or("no memory")?;
        let (target, window) = far.expose_framed(window_len, access).ok_or("no memory")?;
        self.built = Some(Built { near, far, local, target, window });
        self.tags.clear();
        Ok(())
    }

    fn transport(&mut self) -> &mut SimNic {
        &mut self.built.as_mut().expect("fresh was called").near
    }

    fn local(&self) -> LocalRegion {
        self.built().local
    }

    fn remote(&self) -> WindowDesc {
        self.built().window
    }

    fn write_local(&mut self, offset: u64, bytes: &[u8]) {
        assert!(self.built().near.write(self.built().local, offset, bytes));
    }

    fn read_local(&mut self, offset: u64, out: &mut [u8]) {
        assert!(self.built().near.read(self.built().local, offset, out));
    }

    fn write_remote(&mut self, offset: u64, bytes: &[u8]) {
        let at = RefPair::MARGIN + offset;
        assert!(self.built().far.write(self.built().target, at, bytes));
    }

    fn read_remote(&mut self, offset: u64, out: &mut [u8]) {
        let at = RefPair::MARGIN + offset;
        assert!(self.built().far.read(self.built().target, at, out));
    }

    fn drive(&mut self) {
        // Slow network conditions pass in fewer turns, but never in one.
        self.built().far.advance(100 + (self.config.faults.delay_max_ns >> 5));
    }

    fn notifications(&mut self) -> Vec<u64> {
        while let Some(tag) = self.built().far.take_tag() {
            self.tags.push(tag);
        }
        self.tags.clone()
    }

    fn revoke(&mut self) -> Support {
        let window = self.built().window;
        self.built.as_mut().expect("fresh was called").far.revoke_now(&window);
        Support::Done
    }

    fn kill_peer(&mut self) -> Support {
        self.built().far.kill();
        Support::Done
    }

    fn check(&mut self) -> Result<(), String> {
        let Built { near, far, target, .. } = self.built();
        margins(*target, |offset, out| assert!(far.read(*target, offset, out)))?;
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
