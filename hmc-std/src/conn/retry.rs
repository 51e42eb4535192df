//! Retries a dial whose listener closed the connection before a reply: it may have had no space. A dial continues
//! until its deadline; its error then names other possible causes.

use hmc_core::time::{Duration, Instant};

use crate::base::error::{Error, ErrorKind};

/// The first pause, in milliseconds; each is twice as long as the one before.
const FIRST_PAUSE_MS: u64 = 10;
/// The longest pause, in milliseconds.
const LONGEST_PAUSE_MS: u64 = 320;

/// Hang-ups, two thirds of a second in all, after which another way is better.
const MANY: u32 = 6;

/// How often a peer hung up on one dial.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Retries {
    count: u32,
}

impl Retries {
    /// Whether that is why a dial failed, so that it is worth another try.
    pub(crate) fn is_worth_it(e: &Error) -> bool {
        e.kind() == ErrorKind::PeerDead
    }

    /// It happened once more, now. When to try again.
    pub(crate) fn next(&mut self, now: Instant) -> Instant {
        let pause = FIRST_PAUSE_MS.checked_shl(self.count).unwrap_or(LONGEST_PAUSE_MS);
        self.count = self.count.saturating_add(1);
        now.after(Duration::from_millis(pause.min(LONGEST_PAUSE_MS)))
    }

    /// How often it happened.
    pub(crate) fn count(self) -> u32 {
        self.count
    }

    /// Whether another way is to be tried, if there is one.
    pub(crate) fn is_hopeless(self) -> bool {
        self.count >= MANY
    }

    /// The error of a dial whose deadline has come.
    pub(crate) fn deadline(self) -> Error {
        let attempts = match self.count {
            0 => return Error::deadline("connecting"),
            1 => "the one attempt was closed before an answer".to_owned(),
            n => format!("{n} attempts, each closed before an answer"),
        };
        Error::deadline(format_args!(
            "connector: {attempts}; a process that listens there has no space for more connections, or speaks another protocol \
             (`connect_upstream` connects to the C++ HMC)"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::Retries;
    use hmc_core::time::Instant;

    #[test]
    fn pauses_double_up_to_a_third_of_a_second() {
        let mut retries = Retries::default();
        let pauses: Vec<u64> =
            (0..40).map(|_| retries.next(Instant::ZERO).as_nanos() / 1_000_000).collect();
        assert_eq!(pauses.get(..7), Some(&[10, 20, 40, 80, 160, 320, 320][..]));
        assert!(pauses.iter().skip(6).all(|p| *p == 320), "{pauses:?}");
        assert!(retries.deadline().to_string().contains("40 attempts"));
    }

    #[test]
    fn the_error_at_the_deadline_reports_what_happened() {
        let mut retries = Retries::default();
        assert!(!retries.deadline().to_string().contains("attempt"));
        let _ = retries.next(Instant::ZERO);
        let once = retries.deadline().to_string();
        assert!(once.contains("the one attempt was closed before an answer; a process"), "{once}");
        let _ = retries.next(Instant::ZERO);
        let twice = retries.deadline().to_string();
        assert!(twice.contains("2 attempts, each closed before an answer"), "{twice}");
        assert!(twice.contains("`connect_upstream`"), "{twice}");
    }
}
