//! The guest program: creates the RDMA devices, runs the task, and reports the ending to the host.
//!
//! `/init` (init.sh) executes it, so it is process 1 of the guest and also reaps orphaned processes.

use super::devices;
use super::ending::{Ending, NOT_EXECUTABLE, NOT_FOUND};
use super::run_folder;
use super::stream::Writer;
use super::task::Task;
use crate::verdict::Verdict;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::process::{
    Pid, PidfdFlags, Resource, Rlimit, WaitOptions, WaitStatus, pidfd_open, setrlimit, wait,
};
use rustix::system::{RebootCommand, reboot, sethostname};
use std::io::{self, ErrorKind, PipeReader, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Word of the kernel's command line in the guest.
const GUEST: &str = "hmc_vm=1";

/// Size of the copy buffer in bytes.
const BUFFER: usize = 1 << 16;

/// Arguments of the internal command `vm-guest`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The run folder
    folder: PathBuf,
}

/// Returns `true` if this process is in the guest of a VM.
pub(crate) fn is_here() -> bool {
    let line = std::fs::read_to_string("/proc/cmdline").unwrap_or_default();
    line.split_whitespace().any(|word| word == GUEST)
}

/// Runs the task and powers the guest off. Returns only if this process is not process 1 of a guest.
pub(crate) fn run(options: &Options) -> Verdict {
    if std::process::id() != 1 || !is_here() {
        return Verdict::failed("this process is not in the guest of a VM; use `cargo xtask vm`");
    }
    let ending = run_folder::task(&options.folder)
        .and_then(|task| prepare(&task).map(|()| task))
        .and_then(|task| run_task(&task, &options.folder))
        .unwrap_or_else(Ending::Failed);
    // The host kills QEMU once it reads the ending: all files must be complete before that.
    rustix::fs::sync();
    if let Err(e) = run_folder::write_ending(&options.folder, &ending) {
        eprintln!("hmc-vm: {}: {e}: {ending:?}", options.folder.display());
    }
    // If this fails, the end of process 1 stops the kernel.
    let failed = reboot(RebootCommand::PowerOff);
    Verdict::failed(format!("{failed:?}"))
}

/// Sets the host name and the limits, and creates the devices.
fn prepare(task: &Task) -> Result<(), String> {
    sethostname(task.host.as_bytes()).map_err(|e| format!("the host name: {e}"))?;
    let limit = |resource, current, maximum| {
        let limit = Rlimit { current, maximum };
        setrlimit(resource, limit).map_err(|e| format!("setrlimit: {e}"))
    };
    limit(Resource::Memlock, None, None)?;
    // The limits of processes cannot exceed those of the kernel.
    devices::set("fs/nr_open", "1073741816")?;
    devices::set("fs/file-max", "10000000")?;
    let files = |number: u64| Some(number.min(1_073_741_816));
    limit(Resource::Nofile, files(task.files.0), files(task.files.1))?;
    devices::create(task.guest)
}

/// Runs the task; its outputs go to the run folder.
fn run_task(task: &Task, folder: &Path) -> Result<Ending, String> {
    if !task.folder.is_dir() {
        let why =
            format!("the working directory {} does not exist in the VM", task.folder.display());
        return Ok(Ending::NotStarted(NOT_EXECUTABLE, why));
    }
    let Some((program, arguments)) = task.arguments.split_first() else {
        return Err("a task without a program".to_owned());
    };
    let failed = |e: io::Error| format!("the outputs of the command: {e}");
    let (stdout, stdout_end) = io::pipe().map_err(failed)?;
    let (stderr, stderr_end) = io::pipe().map_err(failed)?;
    let mut command = Command::new(program);
    command.args(arguments).env_clear().envs(task.environment.iter().map(|(n, v)| (n, v)));
    command.current_dir(&task.folder).process_group(0);
    command.stdin(Stdio::null()).stdout(stdout_end).stderr(stderr_end);
    let child = match command.spawn() {
        Ok(child) => child,
        Err(e) => {
            let status = match e.kind() {
                ErrorKind::NotFound => NOT_FOUND,
                _ => NOT_EXECUTABLE,
            };
            let why = format!("{}: {e} (in the VM)", program.display());
            return Ok(Ending::NotStarted(status, why));
        }
    };
    // Closes this process's write ends of the pipes.
    drop(command);
    let outputs =
        [(stdout, Writer::new(folder, "stdout")), (stderr, Writer::new(folder, "stderr"))];
    copy_until_exit(&child, outputs).map_err(failed)
}

/// Copies the outputs of a process until it exits. Its remaining child processes end with the guest.
fn copy_until_exit(child: &Child, outputs: [(PipeReader, Writer); 2]) -> io::Result<Ending> {
    let pid = Pid::from_child(child);
    let process = pidfd_open(pid, PidfdFlags::empty())?;
    for (pipe, _) in &outputs {
        rustix::fs::fcntl_setfl(pipe, OFlags::NONBLOCK)?;
    }
    let mut open = Vec::from(outputs);
    loop {
        let fds = open.iter().map(|(pipe, _)| PollFd::new(pipe, PollFlags::IN));
        let mut fds: Vec<_> = fds.chain([PollFd::new(&process, PollFlags::IN)]).collect();
        // The time-out bounds how long orphaned processes stay zombies.
        poll(&mut fds, Some(&Timespec { tv_sec: 1, tv_nsec: 0 }))?;
        let ended = reap(pid)?;
        let mut still_open = Vec::new();
        for (mut pipe, mut writer) in open {
            if drain(&mut pipe, &mut writer)? {
                still_open.push((pipe, writer));
            }
        }
        open = still_open;
        if let Some(ending) = ended {
            return Ok(ending);
        }
    }
}

/// Copies all available bytes of a pipe. Returns `false` at its end.
fn drain(pipe: &mut impl Read, writer: &mut impl Write) -> io::Result<bool> {
    let mut buffer = vec![0; BUFFER];
    loop {
        match pipe.read(&mut buffer) {
            Ok(0) => return Ok(false),
            Ok(taken) => writer.write_all(buffer.get(..taken).unwrap_or_default())?,
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(true),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

/// Reaps all processes that have ended. Returns the ending of `pid` if it is one of them.
fn reap(pid: Pid) -> io::Result<Option<Ending>> {
    let mut ending = None;
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((id, status))) if id == pid => ending = Some(ending_of(status)),
            Ok(Some(_)) => {}
            // No process has ended, or none is left.
            Ok(None) | Err(rustix::io::Errno::CHILD) => return Ok(ending),
            Err(e) => return Err(e.into()),
        }
    }
}

fn ending_of(status: WaitStatus) -> Ending {
    let byte = |number: i32| u8::try_from(number).unwrap_or(u8::MAX);
    match (status.exit_status(), status.terminating_signal()) {
        (Some(status), _) => Ending::Exited(byte(status)),
        (None, Some(signal)) => Ending::Killed(byte(signal)),
        (None, None) => Ending::Failed(format!("the command ended by {status:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::{Ending, drain, run_task};
    use crate::cmd::vm::guest_id::GuestId;
    use crate::cmd::vm::stream::Reader;
    use crate::cmd::vm::task::Task;
    use std::io::Write;
    use std::path::PathBuf;
    use std::sync::atomic::AtomicBool;

    /// Runs a command outside of a guest. Returns its ending and its outputs.
    fn run(name: &str, change: impl FnOnce(&mut Task)) -> (Ending, String, String) {
        let folder = std::env::temp_dir().join(format!("hmc-vm-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut task = Task::here(&["sh".into()], GuestId { number: 0, count: 1 }).unwrap();
        change(&mut task);
        let ending = run_task(&task, &folder).unwrap();
        let [out, err] = ["stdout", "stderr"].map(|name| {
            let mut bytes = Vec::new();
            Reader::new(&folder, name).copy(&mut bytes, &AtomicBool::new(true)).unwrap();
            String::from_utf8(bytes).unwrap()
        });
        std::fs::remove_dir_all(folder).unwrap();
        (ending, out, err)
    }

    #[test]
    fn commands_that_cannot_start_have_the_status_of_shells() {
        for (program, status) in [("no-such-program-of-hmc", 127), ("/etc/passwd", 126), ("/", 126)]
        {
            let (ending, ..) = run("start", |task| task.arguments = vec![program.into()]);
            let Ending::NotStarted(found, why) = ending else { panic!("{ending:?}") };
            assert!(found == status && why.contains(program), "{found}: {why}");
        }
        let (ending, ..) = run("cwd", |task| task.folder = PathBuf::from("/no/such folder"));
        let Ending::NotStarted(126, why) = ending else { panic!("{ending:?}") };
        assert!(why.contains("working directory /no/such folder"), "{why}");
    }

    #[test]
    fn outside_of_a_guest_nothing_happens() {
        let verdict = super::run(&super::Options { folder: "/".into() });
        assert!(verdict.detail().contains("not in the guest"), "{verdict:?}");
    }

    #[test]
    fn drain_reports_the_end_of_a_pipe() {
        let (mut pipe, mut end) = std::io::pipe().unwrap();
        rustix::fs::fcntl_setfl(&pipe, rustix::fs::OFlags::NONBLOCK).unwrap();
        let mut copy = Vec::new();
        end.write_all(b"one").unwrap();
        assert!(drain(&mut pipe, &mut copy).unwrap());
        end.write_all(b"two").unwrap();
        drop(end);
        assert!(!drain(&mut pipe, &mut copy).unwrap());
        assert_eq!(copy, b"onetwo");
    }
}
