//! A gibibyte is registered with UCX once, however often it is used.

use std::time::Duration;

use hmc_core::types::ConnType;

use crate::context::Context;
use crate::error::{Res, text};
use crate::line::Line;
use crate::measure::{median, timed};
use crate::row::Row;

const GIB: u64 = 1 << 30;
const USES: u64 = 10_000;
/// Bytes of a put, from as many places as there are uses.
const PUT_BYTES: u64 = 64;
const LABEL: u64 = 7;

/// The row.
pub(crate) struct UcxRegistration;

impl Row for UcxRegistration {
    fn name(&self) -> &'static str {
        "ucx-registration"
    }

    fn unit(&self) -> &'static str {
        "ns"
    }

    fn reference(&self) -> &'static str {
        "-"
    }

    fn target(&self) -> &'static str {
        "one registration; a hit <= 100 ns"
    }

    fn run(&self, context: &Context) -> Res<Vec<Line>> {
        let mut pair = context.pair(1 << 20, ConnType::Ucx)?;
        pair.helper.request(&format!("window 1 0 {LABEL} 65536 memfd warm"))?;
        let window =
            pair.peer.window(LABEL).within(Duration::from_secs(10)).wait().map_err(text)?;
        let bytes = vec![7u8; usize::try_from(GIB).map_err(text)?];
        let region = pair
            .session
            .memory()
            .register(hmc_std::memory::HeapBytes::from(bytes))
            .map_err(text)?;
        let before = pair.session.stats().ucx_registrations;
        let put = |at: u64| -> Res<()> {
            let span = region.take(at, PUT_BYTES).map_err(text)?;
            window.put(0, span).within(Duration::from_secs(30)).wait().map(drop).map_err(text)
        };
        let first = timed(1, || put(0))?;
        for n in 1..USES {
            put(n * (GIB / USES) / 64 * 64)?;
        }
        let made = pair.session.stats().ucx_registrations - before;
        let mut hits = Vec::new();
        for _ in 0..context.pick(11, 51) {
            hits.push(timed(USES as u32, || {
                pair.session.find_ucx_registration(&region).map_err(text)
            })?);
        }
        let extra = pair.session.stats().ucx_registrations - before - made;
        Ok(vec![
            Line::value("ucx: first put from 1 GiB of plain memory", first / 1e6, "ms", None)
                .noted("with its registration"),
            Line::value("ucx: registrations for 10,000 puts", (made + extra) as f64, "", Some(1.0)),
            Line::value("ucx: a hit in the registrations", median(&hits), "ns", Some(100.0)),
        ])
    }
}
