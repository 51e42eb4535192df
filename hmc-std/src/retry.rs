//! Dialing again a listener that closes a connection before it answers: it may have had no room. After 5 s of nothing else
//! the dial ends, for such a listener is no HMC.

#[cfg(hmc_mutants)]
use hmc_core::mutant::{self, Mutant};
use hmc_core::time::{Duration, Instant};

use crate::error::{Error, ErrorKind};

/// The first pause, in milliseconds; each is twice as long as the one before.
const FIRST_PAUSE_MS: u64 = 10;
/// The longest pause, in milliseconds.
const LONGEST_PAUSE_MS: u64 = 320;

/// For how long hang-ups alone are answered by another attempt, in seconds.
const HANG_UPS_S: u64 = 5;

/// Hang-ups, two thirds of a second in all, after which another way is better.
const MANY: u32 = 6;

/// How often a peer hung up on one dial.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Retries {
    count: u32,
    /// When it hung up first.
    first: Option<Instant>,
}

impl Retries {
    /// Whether that is why a dial failed, so that it is worth another try.
    pub(crate) fn is_worth_it(e: &Error) -> bool {
        #[cfg(hmc_mutants)]
        if mutant::is(Mutant::DialOnce) || mutant::is(Mutant::TurnManyAway) {
            return false;
        }
        e.kind() == ErrorKind::PeerDead
    }

    /// It happened once more, now. When to try again.
    pub(crate) fn next(&mut self, now: Instant) -> Instant {
        self.first.get_or_insert(now);
        let pause = FIRST_PAUSE_MS.checked_shl(self.count).unwrap_or(LONGEST_PAUSE_MS);
        self.count = self.count.saturating_add(1);
        now.after(Duration::from_millis(pause.min(LONGEST_PAUSE_MS)))
    }

    /// How often it happened.
    pub(crate) fn count(self) -> u32 {
        self.count
    }

    /// The error of a dial on which nothing else happened for so long that it ends now, before its next attempt at `next`;
    /// `None` while that is worth it.
    pub(crate) fn given_up(self, next: Instant) -> Option<Error> {
        let limit = Duration::from_millis(HANG_UPS_S.saturating_mul(1000));
        if next <= self.first?.after(limit) {
            return None;
        }
        let what = format!(
            "{}; a process that listens there speaks another protocol (`connect_upstream` connects to the C++ HMC), or takes \
             no connections",
            self.what_happened(HANG_UPS_S)
        );
        Some(Error::new(ErrorKind::Refused, what))
    }

    fn what_happened(self, seconds: u64) -> String {
        format!("{} attempts in {seconds} s, each closed before an answer", self.count)
    }

    /// Whether another way is to be tried, if there is one.
    pub(crate) fn is_hopeless(self) -> bool {
        self.count >= MANY
    }

    /// The error of a dial whose deadline has come.
    pub(crate) fn deadline(self) -> Error {
        match self.count {
            0 => Error::deadline("connecting"),
            1 => Error::deadline("connecting: the one attempt was closed before an answer"),
            n => Error::deadline(format_args!(
                "connecting: {n} attempts, each closed before an answer"
            )),
        }
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
    fn hang_ups_alone_end_a_dial_after_five_seconds() {
        let mut retries = Retries::default();
        assert!(retries.given_up(Instant::ZERO).is_none());
        let mut now = Instant::from_nanos(7_000_000_000);
        let first = now;
        let e = loop {
            let next = retries.next(now);
            match retries.given_up(next) {
                Some(e) => break e.to_string(),
                None => now = next,
            }
        };
        let last = now.since(first).as_nanos();
        assert!((4_600_000_000..=5_000_000_000).contains(&last), "{last}");
        assert!(e.contains("20 attempts in 5 s, each closed before an answer"), "{e}");
    }
}
