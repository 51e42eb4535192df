//! A session's part in UCX.

use std::sync::{Arc, Mutex};

use hmc_core::types::ConnType;
use hmc_core::wire::advert::{ENDPOINT_UCX, EndpointBlob};
use hmc_core::wire::hello::Features;
use hmc_hw::ucx::memory::Memory;

use super::UcxDataPlane;
use crate::config::{Progress, Ucx as Config};
use crate::driver::Driver;
use crate::error::Result;
use crate::lock::lock;
use crate::memory::{Region, RegionTable};
use crate::transport::data_plane::AnyDataPlane;
use crate::transport::domain::{DataPlaneParams, Domain, PeerFacts, Side};
use crate::transport::released::Released;
use crate::ucx::Plane;

/// UCX, which is loaded at its first use.
pub(crate) struct UcxDomain {
    config: Config,
    progress: Progress,
    driver: Arc<Driver>,
    /// The number of the first worker.
    first_worker: u32,
    plane: Mutex<Option<Arc<Plane>>>,
}

impl UcxDomain {
    /// A session that takes no part yet. Its workers are numbered from `first_worker` on.
    pub(crate) fn new(
        config: &Config,
        progress: Progress,
        driver: &Arc<Driver>,
        first_worker: u32,
    ) -> Self {
        Self {
            config: config.clone(),
            progress,
            driver: Arc::clone(driver),
            first_worker,
            plane: Mutex::default(),
        }
    }

    /// UCX, begun now if it was not.
    fn plane(&self) -> Result<Arc<Plane>> {
        let mut place = lock(&self.plane);
        if let Some(plane) = &*place {
            return Ok(Arc::clone(plane));
        }
        let plane = Plane::start(&self.config, self.progress, &self.driver, self.first_worker)?;
        *place = Some(Arc::clone(&plane));
        Ok(plane)
    }

    /// UCX, if it was begun.
    fn begun(&self) -> Option<Arc<Plane>> {
        lock(&self.plane).clone()
    }

    fn with(
        &self,
        released: &mut Released,
        run: impl FnOnce(&Plane, &mut Vec<Arc<Memory>>) -> bool,
    ) -> bool {
        let Some(plane) = self.begun() else { return false };
        let mut free = Vec::new();
        let busy = run(&plane, &mut free);
        if !free.is_empty() {
            released.push(free);
        }
        busy
    }
}

impl Domain for UcxDomain {
    fn kind(&self) -> ConnType {
        ConnType::Ucx
    }

    fn endpoint(&self) -> u8 {
        ENDPOINT_UCX
    }

    fn side(&self) -> Side {
        Side::Either
    }

    fn is_active(&self) -> bool {
        self.begun().is_some()
    }

    fn activate(&self) -> Result<()> {
        self.plane().map(drop)
    }

    fn announcement(&self) -> Option<EndpointBlob<'static>> {
        self.is_active().then_some(EndpointBlob { kind: ENDPOINT_UCX, bytes: &[] })
    }

    fn features(&self) -> Features {
        let has_nic = self.begun().is_some_and(|plane| plane.has_nic());
        if has_nic { Features::UCX_NIC } else { Features::empty() }
    }

    /// Its lanes of hardware are what makes it worth its trust.
    fn unfit(&self, peer: &PeerFacts<'_>, by_name: bool) -> Option<String> {
        let takes_part = peer.endpoints.contains(&ENDPOINT_UCX);
        let why = match self.begun() {
            _ if by_name && takes_part => return None,
            _ if by_name => "the peer takes no part in UCX: start its session with `ucx()`",
            None => "this session takes no part in it",
            Some(_) if !takes_part => "the peer takes no part in it",
            Some(ours) if ours.has_nic() && peer.features.contains(Features::UCX_NIC) => {
                return None;
            }
            Some(_) => "no RDMA hardware at both ends; ask for it by name",
        };
        Some(why.to_owned())
    }

    fn fit(&self) -> &'static str {
        "RDMA hardware at both ends"
    }

    fn data_plane(&self, params: DataPlaneParams<'_>) -> Result<AnyDataPlane> {
        let (serial, near) = (params.serial, params.near);
        let stream = params.stream(Side::Either);
        let plane = UcxDataPlane::new(stream, self.plane()?, serial, near, &self.driver)?;
        Ok(AnyDataPlane::new(plane))
    }

    /// Memory that UCX's lanes of shared memory map, once the session takes part.
    fn allocate(&self, table: &Arc<RegionTable>, len: u64) -> Option<Result<Region>> {
        Some(self.begun()?.allocate(table, len))
    }

    fn register(&self, region: &Region) -> Result<()> {
        self.plane()?.memory_of(region).map(drop)
    }

    fn registrations(&self) -> u64 {
        self.begun().map_or(0, |plane| plane.registrations())
    }

    fn poll_worker(&self, worker: u32, released: &mut Released) -> bool {
        self.with(released, |plane, free| plane.serve(worker, free))
    }

    fn tick_workers(&self, released: &mut Released) {
        self.with(released, |plane, free| {
            plane.serve_all(free);
            true
        });
    }

    fn progress_workers(&self, released: &mut Released) -> bool {
        self.with(released, Plane::crank_all)
    }

    fn must_poll(&self) -> bool {
        self.begun().is_some_and(|plane| plane.is_restless())
    }

    fn has_leftovers(&self) -> bool {
        self.begun().is_some_and(|plane| plane.has_left())
    }

    fn is_ending(&self) -> bool {
        self.begun().is_some_and(|plane| plane.is_ending())
    }
}
