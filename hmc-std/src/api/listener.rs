//! One place where a session listens.

use std::sync::{Arc, Weak};

use crate::base::address::Address;
use crate::state::inner::SessionInner;

/// A place where a session listens. It is open until [`Listener::close`], or until the session ends: dropping this closes nothing.
#[derive(Clone, Debug)]
pub struct Listener {
    session: Weak<SessionInner>,
    number: u32,
    address: Address,
}

impl Listener {
    pub(super) fn new(shared: &Arc<SessionInner>, number: u32, address: Address) -> Self {
        Self { session: Arc::downgrade(shared), number, address }
    }

    /// The open ones of a session, oldest first. None in a forked child.
    pub(super) fn all(shared: &Arc<SessionInner>) -> Vec<Self> {
        if shared.origin.is_child() {
            return Vec::new();
        }
        let of = |(number, address)| Self::new(shared, number, address);
        shared.listeners.all().into_iter().map(of).collect()
    }

    /// Returns its address, with the port that the system chose for port 0.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Closes it: its port or file is free when this returns, for this session and for others. Links live on. A process that is
    /// about to connect may be refused; peers that lose their links cannot dial this address again. Does nothing if it is
    /// closed, or in a forked child.
    pub fn close(&self) {
        // The listeners of a forked child are its parent's.
        if let Some(shared) = self.session.upgrade()
            && shared.check_process().is_ok()
        {
            shared.listeners.close_one(self.number);
        }
    }
}
