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

#[cfg(test)]
mod tests {
    use super::{Meter, PATIENCE};
    use std::time::Instant;

    /// A meter that was begun before the last of the patience, as on a terminal.
    fn late(wanted: bool) -> Meter {
        let begun = Instant::now().checked_sub(2 * PATIENCE).unwrap();
        Meter { begun, size: 10, name: "a".to_owned(), wanted, bar: None }
    }

    #[test]
    fn a_bar_shows_how_much_of_how_much_until_it_is_dropped() {
        let mut meter = late(true);
        meter.set_size(70);
        meter.reached(30);
        let bar = meter.bar.clone().unwrap();
        assert_eq!((bar.position(), bar.length(), bar.message().as_str()), (30, Some(70), "a"));
        meter.reached(60);
        assert_eq!(bar.position(), 60);
        assert!(!bar.is_finished());
        assert!((1.4..1000.0).contains(&meter.seconds()));
        drop(meter);
        assert!(bar.is_finished());
    }

    #[test]
    fn what_is_not_wanted_or_soon_over_shows_no_bar() {
        let mut unwanted = late(false);
        unwanted.reached(5);
        assert!(unwanted.bar.is_none());
        let mut soon = late(true);
        soon.begun = Instant::now() + 1000 * PATIENCE;
        soon.reached(5);
        assert!(soon.bar.is_none());
        assert!(!Meter::new("a", 5, false).wanted);
    }
}
