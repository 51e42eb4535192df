//! Attacks on what README.md and SECURITY.md promise: one row for each promise, with the sentence, the attack, and the planted
//! bug that it has to find. `cargo xtask attack` runs each row in a process of its own (`bin/attack.rs`), in a build without
//! planted bugs, where it must hold, and in one with its bug, where it must be broken.
//!
//! The tests of `tests/tests` call the same functions, more often.

use std::time::{Duration, Instant};

use hmc_sim::rng::Rng;

use crate::env::skipped;

pub mod bystanders;
pub mod exposure;
pub mod floods;
pub mod forks;
pub mod frames;
pub mod many;
pub mod names;
pub mod ranks;
pub mod reaped;
pub mod reopen;
pub mod rows;
pub mod silence;
pub mod tags;
pub mod unfenced;
pub mod wakers;

/// A promise, and how it is attacked.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// By which it is chosen.
    pub name: &'static str,
    /// A sentence, or the part of one, as `document` has it.
    pub promise: &'static str,
    /// Its path from the root.
    pub document: &'static str,
    /// The bug in whose presence it must be broken, by its name in `hmc_core::mutant`.
    pub mutant: &'static str,
    /// The attack.
    pub attack: fn(&mut Context) -> Outcome,
}

/// What became of a promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Each attempt came to nothing.
    Held,
    /// One did not.
    Broken,
    /// The attack needs what this machine does not have.
    Skipped,
}

impl Verdict {
    /// As `bin/attack.rs` prints it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Broken => "broken",
            Self::Skipped => "skipped",
        }
    }
}

/// How an attack ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Outcome {
    /// How often it was tried.
    pub attempts: u64,
    /// Whether the promise held.
    pub verdict: Verdict,
    /// What was seen, in a line.
    pub seen: String,
}

impl Outcome {
    /// The attack could not be made.
    pub fn skipped(why: &str) -> Self {
        Self { attempts: 0, verdict: Verdict::Skipped, seen: why.to_owned() }
    }

    /// Fails a test unless the promise held, or the attack was skipped, which it says.
    ///
    /// # Panics
    /// When it was broken, or not tried.
    pub fn expect_held(self) {
        match self.verdict {
            Verdict::Held => assert!(self.attempts > 0, "nothing was tried"),
            Verdict::Broken => panic!("after {} attempts: {}", self.attempts, self.seen),
            Verdict::Skipped => skipped(&self.seen),
        }
        println!("{} attempts: {}", self.attempts, self.seen);
    }
}

/// What a row works with.
#[derive(Debug)]
pub struct Context {
    /// The program of [`Actor`](crate::actor::Actor)s.
    pub actor: String,
    /// All choices of chance.
    pub rng: Rng,
    /// For how long; `None`: by numbers alone.
    time: Option<Duration>,
    /// Instead of the numbers of the rows.
    rounds: Option<u64>,
    begun: Instant,
    attempts: u64,
}

impl Context {
    /// The short form, or, with `time`, attempts until that is over.
    #[must_use]
    pub fn new(actor: &str, seed: u64, time: Option<Duration>) -> Self {
        let (rng, begun) = (Rng::new(seed), Instant::now());
        Self { actor: actor.to_owned(), rng, time, rounds: None, begun, attempts: 0 }
    }

    /// For a test: a number of attempts of its own.
    #[must_use]
    pub fn rounds(actor: &str, rounds: u64) -> Self {
        Self { rounds: Some(rounds), ..Self::new(actor, crate::env::seed(1), None) }
    }

    /// Whether another attempt is to be made, which is counted then: `few` in all by number.
    pub fn again(&mut self, few: u64) -> bool {
        let few = self.rounds.unwrap_or(few);
        let more = match self.time {
            Some(time) => self.attempts == 0 || self.begun.elapsed() < time,
            None => self.attempts < few,
        };
        self.attempts += u64::from(more);
        more
    }

    /// Attempts that were begun.
    #[must_use]
    pub const fn attempts(&self) -> u64 {
        self.attempts
    }

    /// Counts attempts that a row makes by itself.
    pub const fn count(&mut self, attempts: u64) {
        self.attempts += attempts;
    }

    /// The promise held.
    pub fn held(&self, seen: impl Into<String>) -> Outcome {
        Outcome { attempts: self.attempts, verdict: Verdict::Held, seen: seen.into() }
    }

    /// It did not.
    pub fn broken(&self, seen: impl Into<String>) -> Outcome {
        Outcome { attempts: self.attempts, verdict: Verdict::Broken, seen: seen.into() }
    }
}
