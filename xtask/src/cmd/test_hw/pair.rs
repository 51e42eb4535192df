//! `hmc put` and `hmc serve` in two VMs: a file, and a long file during which one VM ends without notice.

use super::counters;
use crate::cmd::demo::{self, Via};
use crate::cmd::vm::{self, Ended};
use crate::verdict::Verdict;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

/// The script of both guests.
const SCRIPT: &str = include_str!("pair.sh");

/// Bytes of the first file.
const FILE_BYTES: u64 = 4 << 20;

/// Time limit of both VMs, the boot included.
pub(super) const LIMIT: Duration = Duration::from_secs(300);

/// Time from the end of one VM to the error in the other one, and its end. A silent peer is dead after 2.5 s; the rest is for an
/// emulated processor.
const ERROR_WITHIN: Duration = Duration::from_secs(20);

/// The VM that ends during the long file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Victim {
    /// That of `hmc serve`, guest 0.
    Receiver,
    /// That of `hmc put`, guest 1.
    Sender,
}

impl Victim {
    const fn name(self) -> &'static str {
        match self {
            Self::Receiver => "receiver",
            Self::Sender => "sender",
        }
    }
}

/// Runs both VMs, and checks what they left in a folder below `out`.
pub(super) fn run(hmc: &Path, out: &Path, victim: Victim, limit: Duration) -> Verdict {
    let out = out.join(victim.name());
    // Files of an earlier run are not those of this one.
    let _ = std::fs::remove_dir_all(&out);
    let made = std::fs::create_dir_all(&out)
        .map_err(|e| format!("{}: {e}", out.display()))
        .and_then(|()| demo::make_file(&out.join("file"), FILE_BYTES));
    if let Err(why) = made {
        return Verdict::Failed(why);
    }
    let command = |_| {
        let words = ["sh", "-c", SCRIPT, "pair"].map(OsString::from);
        words.into_iter().chain([hmc.into(), victim.name().into()]).collect()
    };
    match vm::ends_of(2, &out, limit.min(LIMIT), command) {
        Ok(ends) => Verdict::from_result(check(&ends, victim, &out)),
        Err(verdict) => verdict,
    }
}

/// Checks the ends of both guests, and the files that they left in `out`.
fn check(ends: &[Ended], victim: Victim, out: &Path) -> Result<(), String> {
    let error = read(&out.join("error"));
    check_status(ends, error.as_deref().unwrap_or_default())?;
    check_file(out)?;
    check_end(ends, victim, &error?)
}

/// Checks that the script succeeded in both guests.
fn check_status(ends: &[Ended], error: &str) -> Result<(), String> {
    for (name, ended) in ["receiver", "sender"].iter().zip(ends) {
        match ended.status {
            0 => {}
            124 => return Err(format!("the {name}'s guest was killed at its time limit")),
            status => return Err(format!("the {name}'s guest ended with {status}: {error}")),
        }
    }
    Ok(())
}

/// Checks that RDMA moved the first file, and that the copy is equal to it.
fn check_file(out: &Path) -> Result<(), String> {
    let sent = last_line(&read(&out.join("sent"))?)?;
    let received = last_line(&read(&out.join("received"))?)?;
    demo::explain(Via::Rdma, &sent, &received)?;
    counters::compare(FILE_BYTES, counters::number(&read(&out.join("packets"))?)?)?;
    // The path in `received` is one of the guest, which has copied the file.
    let checksum = received.get("crc32c").cloned().unwrap_or_default();
    let received = json!({ "crc32c": checksum, "path": out.join("copy") });
    demo::verify(&out.join("file"), &sent, &received)
}

/// Checks that the other end had an error in time.
fn check_end(ends: &[Ended], victim: Victim, error: &str) -> Result<(), String> {
    let [receiver, sender] = ends else { return Err("two guests have two ends".to_owned()) };
    let (gone, other) = match victim {
        Victim::Receiver => (receiver, sender),
        Victim::Sender => (sender, receiver),
    };
    let Some(took) = other.time.checked_sub(gone.time) else {
        return Err(format!("the other end failed before the {} ended: {error}", victim.name()));
    };
    println!("the {} ended; {:.1} s later: {error}", victim.name(), took.as_secs_f64());
    if took > ERROR_WITHIN {
        return Err(format!("the error came after {} s", took.as_secs()));
    }
    // A connection that was closed is that of a process that ended while its VM ran on.
    if !error.contains("the peer is gone") || error.contains("closed the connection") {
        return Err(format!("the error is not that of a peer that vanished: {error}"));
    }
    Ok(())
}

fn read(path: &Path) -> Result<String, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(text.trim().to_owned())
}

fn last_line(text: &str) -> Result<Value, String> {
    let line = text.lines().last().unwrap_or_default();
    serde_json::from_str(line).map_err(|e| format!("`{line}`: {e}"))
}

#[cfg(test)]
mod tests {
    use super::{Ended, Victim, check_end, check_status};
    use std::time::Duration;

    const GONE: &str = "put: rank 0: the peer is gone: the peer was silent for too long";

    fn ends(receiver: (u8, u64), sender: (u8, u64)) -> [Ended; 2] {
        [receiver, sender].map(|(status, s)| Ended { status, time: Duration::from_secs(s) })
    }

    #[test]
    fn a_guest_that_hangs_or_fails_is_a_failure() {
        let checked = |receiver, sender| check_status(&ends((receiver, 1), (sender, 1)), "why");
        assert_eq!(checked(0, 0), Ok(()));
        assert!(checked(0, 124).unwrap_err().contains("sender's guest was killed"));
        assert!(checked(1, 0).unwrap_err().contains("receiver's guest ended with 1: why"));
    }

    #[test]
    fn an_error_that_is_late_or_another_is_a_failure() {
        let checked = |at, error| check_end(&ends((0, 50), (0, at)), Victim::Receiver, error);
        assert_eq!(checked(53, GONE), Ok(()));
        assert!(checked(90, GONE).unwrap_err().contains("after 40 s"));
        assert!(checked(49, GONE).unwrap_err().contains("before"));
        for other in ["no space left", "the peer is gone: the peer closed the connection"] {
            assert!(checked(53, other).unwrap_err().contains(other));
        }
        assert_eq!(check_end(&ends((0, 53), (0, 50)), Victim::Sender, GONE), Ok(()));
    }
}
