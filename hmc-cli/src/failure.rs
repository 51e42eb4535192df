//! How a command fails: one line for stderr and an exit status. Never a panic, never a backtrace.

use std::fmt;
use std::io;

/// Exit status of a command that failed.
const FAILED: u8 = 1;
/// Exit status after Ctrl-C or SIGTERM: that of a shell for SIGINT.
pub(crate) const INTERRUPTED: u8 = 130;
/// Exit status when nobody reads our output any more: that of a shell for SIGPIPE.
const NO_READER: u8 = 141;

/// Why a command ended.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    text: String,
    code: u8,
}

/// What commands and their parts give.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// A failure in one sentence, with what to do where that is known.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), code: FAILED }
    }

    /// The user stopped it.
    pub(crate) fn interrupted() -> Self {
        Self { text: "interrupted".to_owned(), code: INTERRUPTED }
    }

    /// Our output could not be written. Nothing is said when its reader has gone.
    pub(crate) fn output(e: &io::Error) -> Self {
        if e.kind() == io::ErrorKind::BrokenPipe {
            return Self { text: String::new(), code: NO_READER };
        }
        Self::new(format!("cannot write the output: {e}"))
    }

    /// The same failure, with what was being done before its text.
    pub(crate) fn during(mut self, what: impl fmt::Display) -> Self {
        if self.code == FAILED {
            self.text = format!("{what}: {}", self.text);
        }
        self
    }

    /// The exit status.
    pub(crate) fn code(&self) -> u8 {
        self.code
    }
}

impl fmt::Display for Failure {
    /// One line, whatever the parts contain.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let clean = |c: char| if c.is_control() { ' ' } else { c };
        f.write_str(&self.text.chars().map(clean).collect::<String>())
    }
}

impl From<hmc_std::Error> for Failure {
    fn from(e: hmc_std::Error) -> Self {
        Self::new(e.to_string())
    }
}

impl From<serde_json::Error> for Failure {
    fn from(e: serde_json::Error) -> Self {
        Self::new(format!("cannot write JSON: {e}"))
    }
}

#[cfg(test)]
mod tests {
    use super::{FAILED, Failure, INTERRUPTED, NO_READER};
    use std::io;

    #[test]
    fn a_failure_is_one_line() {
        let f = Failure::new("two\nlines\x1b[31m").during("put a\tb");
        assert_eq!(f.to_string(), "put a b: two lines [31m");
        assert_eq!(f.code(), FAILED);
    }

    #[test]
    fn a_reader_that_left_is_no_failure() {
        let f = Failure::output(&io::Error::from(io::ErrorKind::BrokenPipe)).during("put");
        assert_eq!((f.to_string().as_str(), f.code()), ("", NO_READER));
    }

    #[test]
    fn an_interrupt_has_its_own_status_and_no_cause() {
        let f = Failure::interrupted().during("put a");
        assert_eq!((f.to_string().as_str(), f.code()), ("interrupted", INTERRUPTED));
        let full = Failure::output(&io::Error::from(io::ErrorKind::StorageFull));
        assert_eq!(full.code(), FAILED);
        assert!(full.to_string().starts_with("cannot write the output: "), "{full}");
    }

    #[test]
    fn other_errors_keep_their_words() {
        let e = hmc_std::Error::new(hmc_std::ErrorKind::NotFound, "nobody is there");
        assert_eq!(Failure::from(e).to_string(), "nobody is there");
        let json = serde_json::from_str::<u8>("x").unwrap_err();
        assert!(Failure::from(json).to_string().starts_with("cannot write JSON: "));
    }
}
