//! A process on the same host, by its pid: whether it has ended.

use std::fs;

/// A process, by its pid within its pid namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Process {
    /// The pid namespace, by its inode; 0 if it is not known.
    pub(super) namespace: u64,
    pub(super) pid: u32,
}

impl Process {
    /// Returns this process.
    pub(super) fn own() -> Self {
        use std::os::unix::fs::MetadataExt as _;
        // Read on each call: a child may be in another namespace.
        let namespace = fs::metadata("/proc/self/ns/pid").map_or(0, |m| m.ino());
        Self { namespace, pid: std::process::id() }
    }

    /// Returns `true` if the process is in the same pid namespace.
    pub(super) fn is_known(self) -> bool {
        self.namespace != 0 && self.namespace == Self::own().namespace
    }

    /// Returns `true` if the process has ended, or is about to and has released its memory. Returns `false` for a
    /// process of another pid namespace.
    pub(super) fn has_ended(self) -> bool {
        if !self.is_known() {
            return false;
        }
        match fs::read_to_string(format!("/proc/{}/statm", self.pid)) {
            // proc(5): the first number is its size in pages, 0 without an address space.
            Ok(pages) => pages.starts_with("0 "),
            Err(e) => e.kind() == std::io::ErrorKind::NotFound,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Process;

    #[test]
    fn a_running_process_has_not_ended_and_a_killed_one_has() {
        let own = Process::own();
        assert!(own.namespace != 0 && !own.has_ended());
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().expect("sleep");
        let killed = Process { pid: child.id(), ..own };
        assert!(!killed.has_ended());
        child.kill().expect("it lives");
        // A zombie has no memory, before and after it is waited for.
        while !killed.has_ended() {
            std::thread::yield_now();
        }
        child.wait().expect("it was killed");
        assert!(killed.has_ended());
        for foreign in [Process { namespace: 0, ..killed }, Process { namespace: 7, ..killed }] {
            assert!(!foreign.has_ended(), "its number means nothing here");
        }
    }
}
