//! How long it takes until a session listens, and until a peer is connected, on one host.

use std::time::{Duration, Instant};

use hmc_core::kinds::ConnType;
use hmc_std::address::Address;
use hmc_std::session::Session;

use super::Row;
use crate::context::{Context, Folder};
use crate::measure::median;
use crate::report::Line;
use crate::{Res, text};

/// The row.
pub(crate) struct Startup;

impl Row for Startup {
    fn name(&self) -> &'static str {
        "startup"
    }

    fn unit(&self) -> &'static str {
        "ms"
    }

    fn reference(&self) -> &'static str {
        "nothing"
    }

    fn target(&self) -> &'static str {
        "<= 5 ms, <= 1 ms"
    }

    fn run(&self, context: &Context) -> Res<Vec<Line>> {
        let count = context.pick(15, 51);
        let folder = Folder::new(&std::env::temp_dir())?;
        let mut helper = context.helper()?;
        let told = helper.ask(&format!("session 1 {} 1048576", folder.path().display()))?;
        let tcp = Address::Tcp(told.parse().map_err(|e| format!("`{told}`: {e}"))?);
        let uds = Address::Uds(folder.path().to_path_buf());
        let own = Folder::new(&std::env::temp_dir())?;
        let mut starts = Vec::new();
        let mut connects = [Vec::new(), Vec::new()];
        for _ in 0..count {
            for (i, (address, via)) in
                [(&uds, ConnType::Shm), (&tcp, ConnType::Tcp)].into_iter().enumerate()
            {
                let begun = Instant::now();
                let session = Session::builder(0)
                    .uds(own.path())
                    .tcp("127.0.0.1:0")
                    .buffer(1 << 20)
                    .start()
                    .map_err(text)?;
                starts.push(begun.elapsed().as_nanos() as f64 / 1e6);
                let begun = Instant::now();
                session.connect_with(1, address, via, Duration::from_secs(10)).map_err(text)?;
                connects[i].push(begun.elapsed().as_nanos() as f64 / 1e6);
                session.shutdown(Duration::from_secs(10)).map_err(text)?;
            }
        }
        let [shm, tcp] = connects;
        Ok(vec![
            Line::value("session with a 1 MiB buffer, listening", median(&starts), "ms", Some(5.0)),
            Line::value("peer connected over shm", median(&shm), "ms", Some(1.0)),
            Line::value("peer connected over tcp (loopback)", median(&tcp), "ms", Some(1.0)),
        ])
    }
}
