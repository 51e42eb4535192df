//! What an error has to say: a table of errors that were provoked, each with its kind, its rank and its words.

use hmc_std::{Error, ErrorKind, Rank};

/// The errors of one test, compared together.
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
        let error = result.map(drop).map_err(Into::into);
        self.check_error(what, error, kind, rank, None, says);
    }

    /// The same of an error that a limit made: it has what was needed and what there was as numbers, too.
    ///
    /// # Panics
    /// Never: what is wrong is reported by [`Errors::check`].
    pub fn add_limit<T>(
        &mut self,
        what: &str,
        result: Result<T, impl Into<Error>>,
        kind: ErrorKind,
        rank: Option<u32>,
        limit: (u64, u64),
        says: &[&str],
    ) {
        let error = result.map(drop).map_err(Into::into);
        self.check_error(what, error, kind, rank, Some(limit), says);
    }

    fn check_error(
        &mut self,
        what: &str,
        result: Result<(), Error>,
        kind: ErrorKind,
        rank: Option<u32>,
        limit: Option<(u64, u64)>,
        says: &[&str],
    ) {
        self.count += 1;
        let Err(error) = result else {
            self.wrong.push(format!("{what}: no error"));
            return;
        };
        let needs = error.limit().map(|l| (l.need, l.have));
        if limit.is_some() && needs != limit {
            self.wrong.push(format!("{what}: limit {needs:?}, not {limit:?}: {error}"));
        }
        if error.kind() != kind {
            self.wrong.push(format!("{what}: {:?}, not {kind:?}: {error}", error.kind()));
        }
        if error.status() != kind.status() {
            self.wrong.push(format!("{what}: status {:?}: {error}", error.status()));
        }
        if error.peer() != rank.map(Rank) {
            self.wrong.push(format!("{what}: about {:?}, not {rank:?}: {error}", error.peer()));
        }
        if error.blame() != kind.blame() || error.remedy().is_empty() {
            self.wrong.push(format!("{what}: {}, `{}`: {error}", error.blame(), error.remedy()));
        }
        let text = error.to_string();
        if text.contains('\n') {
            self.wrong.push(format!("{what}: more than one line: {text}"));
        }
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
