//! What an error has to say: a table of errors that were provoked, each with its kind, its rank and its words.

use hmc_std::{Error, ErrorKind, Rank};

/// The errors of one test, judged together.
#[derive(Debug, Default)]
pub struct Errors {
    wrong: Vec<String>,
    count: usize,
}

impl Errors {
    /// None yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// `result` has to be an error of `kind`, about the peer of that rank if there is one, with all of these words: what went
    /// wrong, and what to do.
    ///
    /// # Panics
    /// Never: what is wrong is reported by [`Errors::check`].
    pub fn add<T>(
        &mut self,
        what: &str,
        result: Result<T, impl Into<Error>>,
        kind: ErrorKind,
        rank: Option<u32>,
        says: &[&str],
    ) {
        self.count += 1;
        let Err(error) = result.map(drop).map_err(Into::into) else {
            self.wrong.push(format!("{what}: no error"));
            return;
        };
        if error.kind() != kind {
            self.wrong.push(format!("{what}: {:?}, not {kind:?}: {error}", error.kind()));
        }
        if error.status() != kind.status() {
            self.wrong.push(format!("{what}: status {:?}: {error}", error.status()));
        }
        if error.peer() != rank.map(Rank) {
            self.wrong.push(format!("{what}: about {:?}, not {rank:?}: {error}", error.peer()));
        }
        let text = error.to_string();
        for words in says {
            if !text.contains(words) {
                self.wrong.push(format!("{what}: `{words}` is not in: {text}"));
            }
        }
    }

    /// All of them were as they have to be.
    ///
    /// # Panics
    /// With those that were not.
    pub fn check(self) {
        assert!(self.count > 0, "no error was provoked");
        assert!(self.wrong.is_empty(), "of {}:\n{}", self.count, self.wrong.join("\n"));
    }
}
