//! The run folder, which host and guest share: the task, the outputs, and the ending.

use super::ending::Ending;
use super::task::Task;
use rustix::fs::{FlockOperation, flock};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The task; the guest reads it.
const TASK: &str = "task";
/// Paths of the shared folders; `/init` reads them.
const START: &str = "start";
/// The guest program.
const GUEST: &str = "guest";
/// The ending; the guest writes it.
const END: &str = "end";
/// The console of the guest.
const CONSOLE: &str = "console";
/// The output of QEMU.
const QEMU: &str = "qemu";
/// Locked during the run.
const LOCK: &str = "lock";

/// Number of lines that are shown of both logs.
const TAIL: usize = 20;

/// A run folder. Its drop removes it from the disk unless it is to be kept.
#[derive(Debug)]
pub(super) struct RunFolder {
    path: PathBuf,
    keep: bool,
    _lock: File,
}

impl RunFolder {
    /// Creates a run folder below `runs`. Removes those whose process has ended.
    ///
    /// # Errors
    /// An I/O error.
    pub(super) fn create(runs: &Path, keep: bool) -> io::Result<Self> {
        std::fs::create_dir_all(runs)?;
        remove_orphans(runs);
        let process = std::process::id();
        let mut number = 0_u32;
        let path = loop {
            let path = runs.join(format!("{process}-{number}"));
            match std::fs::create_dir(&path) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                    number = number.saturating_add(1);
                }
                made => break made.map(|()| path)?,
            }
        };
        // The file gets its name after it is locked: other processes remove folders with an unlocked file of that name.
        let new = path.join("new");
        let lock = File::create(&new)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        std::fs::rename(new, path.join(LOCK))?;
        Ok(Self { path: std::fs::canonicalize(path)?, keep, _lock: lock })
    }

    /// Returns its path, without symbolic links.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of the console log.
    pub(super) fn console(&self) -> PathBuf {
        self.path.join(CONSOLE)
    }

    /// Returns the path of QEMU's log.
    pub(super) fn qemu_log(&self) -> PathBuf {
        self.path.join(QEMU)
    }

    /// Writes the files for the guest; `out` is the output folder.
    ///
    /// # Errors
    /// An I/O error.
    pub(super) fn prepare(&self, task: &Task, out: &Path) -> io::Result<()> {
        std::fs::write(self.path.join(TASK), task.to_bytes())?;
        let mut start = b"run=".to_vec();
        start.extend(quoted(self.path.as_os_str()));
        start.extend_from_slice(b"\nout=");
        start.extend(quoted(out.as_os_str()));
        start.push(b'\n');
        std::fs::write(self.path.join(START), start)?;
        // The guest's copy is not affected by a later build.
        let (ourselves, guest) = (std::env::current_exe()?, self.path.join(GUEST));
        std::fs::hard_link(&ourselves, &guest)
            .or_else(|_| std::fs::copy(&ourselves, &guest).map(drop))
    }

    /// Returns the ending, or `None` if the guest has not written it yet.
    pub(super) fn ending(&self) -> Option<Ending> {
        Ending::from_text(&std::fs::read_to_string(self.path.join(END)).ok()?)
    }

    /// Returns the last lines of QEMU's log and of the console log.
    pub(super) fn tail(&self) -> String {
        let text = |file| {
            let bytes = std::fs::read(file).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let all = [text(self.qemu_log()), text(self.console())].concat();
        let lines: Vec<&str> = all.lines().map(str::trim_end).filter(|l| !l.is_empty()).collect();
        lines.get(lines.len().saturating_sub(TAIL)..).unwrap_or_default().join("\n")
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        // A later run removes the folder if this fails.
        let _ = if self.keep {
            std::fs::remove_file(self.path.join(LOCK))
        } else {
            std::fs::remove_dir_all(&self.path)
        };
    }
}

/// Removes run folders whose process has ended.
fn remove_orphans(runs: &Path) {
    for entry in std::fs::read_dir(runs).into_iter().flatten().flatten() {
        let Ok(lock) = File::open(entry.path().join(LOCK)) else { continue };
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// Reads the task in the guest.
///
/// # Errors
/// A message if the file cannot be read or is invalid.
pub(super) fn task(folder: &Path) -> Result<Task, String> {
    let bytes = std::fs::read(folder.join(TASK)).map_err(|e| format!("the task file: {e}"))?;
    Task::from_bytes(&bytes).ok_or_else(|| "the task file is invalid".to_owned())
}

/// Writes the ending in the guest. The host reads the complete file or none.
///
/// # Errors
/// An I/O error.
pub(super) fn write_ending(folder: &Path, ending: &Ending) -> io::Result<()> {
    let new = folder.join("end.new");
    std::fs::write(&new, ending.to_text())?;
    std::fs::rename(new, folder.join(END))
}

/// Quotes a text as one word of a shell.
fn quoted(text: &OsStr) -> Vec<u8> {
    let mut word = vec![b'\''];
    for byte in text.as_bytes() {
        match byte {
            b'\'' => word.extend_from_slice(b"'\\''"),
            other => word.push(*other),
        }
    }
    word.push(b'\'');
    word
}

#[cfg(test)]
mod tests {
    use super::{Ending, RunFolder, quoted, task, write_ending};
    use crate::cmd::vm::guest_id::GuestId;
    use crate::cmd::vm::task::Task;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::path::{Path, PathBuf};
    use std::process::Command;

    fn runs(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("hmc-vm-{name}-{}", std::process::id()))
    }

    #[test]
    fn a_quoted_text_is_one_word_of_a_shell() {
        for text in [&b""[..], b"a b", b"it's", b"''", b"$(x) `y` \\ \"z\"\n*", b"\xff"] {
            let text = OsStr::from_bytes(text);
            let mut script = b"printf %s ".to_vec();
            script.extend(quoted(text));
            let out = Command::new("sh").arg("-c").arg(OsStr::from_bytes(&script)).output();
            assert_eq!(OsStr::from_bytes(&out.unwrap().stdout), text);
        }
    }

    #[test]
    fn the_guest_reads_the_task_and_the_host_the_ending() {
        let runs = runs("a folder's");
        let folder = RunFolder::create(&runs, false).unwrap();
        let given =
            Task::here(&["a b".into(), "'".into()], GuestId { number: 0, count: 1 }).unwrap();
        folder.prepare(&given, Path::new("/out")).unwrap();
        assert_eq!(task(folder.path()), Ok(given));
        assert!(folder.path().join("guest").is_file());
        let start = std::fs::read_to_string(folder.path().join("start")).unwrap();
        assert!(start.ends_with("\nout='/out'\n") && start.contains("a folder'\\''s"), "{start}");
        assert_eq!(folder.ending(), None);
        write_ending(folder.path(), &Ending::Exited(3)).unwrap();
        assert_eq!(folder.ending(), Some(Ending::Exited(3)));
        drop(folder);
        assert_eq!(std::fs::read_dir(&runs).unwrap().count(), 0);
        std::fs::remove_dir(runs).unwrap();
    }

    #[test]
    fn folders_of_running_and_kept_runs_stay() {
        let runs = runs("orphans");
        let running = RunFolder::create(&runs, false).unwrap();
        let kept = RunFolder::create(&runs, true).unwrap().path().to_path_buf();
        let orphan = runs.join("1-0");
        std::fs::create_dir(&orphan).unwrap();
        std::fs::write(orphan.join("lock"), "").unwrap();
        let next = RunFolder::create(&runs, false).unwrap();
        assert!(running.path().is_dir() && kept.is_dir() && next.path().is_dir());
        assert!(!orphan.exists());
        assert_ne!(running.path(), next.path());
        drop((running, next));
        std::fs::remove_dir_all(runs).unwrap();
    }

    #[test]
    fn the_tail_has_lines_of_both_logs() {
        let runs = runs("tail");
        let folder = RunFolder::create(&runs, false).unwrap();
        assert_eq!(folder.tail(), "");
        std::fs::write(folder.qemu_log(), "qemu says\n").unwrap();
        std::fs::write(folder.console(), "one\r\n\r\n".repeat(18) + "last\n").unwrap();
        let tail = folder.tail();
        assert!(tail.starts_with("qemu says\none\n") && tail.ends_with("one\nlast"), "{tail}");
        std::fs::write(folder.console(), "x\n".repeat(30)).unwrap();
        assert_eq!(folder.tail().lines().count(), 20);
        drop(folder);
        std::fs::remove_dir_all(runs).unwrap();
    }
}
