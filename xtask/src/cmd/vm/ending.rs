//! The end of a command in the VM, and the text of the file by which the guest reports it.

/// Exit status if the command was not found, as in shells.
pub(super) const NOT_FOUND: u8 = 127;
/// Exit status if the command was found and cannot be executed, as in shells.
pub(super) const NOT_EXECUTABLE: u8 = 126;
/// Exit status if the VM failed; timeout(1) returns the same if it fails itself.
pub(super) const VM_FAILED: u8 = 125;
/// Exit status if the time limit was reached, as in timeout(1).
pub(super) const TIMED_OUT: u8 = 124;

/// The end of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// The command exited with this status.
    Exited(u8),
    /// This signal killed the command.
    Killed(u8),
    /// The command was not started: the exit status of shells for the reason, and the reason.
    NotStarted(u8, String),
    /// The guest failed before or beside the command: the reason.
    Failed(String),
}

impl Ending {
    /// Returns the text of the file.
    pub(super) fn to_text(&self) -> String {
        match self {
            Self::Exited(status) => format!("exited {status}\n"),
            Self::Killed(signal) => format!("killed {signal}\n"),
            Self::NotStarted(status, why) => format!("not-started {status} {why}\n"),
            Self::Failed(why) => format!("failed {why}\n"),
        }
    }

    /// Parses the text of the file. Returns `None` if the text is incomplete or invalid.
    pub(super) fn from_text(text: &str) -> Option<Self> {
        let (kind, rest) = text.strip_suffix('\n')?.split_once(' ')?;
        match kind {
            "exited" => Some(Self::Exited(rest.parse().ok()?)),
            "killed" => Some(Self::Killed(rest.parse().ok()?)),
            "not-started" => {
                let (status, why) = rest.split_once(' ')?;
                Some(Self::NotStarted(status.parse().ok()?, why.to_owned()))
            }
            "failed" => Some(Self::Failed(rest.to_owned())),
            _ => None,
        }
    }

    /// Returns the exit status of `cargo xtask vm`.
    pub(super) fn status(&self) -> u8 {
        match self {
            Self::Exited(status) | Self::NotStarted(status, _) => *status,
            Self::Killed(signal) => signal.saturating_add(128),
            Self::Failed(_) => VM_FAILED,
        }
    }

    /// Returns a message for the user, or `None` if the command exited.
    pub(super) fn remark(&self) -> Option<String> {
        match self {
            Self::Exited(_) => None,
            Self::Killed(9) => Some(
                "signal 9 killed the command; if the VM ran out of memory, raise --memory"
                    .to_owned(),
            ),
            Self::Killed(signal) => Some(format!("signal {signal} killed the command")),
            Self::NotStarted(_, why) => Some(why.clone()),
            Self::Failed(why) => Some(format!("the guest failed: {why}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Ending;

    #[test]
    fn every_ending_survives_its_text_form() {
        for (ending, status) in [
            (Ending::Exited(0), 0),
            (Ending::Exited(255), 255),
            (Ending::Killed(11), 139),
            (Ending::NotStarted(127, "no such: a b\nc".to_owned()), 127),
            (Ending::Failed(String::new()), 125),
        ] {
            assert_eq!(Ending::from_text(&ending.to_text()), Some(ending.clone()));
            assert_eq!(ending.status(), status);
            assert_eq!(ending.remark().is_none(), matches!(ending, Ending::Exited(_)));
        }
    }

    #[test]
    fn incomplete_and_unknown_texts_are_refused() {
        for text in [
            "",
            "exited 0",
            "exited\n",
            "exited 256\n",
            "exited x\n",
            "not-started 1\n",
            "gone 1\n",
        ] {
            assert_eq!(Ending::from_text(text), None, "{text:?}");
        }
    }
}
