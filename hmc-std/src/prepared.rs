//! The two steps of a session's beginning: first its buffer, then its rank, its listeners and its thread.

use std::path::Path;
use std::sync::{Arc, mpsc};

use hmc_core::kinds::{Incarnation, Rank};
use hmc_mem::os::fork::ForkGuard;

use crate::clock;
use crate::communicator::Communicator;
use crate::config::listening_address;
use crate::doors::Doors;
use crate::driver::Driver;
use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::listen::Listener;
use crate::memory::{ConnBuffer, RegionTable};
use crate::session::{Session, SessionBuilder, host_id};
use crate::shared::{Parts, Shared};
use crate::ucx::Plane;

/// A session to be, whose buffer is there already.
///
/// For programs that fill the buffer before they know their rank or whom they talk to, as those of the C++ HMC do. Nobody
/// reaches the buffer before [`Prepared::start`].
#[derive(Debug)]
pub struct Prepared {
    settings: SessionBuilder,
    regions: Arc<RegionTable>,
    driver: Arc<Driver>,
    plane: Option<Arc<Plane>>,
    buffer: ConnBuffer,
    started: bool,
}

impl Prepared {
    pub(crate) fn new(settings: SessionBuilder) -> Result<Self> {
        let config = &settings.config;
        config.check()?;
        let regions = Arc::new(RegionTable::default());
        let driver = Arc::new(Driver::new(config.progress)?);
        let plane = if config.ucx.wanted {
            Some(Plane::start(&config.ucx, config.progress, &driver)?)
        } else {
            None
        };
        let region = match &plane {
            Some(plane) if config.buffer_bytes > 0 => {
                plane.allocate(&regions, config.buffer_bytes)?
            }
            _ => regions.allocate(config.buffer_bytes)?,
        };
        let buffer = ConnBuffer::new(region)?;
        Ok(Self { settings, regions, driver, plane, buffer, started: false })
    }

    /// The buffer that offsets of `put` and `get` will address.
    #[must_use]
    pub fn buffer(&self) -> &ConnBuffer {
        &self.buffer
    }

    /// Another rank than the builder's.
    pub fn set_rank(&mut self, rank: u32) {
        self.settings.config.rank = Rank(rank);
    }

    /// As [`SessionBuilder::tcp`].
    pub fn listen_tcp(&mut self, addr: &str) {
        self.settings.tcp = Some(addr.to_owned());
    }

    /// As [`SessionBuilder::uds`].
    pub fn listen_uds(&mut self, dir: impl AsRef<Path>) {
        self.settings.config.uds_dir = Some(dir.as_ref().to_path_buf());
    }

    /// As [`SessionBuilder::insecure`].
    pub fn allow_insecure(&mut self) {
        self.settings.config.insecure = true;
    }

    /// Starts the session, once: its listeners are up when this returns. After an error the settings can be changed and it
    /// can be tried again.
    ///
    /// # Errors
    /// As [`SessionBuilder::start`]; `InvalidConfig` when it was started before.
    pub fn start(&mut self) -> Result<Session> {
        if self.started {
            return Err(Error::config("this session was started before; prepare another one"));
        }
        let mut config = self.settings.config.clone();
        if let Some(text) = &self.settings.tcp {
            config.tcp = Some(listening_address(text)?);
        }
        config.check()?;
        let driver = &self.driver;
        let doors = Doors::new(driver);
        if let Some(addr) = config.tcp {
            doors.open(Listener::tcp(addr)?)?;
        }
        if let Some(dir) = &config.uds_dir {
            doors.open(Listener::uds(dir, config.rank)?)?;
        }
        let shared = Shared::new(Parts {
            config,
            driver: Arc::clone(driver),
            regions: Arc::clone(&self.regions),
            buffer: self.buffer.clone(),
            doors,
            host: host_id(),
            incarnation: Incarnation(clock::wall_nanos()),
            fork: ForkGuard::new()?,
            plane: self.plane.clone(),
        });
        let (weak, driver) = (Arc::downgrade(&shared), Arc::clone(driver));
        let limit = |what: String| Error::new(ErrorKind::SystemLimit, what);
        let (tell, begun) = mpsc::sync_channel(1);
        let engine = std::thread::Builder::new()
            .name(format!("hmc-{}", shared.config.rank))
            .spawn(move || {
                let engine = Engine::new();
                let _ = tell.send(());
                engine.run(&weak, &driver);
            })
            .map_err(|e| limit(format!("cannot start a thread: {e}")))?;
        // What it allocates at its beginning is behind us: transfers allocate nothing.
        begun.recv().map_err(|_| limit("the session's thread ended at once".to_owned()))?;
        self.started = true;
        Ok(Session::of(Communicator::new(shared, engine)))
    }
}
