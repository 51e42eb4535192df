//! Resources of a link on one NIC.

use std::sync::Arc;

use super::conn_info::NicInfo;
use super::domain::VerbsDomain;
use super::fault::VerbsFault;
use super::flush_regions::FlushRegions;
use super::lane::LANE_DEPTH;
use super::nic::Nic;
use super::objects::{CompletionQueue, ProtectionDomain};
use super::select::Port;
use super::shared_regions::SharedRegions;
use super::tags::RECEIVES;

/// A NIC of a link.
#[derive(Debug)]
pub(super) struct LinkNic {
    /// The port, as it was when the link began.
    pub(super) port: Arc<Port>,
    pub(super) pd: Arc<ProtectionDomain>,
    pub(super) cq: Arc<CompletionQueue>,
    pub(super) flush: FlushRegions,
    /// What it shares with other links, the protection domain among it, if they share one.
    pub(super) shared: Option<Arc<SharedRegions>>,
}

impl LinkNic {
    /// For so many queue pairs.
    ///
    /// # Errors
    /// [`VerbsFault`].
    pub(super) fn new(domain: &VerbsDomain, nic: &Nic, lanes: usize) -> Result<Self, VerbsFault> {
        let port = nic.usable_port()?;
        let device = nic.device();
        let shared = domain.shared_on(nic)?;
        let pd = match &shared {
            Some(shared) => Arc::clone(shared.pd()),
            None => ProtectionDomain::new(device)?,
        };
        // One entry for each work request, and for each receive: it cannot overrun, whatever fails.
        let receives = usize::try_from(RECEIVES).unwrap_or(0);
        let entries = LANE_DEPTH.saturating_add(1).saturating_mul(lanes).saturating_add(receives);
        let cq = CompletionQueue::new(device, entries)?;
        let flush = match &shared {
            Some(shared) => shared.flush().clone(),
            None => FlushRegions::new(&pd, domain.flush_source(), domain.flush_sink())?,
        };
        Ok(Self { port, pd, cq, flush, shared })
    }

    /// Its name, for people.
    pub(super) fn name(&self) -> String {
        format!("{}:{}", self.port.device().name(), self.port.number())
    }

    /// What the peer needs to reach it.
    pub(super) fn info(&self, nic: &Nic) -> NicInfo {
        NicInfo {
            end: self.port.end(),
            mtu: self.port.mtu(),
            max_gets: nic.gets_of_peer(),
            lid: self.port.lid(),
            flush_key: self.flush.source.rkey(),
        }
    }
}
