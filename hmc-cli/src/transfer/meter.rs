//! The progress of a transfer: a bar on a terminal once it takes long, nothing elsewhere.

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// What is over before this shows no bar.
const PATIENCE: Duration = Duration::from_millis(700);

/// Counts bytes and shows them.
#[derive(Debug)]
pub(crate) struct Meter {
    begun: Instant,
    size: u64,
    name: String,
    wanted: bool,
    bar: Option<ProgressBar>,
}

impl Meter {
    /// A meter for `size` bytes. Shows nothing unless `wanted` and stderr is a terminal.
    pub(crate) fn new(name: &str, size: u64, wanted: bool) -> Self {
        let wanted = wanted && std::io::stderr().is_terminal();
        Self { begun: Instant::now(), size, name: name.to_owned(), wanted, bar: None }
    }

    /// The size, when it was not known at the start.
    pub(crate) fn set_size(&mut self, size: u64) {
        self.size = size;
    }

    /// All before `at` is done.
    pub(crate) fn reached(&mut self, at: u64) {
        if !self.wanted {
            return;
        }
        if self.bar.is_none() && self.begun.elapsed() > PATIENCE {
            let bar = ProgressBar::new(self.size).with_message(self.name.clone());
            let form = "{msg} {wide_bar} {bytes}/{total_bytes} {binary_bytes_per_sec} {eta}";
            if let Ok(style) = ProgressStyle::with_template(form) {
                bar.set_style(style);
            }
            self.bar = Some(bar);
        }
        if let Some(bar) = &self.bar {
            bar.set_position(at);
        }
    }

    /// Seconds since the start.
    pub(crate) fn seconds(&self) -> f64 {
        self.begun.elapsed().as_secs_f64()
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
