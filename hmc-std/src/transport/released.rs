//! Memory that a data plane no longer uses.

/// Handles, registrations and mappings that a data plane released. They are dropped with it, without a lock: a drop may run code
/// of the application, or take long.
#[derive(Default)]
pub struct Released(Vec<Box<dyn Send>>);

impl Released {
    /// Adds one.
    pub fn push(&mut self, what: impl Send + 'static) {
        self.0.push(Box::new(what));
    }

    /// Adds several.
    pub(crate) fn append(&mut self, mut what: Vec<Box<dyn Send>>) {
        self.0.append(&mut what);
    }
}

impl std::fmt::Debug for Released {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Released").field("count", &self.0.len()).finish()
    }
}
