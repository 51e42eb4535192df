//! The threads of one process: for each pair of sessions an initiator and a target.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use hmc_sim::rng::Rng;
use hmc_std::{Peer, Session};

use super::end::{End, Step};
use super::initiator::drive;
use super::party::{Party, Stop};
use super::settings::SOON;
use super::target::host;
use super::totals::Totals;

/// The threads of one process, and what they found.
pub(super) struct Crew {
    drives: Vec<JoinHandle<()>>,
    hosts: Vec<JoinHandle<()>>,
    stop: Stop,
    faults: Receiver<String>,
}

impl Crew {
    /// Parties of those sessions with `others` each, itself excepted.
    pub(super) fn start(
        sessions: &[Arc<Session>],
        others: impl Iterator<Item = u32> + Clone,
        seed: u64,
        totals: &Arc<Totals>,
    ) -> Self {
        let (tell, faults) = channel();
        let mut crew =
            Self { drives: Vec::new(), hosts: Vec::new(), stop: Stop::default(), faults };
        for session in sessions {
            let own = session.rank().0;
            for other in others.clone().filter(|o| *o != own) {
                let party = Party {
                    session: Arc::clone(session),
                    own,
                    other,
                    seed,
                    stop: crew.stop.clone(),
                    totals: Arc::clone(totals),
                    faults: tell.clone(),
                };
                let [drive, host] = start(&party);
                crew.drives.push(drive);
                crew.hosts.push(host);
            }
        }
        crew
    }

    /// What somebody found within `time`.
    pub(super) fn fault(&self, time: Duration) -> Option<String> {
        self.faults.recv_timeout(time).ok()
    }

    /// Ends the initiators: what they began is answered.
    pub(super) fn rest(&mut self) {
        self.stop.drives.store(true, Ordering::Release);
        self.drives.drain(..).for_each(|thread| drop(thread.join()));
    }

    /// Ends the rest, and says whether anything was found on the way.
    ///
    /// # Errors
    /// What was found.
    pub(super) fn end(mut self) -> Result<(), String> {
        self.rest();
        self.stop.hosts.store(true, Ordering::Release);
        self.hosts.drain(..).for_each(|thread| drop(thread.join()));
        self.faults.try_recv().map_or(Ok(()), Err)
    }
}

/// Both halves, each in a thread of its own, for all lives of the peer until the time is up.
fn start(party: &Party) -> [JoinHandle<()>; 2] {
    let (initiator, target) = (party.clone(), party.clone());
    [
        std::thread::spawn(move || lives(&initiator, 0, Party::drives, drive)),
        std::thread::spawn(move || lives(&target, 1, Party::hosts, host)),
    ]
}

/// The work of one half on each link to the peer, one after the other.
fn lives(
    party: &Party,
    half: u64,
    goes_on: fn(&Party) -> bool,
    work: fn(&Party, &Peer, &mut Rng) -> Step,
) {
    let pair = u64::from(party.own) << 16 | u64::from(party.other) << 8 | half;
    let mut rng = Rng::new(party.seed ^ pair << 32);
    while goes_on(party) {
        let Ok(peer) = party.session.accept(party.other).within(SOON).wait() else { continue };
        Totals::count(&party.totals.lives);
        // A failed assertion of a helper counts as much as a wrong byte.
        let ran = std::panic::AssertUnwindSafe(|| work(party, &peer, &mut rng));
        let why = match std::panic::catch_unwind(ran) {
            Ok(Ok(()) | Err(End::Over)) => continue,
            Ok(Err(End::Wrong(why))) => why,
            Err(_) => "a thread panicked".to_owned(),
        };
        let _ = party.faults.send(format!("rank {} with {}: {why}", party.own, party.other));
        return;
    }
}
