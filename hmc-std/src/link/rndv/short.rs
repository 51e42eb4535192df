//! Messages that begin in one step, while nothing else of the link's messages is concerned. What these calls do a
//! [poll](RndvState::poll) does, too, which looks at everything.

use super::actions::RndvActions;
use super::host::Host;
use super::state::RndvState;

impl RndvState {
    /// Sends the offer of the only message to the peer, if no note comes before it. Whether it is sent.
    pub(super) fn offer_only(&mut self, host: &mut impl Host, after: &mut RndvActions) -> bool {
        let is_only = self.outbound.len() == 1 && self.outgoing.is_empty();
        if is_only {
            self.run_outbound(host, 0, after);
            self.send_notes(host);
        }
        is_only
    }
}
