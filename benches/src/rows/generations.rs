//! Gets of pages by references that name a generation, against the same gets without.

use std::time::Duration;

use hmc_core::types::{Access, ConnType};
use hmc_std::{Address, Piece, Session};

use crate::context::{Context, Folder};
use crate::error::{Res, text};
use crate::line::Line;
use crate::measure::interleave;
use crate::row::Row;

/// Pages of a list: all of them are 1 MiB, which is copied in the call.
const PAGES: u64 = 256;
const PAGE_BYTES: u64 = 4096;
const LABEL: u64 = 1;
const TIMES: u32 = 8;

/// The row.
pub(crate) struct Generations;

impl Row for Generations {
    fn name(&self) -> &'static str {
        "generations"
    }

    fn unit(&self) -> &'static str {
        "us, ns"
    }

    fn reference(&self) -> &'static str {
        "the same without generations"
    }

    fn target(&self) -> &'static str {
        "5 ns a page"
    }

    fn run(&self, context: &Context) -> Res<Vec<Line>> {
        let folder = Folder::new(&std::env::temp_dir())?;
        let owner = Session::builder(1).uds(folder.path()).buffer(0).start().map_err(text)?;
        let session = Session::builder(0).buffer(0).start().map_err(text)?;
        let address = Address::Uds(folder.path().to_path_buf());
        let limit = Duration::from_secs(10);
        let connect = session.connect(&address).rank(1).over(ConnType::Shm).within(limit);
        let peer = connect.wait().map_err(text)?;
        let back = owner.accept(0).within(limit).wait().map_err(text)?;
        let bytes = PAGES * PAGE_BYTES;
        let memory = |s: &Session| s.memory().allocate(bytes).and_then(|r| r.share()).map_err(text);
        let (theirs, ours) = (memory(&owner)?, memory(&session)?);
        theirs.fill(0, bytes, 7).map_err(text)?;
        ours.fill(0, bytes, 7).map_err(text)?;
        let generations = owner.memory().generations(bytes, PAGE_BYTES).map_err(text)?;
        let window = back.expose_blocks(&theirs, Access::all(), LABEL, &generations);
        let _window = window.map_err(text)?;
        let remote = peer.window(LABEL).wait().map_err(text)?;
        let mut lines = Vec::new();
        for (len, name) in [(64, "64 B of a page"), (PAGE_BYTES, "a page of 4 KiB")] {
            for gets in [true, false] {
                let piece = |page: u64| {
                    // Neighbours in the list are none in the window.
                    let at = page * 37 % PAGES * PAGE_BYTES;
                    Ok(Piece::new(ours.range(page * PAGE_BYTES, len).map_err(text)?, at))
                };
                let plain: Vec<Piece<'_>> = (0..PAGES).map(piece).collect::<Res<_>>()?;
                let named: Vec<Piece<'_>> = plain.iter().map(|p| p.expect(0)).collect();
                let count = context.pick(41, 401);
                let pairs = if gets {
                    let [named, plain] = [named, plain].map(|p| remote.get_list(&p).prepare());
                    let (named, plain) = (named.map_err(text)?, plain.map_err(text)?);
                    let run = |list: &hmc_std::Plan<_>| list.again().wait().map(drop).map_err(text);
                    let ours = || context.delay.timed(TIMES, || run(&named));
                    interleave(count, ours, || context.delay.timed(TIMES, || run(&plain)))?
                } else {
                    let [named, plain] = [named, plain].map(|p| remote.put_list(&p).prepare());
                    let (named, plain) = (named.map_err(text)?, plain.map_err(text)?);
                    let run = |list: &hmc_std::Plan<_>| list.again().wait().map(drop).map_err(text);
                    let ours = || context.delay.timed(TIMES, || run(&named));
                    interleave(count, ours, || context.delay.timed(TIMES, || run(&plain)))?
                };
                let verb = if gets { "get" } else { "put" };
                let pages = PAGES as f64;
                let name = format!("shm {verb} of {name} in a list, with its generation");
                lines.push(Line::latency(&name, pages, &pairs, None).with_interval(&pairs));
                let ns = (pairs.ours_ns() - pairs.reference_ns()) / pages;
                let bound = gets.then_some(5.0);
                lines.push(Line::value(format!("{name}: the comparison"), ns, "ns", bound));
            }
        }
        Ok(lines)
    }
}
