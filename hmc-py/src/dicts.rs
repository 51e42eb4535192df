//! Statistics and reports of sessions and peers, as dicts.

use hmc_std::metrics::Stats;
use hmc_std::{Address, ConnType, Explanation, Held, Session};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::time::UNIX_EPOCH;

/// Returns the listeners of a session, in the form that ``connect`` accepts.
pub(crate) fn addresses(session: &Session) -> Vec<String> {
    let mut all: Vec<_> = session.info().listeners.iter().map(|l| l.address().clone()).collect();
    all.sort_by_key(|address| !matches!(address, Address::Tcp(_)));
    all.iter().map(Address::to_string).collect()
}

/// Returns each range of memory that peers may still access.
pub(crate) fn held<'py>(py: Python<'py>, all: &[Held]) -> PyResult<Vec<Bound<'py, PyDict>>> {
    let piece = |h: &Held| {
        let out = PyDict::new(py);
        out.set_item("nbytes", h.bytes)?;
        out.set_item("peer", h.peer.0)?;
        out.set_item("reason", h.reason)?;
        let since = h.since.duration_since(UNIX_EPOCH).unwrap_or_default();
        out.set_item("since", since.as_secs_f64())?;
        Ok(out)
    };
    all.iter().map(piece).collect()
}

/// Counters of a session, and of its peers by rank.
pub(crate) fn stats<'py>(py: Python<'py>, stats: &Stats) -> PyResult<Bound<'py, PyDict>> {
    let out = PyDict::new(py);
    out.set_item("peers_lost", stats.peers_lost)?;
    out.set_item("panics_caught", stats.panics_caught)?;
    out.set_item("strangers_refused", stats.strangers_refused)?;
    out.set_item("quarantined_bytes", stats.quarantined_bytes)?;
    out.set_item("quarantined_links", stats.quarantined_links)?;
    out.set_item("held", held(py, &stats.held)?)?;
    out.set_item("ucx_registrations", stats.ucx_registrations)?;
    let peers = PyDict::new(py);
    for p in &stats.peers {
        let d = PyDict::new(py);
        d.set_item("conn", p.conn.map(ConnType::name))?;
        d.set_item("connected", p.connected)?;
        d.set_item("puts", p.puts)?;
        d.set_item("gets", p.gets)?;
        d.set_item("failures", p.failures)?;
        d.set_item("bytes_out", p.bytes_out)?;
        d.set_item("bytes_in", p.bytes_in)?;
        d.set_item("messages_out", p.messages_out)?;
        d.set_item("messages_in", p.messages_in)?;
        d.set_item("overslept", p.overslept)?;
        d.set_item("in_flight", p.in_flight)?;
        d.set_item("inbox", p.inbox)?;
        d.set_item("exposed_bytes", p.exposed_bytes)?;
        peers.set_item(p.rank.0, d)?;
    }
    out.set_item("peers", peers)?;
    Ok(out)
}

/// Returns the chosen transport, with the reasons.
pub(crate) fn explanation<'py>(py: Python<'py>, e: &Explanation) -> PyResult<Bound<'py, PyDict>> {
    let out = PyDict::new(py);
    out.set_item("conn", e.conn.map(ConnType::name))?;
    let choices: PyResult<Vec<_>> = e
        .choices
        .iter()
        .map(|c| {
            let d = PyDict::new(py);
            d.set_item("conn", c.conn.name())?;
            d.set_item("chosen", c.chosen)?;
            d.set_item("why", c.why.as_str())?;
            Ok(d)
        })
        .collect();
    out.set_item("choices", choices?)?;
    out.set_item("trust", e.trust)?;
    out.set_item("target_checks", e.target_checks)?;
    out.set_item("slower", &e.slower)?;
    out.set_item("text", e.to_string())?;
    Ok(out)
}
