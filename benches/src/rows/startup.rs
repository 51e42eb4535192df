//! How long it takes until a session listens, and until a peer is connected, on one host.

use std::time::Duration;

use hmc_core::types::ConnType;
use hmc_std::address::Address;
use hmc_std::session::Session;

use crate::context::{Context, Folder};
use crate::error::{Res, text};
use crate::line::Line;
use crate::measure::{alone, timed};
use crate::row::Row;

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
        let told = helper.request(&format!("session 1 {} 1048576", folder.path().display()))?;
        let tcp: Address = told.parse().map_err(text)?;
        let uds = Address::Uds(folder.path().to_path_buf());
        let own = Folder::new(&std::env::temp_dir())?;
        let start = || {
            let builder = Session::builder(0).uds(own.path()).tcp("127.0.0.1:0").buffer(1 << 20);
            builder.start().map_err(text)
        };
        let end = |session: Session| {
            session.shutdown().within(Duration::from_secs(10)).wait().map_err(text)
        };
        let starts = alone(2 * count, || {
            let mut session = None;
            let ns = timed(1, || start().map(|started| session = Some(started)))?;
            session.map(end).transpose()?;
            Ok(ns)
        })?;
        let connects = |address: &Address, via| {
            alone(count, || {
                let session = start()?;
                let limit = Duration::from_secs(10);
                let connect = || {
                    session
                        .connect(address)
                        .rank(1)
                        .over(via)
                        .within(limit)
                        .wait()
                        .map(drop)
                        .map_err(text)
                };
                let ns = timed(1, connect)?;
                end(session)?;
                Ok(ns)
            })
        };
        let (shm, tcp) = (connects(&uds, ConnType::Shm)?, connects(&tcp, ConnType::Tcp)?);
        let ms = ("ms", 1e6);
        Ok(vec![
            Line::alone("session with a 1 MiB buffer, listening", &starts, ms, Some(5.0)),
            Line::alone("peer connected over shm", &shm, ms, Some(1.0)),
            Line::alone("peer connected over tcp (loopback)", &tcp, ms, Some(1.0)),
        ])
    }
}
