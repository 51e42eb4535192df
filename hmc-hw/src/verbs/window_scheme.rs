//! How the device keeps a peer within the windows that are exposed to it.

use std::fmt;
use std::io;

use super::error::VerbsError;
use super::status::WcStatus;

/// An access or a bind that the probe of windows tries ([`super::window_probe`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WindowCheck {
    /// A bind.
    Bind,
    /// A write inside the window.
    Inside,
    /// A write outside the window, and inside its region.
    Outside,
    /// A write by another queue pair than the one to which it is bound.
    OtherQueuePair,
    /// A write to a window that may only be read.
    ReadOnly,
    /// A write after the end of the window.
    Ended,
}

impl fmt::Display for WindowCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bind => "the bind of a window",
            Self::Inside => "a write inside a window",
            Self::Outside => "a write outside a window",
            Self::OtherQueuePair => "a write by another queue pair than a window's",
            Self::ReadOnly => "a write to a window for reads",
            Self::Ended => "a write after the end of a window",
        })
    }
}

/// Reason why windows of type 2B are not used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoWindows {
    /// The device does not advertise them.
    NotAdvertised,
    /// A call failed when they were tried.
    Call(VerbsError),
    /// The check had no completion before the deadline of the probe.
    NoCompletion(WindowCheck),
    /// The check ended with this status, although it must succeed or be refused by the target.
    Status(WindowCheck, WcStatus),
    /// The device executed an access that it must refuse.
    LetThrough(WindowCheck),
}

impl fmt::Display for NoWindows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAdvertised => f.write_str("the device does not advertise type 2B windows"),
            Self::Call(e) => {
                write!(f, "{} failed: {}", e.call, io::Error::from_raw_os_error(e.errno))
            }
            Self::NoCompletion(check) => write!(f, "{check} did not complete"),
            Self::Status(check, status) => match status.name() {
                Some(name) => write!(f, "{check} ended with {name}"),
                None => write!(f, "{check} ended with status {}", status.0),
            },
            Self::LetThrough(check) => write!(f, "the device let {check} through"),
        }
    }
}

impl From<VerbsError> for NoWindows {
    fn from(e: VerbsError) -> Self {
        Self::Call(e)
    }
}

impl NoWindows {
    /// Returns `true` if the device would do the same again: it was neither out of something nor slow.
    pub(super) fn is_lasting(&self) -> bool {
        !matches!(self, Self::Call(_) | Self::NoCompletion(_))
    }
}

/// How the device keeps a peer within the windows that are exposed to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WindowScheme {
    /// One protection domain for all peers, whose regions give no remote rights. A window is a memory window of type 2B for each queue
    /// pair of the link.
    Type2b,
    /// A protection domain for each peer, in which just the windows are registered that are exposed to it.
    DomainPerPeer(NoWindows),
}

impl WindowScheme {
    /// Returns `true` if a trial would find the same again.
    pub(super) fn is_lasting(&self) -> bool {
        match self {
            Self::Type2b => true,
            Self::DomainPerPeer(why) => why.is_lasting(),
        }
    }
}

impl fmt::Display for WindowScheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Type2b => f.write_str(
                "type 2B memory windows (memory is registered once for all peers; a window costs a bind on each queue pair)",
            ),
            Self::DomainPerPeer(why) => write!(
                f,
                "a protection domain for each peer ({why}; memory is registered once for each peer, and once more for each window)"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_scheme_has_its_reason_and_cost() {
        let text = WindowScheme::Type2b.to_string();
        assert!(text.starts_with("type 2B memory windows (memory is registered once"), "{text}");
        let call = VerbsError::new("making a window", "fake_0", libc::EOPNOTSUPP);
        for (why, words) in [
            (NoWindows::NotAdvertised, "the device does not advertise type 2B windows"),
            (NoWindows::Call(call), "making a window failed: Operation not supported"),
            (NoWindows::NoCompletion(WindowCheck::Bind), "the bind of a window did not complete"),
            (
                NoWindows::Status(WindowCheck::Inside, WcStatus(10)),
                "a write inside a window ended with REM_ACCESS_ERR",
            ),
            (
                NoWindows::LetThrough(WindowCheck::Outside),
                "the device let a write outside a window through",
            ),
            (
                NoWindows::LetThrough(WindowCheck::OtherQueuePair),
                "the device let a write by another queue pair than a window's through",
            ),
            (
                NoWindows::LetThrough(WindowCheck::ReadOnly),
                "the device let a write to a window for reads through",
            ),
            (
                NoWindows::LetThrough(WindowCheck::Ended),
                "the device let a write after the end of a window through",
            ),
        ] {
            let text = WindowScheme::DomainPerPeer(why).to_string();
            let wanted = format!("a protection domain for each peer ({words}");
            assert!(text.starts_with(&wanted), "{text}");
        }
    }
}
