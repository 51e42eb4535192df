//! Tags that a data plane has delivered.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use hmc_hw::host::TagSink;

/// A bounded list of tags.
#[derive(Clone, Debug)]
pub struct TagList(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    tags: VecDeque<u64>,
    limit: usize,
}

impl Default for TagList {
    /// One that takes all.
    fn default() -> Self {
        Self(Arc::new(Mutex::new(State { tags: VecDeque::new(), limit: usize::MAX })))
    }
}

impl TagList {
    fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// It takes so many from now on.
    pub fn set_limit(&self, limit: usize) {
        self.with(|state| state.limit = limit);
    }

    /// Takes all.
    #[must_use]
    pub fn take_all(&self) -> Vec<u64> {
        self.with(|state| state.tags.drain(..).collect())
    }
}

impl TagSink for TagList {
    fn has_space(&self) -> bool {
        self.with(|state| state.tags.len() < state.limit)
    }

    fn push(&self, tag: u64) {
        self.with(|state| state.tags.push_back(tag));
    }
}
