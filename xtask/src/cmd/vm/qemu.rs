//! QEMU, as installed on the host or as extracted into the cache.

use super::accelerator::Accelerator;
use crate::verdict::Verdict;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, set_parent_process_death_signal};
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::{CommandExt, parent_id};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Name of the program.
const PROGRAM: &str = "qemu-system-x86_64";
/// Paths of the program, of its libraries and of its data in Debian's packages.
const EXTRACTED: &str = "usr/bin/qemu-system-x86_64";
const LIBRARIES: [&str; 2] = ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"];
const DATA: [&str; 3] = ["usr/share/qemu", "usr/share/seabios", "usr/lib/ipxe/qemu"];

/// Input of QEMU's control protocol that ends it.
const QUIT: &[u8] = b"{\"execute\":\"qmp_capabilities\"}\n{\"execute\":\"quit\"}\n";

/// Time limit of the trial start.
const TRIAL: Duration = Duration::from_secs(20);

/// A QEMU program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Qemu {
    program: PathBuf,
    /// The folder with its extracted packages; `None` if QEMU is installed.
    root: Option<PathBuf>,
}

impl Qemu {
    /// Returns the installed QEMU, if any.
    pub(super) fn installed() -> Option<Self> {
        let path = std::env::var_os("PATH")?;
        let programs = std::env::split_paths(&path).map(|folder| folder.join(PROGRAM));
        let is_program = |file: &PathBuf| {
            file.is_file() && rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok()
        };
        programs.into_iter().find(is_program).map(|program| Self { program, root: None })
    }

    /// Returns the QEMU whose packages are extracted in a folder, if any.
    pub(super) fn extracted(root: &Path) -> Option<Self> {
        let program = root.join(EXTRACTED);
        program.is_file().then(|| Self { program, root: Some(root.to_path_buf()) })
    }

    /// Returns a command that executes QEMU. The kernel kills that QEMU if this process ends in any way.
    ///
    /// # Errors
    /// A message if the path of this program is unknown.
    pub(super) fn command(&self) -> Result<Command, String> {
        let ourselves =
            std::env::current_exe().map_err(|e| format!("the path of this program: {e}"))?;
        let mut command = Command::new(ourselves);
        command.arg("vm-qemu").arg(std::process::id().to_string()).arg(&self.program);
        self.add_paths(&mut command);
        Ok(command)
    }

    /// Adds the folders of its libraries and of its data to a command.
    fn add_paths(&self, command: &mut Command) {
        let Some(root) = &self.root else { return };
        let theirs = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        let theirs = std::env::split_paths(&theirs).filter(|p| !p.as_os_str().is_empty());
        let all = LIBRARIES.iter().map(|folder| root.join(folder)).chain(theirs);
        // Fails only for a path with a colon; QEMU then reports the missing library.
        if let Ok(folders) = std::env::join_paths(all) {
            command.env("LD_LIBRARY_PATH", folders);
        }
        for folder in DATA {
            command.arg("-L").arg(root.join(folder));
        }
    }

    /// Returns the fastest accelerator that works on this machine.
    pub(super) fn accelerator(&self) -> Accelerator {
        let writable = rustix::fs::access("/dev/kvm", rustix::fs::Access::WRITE_OK).is_ok();
        let processor = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        Accelerator::choose(writable, &processor, || self.starts(Accelerator::Kvm, TRIAL))
    }

    /// Returns `true` if QEMU starts with an accelerator and ends on request before the deadline.
    fn starts(&self, accelerator: Accelerator, deadline: Duration) -> bool {
        let mut command = Command::new(&self.program);
        self.add_paths(&mut command);
        command.args(accelerator.arguments());
        command.args(["-nodefaults", "-display", "none", "-m", "64", "-qmp", "stdio"]);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let Ok(mut child) = command.spawn() else { return false };
        // Fails if QEMU has ended, which its exit status shows.
        let _ = child.stdin.as_mut().map(|pipe| pipe.write_all(QUIT));
        let in_time = ends_within(&child, deadline);
        // Fails if QEMU has ended.
        let _ = child.kill();
        child.wait().is_ok_and(|status| status.success()) && in_time
    }
}

/// Returns `true` if a process ends before the deadline.
pub(super) fn ends_within(child: &Child, deadline: Duration) -> bool {
    let ended = pidfd_open(Pid::from_child(child), PidfdFlags::empty()).and_then(|process| {
        let timeout = Timespec::try_from(deadline).map_err(|_| rustix::io::Errno::INVAL)?;
        poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&timeout))
    });
    ended.is_ok_and(|events| events != 0)
}

/// Arguments of the internal command `vm-qemu`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The process whose end kills QEMU
    parent: u32,
    /// The program of QEMU
    program: PathBuf,
    /// The arguments of QEMU
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Executes QEMU in this process. Returns only if that fails.
pub(crate) fn run(options: &Options) -> Verdict {
    if let Err(e) = set_parent_process_death_signal(Some(Signal::KILL)) {
        return Verdict::failed(format!("prctl(2): {e}"));
    }
    // The parent may have ended before the call above.
    if parent_id() != options.parent {
        return Verdict::failed("the process that started this one has ended");
    }
    let error = Command::new(&options.program).args(&options.arguments).exec();
    Verdict::failed(format!("cannot start {}: {error}", options.program.display()))
}

#[cfg(test)]
mod tests {
    use super::{Qemu, ends_within};
    use crate::cmd::vm::accelerator::Accelerator;
    use std::process::Command;
    use std::time::Duration;

    #[test]
    fn another_program_fails_the_trial_start() {
        let qemu = |program: &str| Qemu { program: program.into(), root: None };
        for program in ["/bin/false", "/nonexistent"] {
            assert!(!qemu(program).starts(Accelerator::Kvm, Duration::from_secs(20)), "{program}");
        }
    }

    #[test]
    fn an_extracted_qemu_gets_its_own_libraries_and_data() {
        let root = std::env::temp_dir().join(format!("hmc-vm-qemu-{}", std::process::id()));
        assert_eq!(Qemu::extracted(&root), None);
        std::fs::create_dir_all(root.join("usr/bin")).unwrap();
        std::fs::write(root.join(super::EXTRACTED), "").unwrap();
        let command = Qemu::extracted(&root).unwrap().command().unwrap();
        let libraries = command.get_envs().find(|(name, _)| *name == "LD_LIBRARY_PATH");
        let first = root.join(super::LIBRARIES[0]).to_string_lossy().into_owned();
        assert!(libraries.unwrap().1.unwrap().to_string_lossy().starts_with(&first));
        let arguments: Vec<_> = command.get_args().collect();
        assert_eq!(arguments[..2], ["vm-qemu", &std::process::id().to_string()]);
        assert!(arguments.contains(&root.join("usr/share/seabios").as_os_str()));
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn a_running_process_does_not_end_within_the_deadline() {
        let mut child = Command::new("sleep").arg("100").spawn().unwrap();
        assert!(!ends_within(&child, Duration::from_millis(20)));
        child.kill().unwrap();
        assert!(ends_within(&child, Duration::from_secs(20)));
        child.wait().unwrap();
    }
}
