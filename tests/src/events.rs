//! A subscriber of `tracing` that gives the library's events to a test.

use std::fmt;

use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Calls `on_event` with each event of that level and above, on the thread that tells it. Spans are passed over.
pub struct Events<F> {
    level: Level,
    on_event: F,
}

impl<F: Fn(&Event<'_>) + Send + Sync + 'static> Events<F> {
    /// Of which level, and what to do with them.
    pub const fn new(level: Level, on_event: F) -> Self {
        Self { level, on_event }
    }
}

impl<F> fmt::Debug for Events<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").field("level", &self.level).finish_non_exhaustive()
    }
}

impl<F: Fn(&Event<'_>) + Send + Sync + 'static> Subscriber for Events<F> {
    fn enabled(&self, of: &Metadata<'_>) -> bool {
        *of.level() <= self.level
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        (self.on_event)(event);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
