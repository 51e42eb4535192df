//! Orderly shutdown of links.

use std::collections::VecDeque;
use std::sync::Arc;

use hmc_core::time::{Duration, Instant};

use crate::base::clock;
use crate::base::error::Result;
use crate::base::process::forked;
use crate::base::wait_limit::{WaitLimit, WaitStopped};
use crate::link::{Link, LinkState};
use crate::state::inner::SessionInner;

/// So often a wait for one peer looks at the others.
const BETWEEN_LOOKS: Duration = Duration::from_nanos(1_000_000);

/// Ends links in order: waits for what was posted and for the answers to puts that were complete locally, says BYE, waits for the peers' BYE.
pub(crate) fn leave(
    shared: &SessionInner,
    links: &[Arc<Link>],
    mut until: WaitLimit,
) -> Result<()> {
    for link in links {
        link.advance(LinkState::Leaving);
        link.rndv_leave();
    }
    let mut late = None;
    let is_quiet = |l: &Link| l.state() == LinkState::Dead || l.is_rndv_idle() && l.is_idle();
    // A peer that answers nothing delays the goodbye to no other one.
    let mut busy: VecDeque<&Arc<Link>> = links.iter().collect();
    let say_bye = |link: &Link| {
        let quiet = is_quiet(link);
        if quiet {
            link.bye(Instant::NEVER);
        }
        quiet
    };
    busy.retain(|link| !say_bye(link));
    let mut looked = clock::now();
    while let Some(link) = busy.pop_front() {
        let quiet = |l: &Link| {
            let now = clock::now();
            if now.since(looked) >= BETWEEN_LOOKS {
                looked = now;
                busy.retain(|other| !say_bye(other));
            }
            is_quiet(l).then_some(())
        };
        // Messages end by notes on the control connection.
        let by_messages = !link.is_rndv_idle();
        let watch =
            if by_messages { crate::link::WaitScope::Both } else { crate::link::WaitScope::Data };
        if let Err(stop) = link.drive(watch, until, quiet) {
            if stop == WaitStopped::Forked {
                return Err(forked());
            }
            late = late.or(Some((link.peer, stop)));
            // No more waiting: the rest is closed as it is.
            until = WaitLimit::time(clock::now());
        }
        // The wait below ends the link. Were the connection to end by itself at the same time, an answer that did not come
        // could not be told from one that did.
        link.bye(Instant::NEVER);
    }
    for link in links {
        let over =
            shared.wait_for_event(until, |_| (link.state() == LinkState::Dead).then_some(()));
        if let Err(stop) = over {
            if stop == WaitStopped::Forked {
                return Err(forked());
            }
            late = late.or(Some((link.peer, stop)));
            until = WaitLimit::time(clock::now());
        }
        link.close(false, "this session left");
    }
    match late {
        Some((rank, stop)) => Err(stop.error("saying goodbye").with_peer(rank)),
        None => Ok(()),
    }
}
