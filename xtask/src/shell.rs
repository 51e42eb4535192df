//! Runs other programs: with a heading, a deadline, and a copy of their output.
//!
//! A program that outlives its deadline is killed together with all its descendants, so a hanging
//! test cannot hang the run.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// The result of a program.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Whether it ended by itself with status 0.
    pub(crate) success: bool,
    /// Its exit status, where it has one.
    pub(crate) code: Option<i32>,
    /// Whether it was killed at its deadline.
    pub(crate) timed_out: bool,
    /// Its output on stdout.
    pub(crate) stdout: String,
    /// Its output on stderr; empty if that went to the terminal.
    pub(crate) stderr: String,
}

impl Outcome {
    /// Why it is no success, in words.
    pub(crate) fn why(&self) -> String {
        match (self.timed_out, self.code) {
            (true, _) => "killed at its deadline".to_owned(),
            (false, Some(code)) => format!("exit status {code}"),
            (false, None) => "ended by a signal".to_owned(),
        }
    }
}

/// The cargo that runs this program, or the one in the path.
pub(crate) fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// A cargo of another toolchain, through rustup's proxy. The variables by which the outer cargo
/// names its own toolchain are removed: with them the proxy would start the outer one again.
pub(crate) fn cargo_of(toolchain: &str) -> Command {
    let mut command = Command::new("cargo");
    command.arg(format!("+{toolchain}"));
    for name in ["CARGO", "RUSTC", "RUSTDOC", "RUSTUP_TOOLCHAIN", "RUSTC_WRAPPER"] {
        command.env_remove(name);
    }
    // A question whether a toolchain is there must not bring it.
    command.env("RUSTUP_AUTO_INSTALL", "0");
    command
}

/// Runs a build of programs of a package, given the command without what names them. Where the first of them is.
///
/// # Errors
/// Words.
pub(crate) fn built(
    command: &mut Command,
    package: &str,
    programs: &[&str],
) -> Result<PathBuf, String> {
    command.args(["--package", package, "--message-format=json-render-diagnostics"]);
    for program in programs {
        command.args(["--bin", program]);
    }
    let out = capture(command)?;
    if !out.success {
        return Err(format!("`{}`: {}\n{}", shown(command), out.why(), out.stderr));
    }
    let first = programs.first().copied().unwrap_or_default();
    let place = out.stdout.lines().find_map(|line| {
        let said: Value = serde_json::from_str(line).ok()?;
        let is_program = said.pointer("/target/name")?.as_str()? == first;
        let executable = said.get("executable")?.as_str()?;
        is_program.then(|| PathBuf::from(executable))
    });
    place.ok_or_else(|| format!("cargo names no program `{first}`"))
}

/// The program and its arguments as one would type them.
pub(crate) fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let mut words = vec![program.file_name().unwrap_or_default().to_string_lossy().into_owned()];
    words.extend(command.get_args().map(|a| a.to_string_lossy().into_owned()));
    words.join(" ")
}

/// Runs a program silently and keeps both its outputs.
///
/// # Errors
/// Words, when it cannot be started.
pub(crate) fn capture(command: &mut Command) -> Result<Outcome, String> {
    let out = command
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("cannot start `{}`: {e}", shown(command)))?;
    Ok(Outcome {
        success: out.status.success(),
        code: out.status.code(),
        timed_out: false,
        stdout: String::from_utf8_lossy(&out.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&out.stderr).into_owned(),
    })
}

/// Runs a program, shows its output as it comes and keeps a copy of its stdout.
///
/// # Errors
/// Words, when it cannot be started.
pub(crate) fn stream(command: &mut Command, deadline: Duration) -> Result<Outcome, String> {
    println!("$ {}", shown(command));
    let out = watch(command, deadline, |line| {
        print!("{line}");
        // A closed terminal is no reason to stop a test run.
        let _ = std::io::stdout().flush();
        true
    })?;
    if out.timed_out {
        println!("killed after {} s: `{}`", deadline.as_secs(), shown(command));
    }
    Ok(out)
}

/// Runs a program, hands each line of its stdout to `more` as it comes, and keeps a copy; once `more` says no, the program
/// is killed with all that descend from it.
///
/// # Errors
/// Words, when it cannot be started.
pub(crate) fn watch(
    command: &mut Command,
    deadline: Duration,
    mut more: impl FnMut(&str) -> bool,
) -> Result<Outcome, String> {
    let begun = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| format!("cannot start `{}`: {e}", shown(command)))?;
    let pid = child.id();
    let stdout = child.stdout.take();
    let (send, lines) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        let Some(pipe) = stdout else { return };
        let mut pipe = BufReader::new(pipe);
        let mut line = Vec::new();
        while matches!(pipe.read_until(b'\n', &mut line), Ok(n) if n > 0) {
            let text = String::from_utf8_lossy(&line).into_owned();
            line.clear();
            if send.send(text).is_err() {
                return;
            }
        }
    });
    let mut copy = String::new();
    let mut timed_out = false;
    let mut stopped = false;
    loop {
        let left = deadline.saturating_sub(begun.elapsed());
        match lines.recv_timeout(left) {
            Ok(line) if !left.is_zero() => {
                copy.push_str(&line);
                if !more(&line) {
                    stopped = true;
                    kill_tree(pid);
                    break;
                }
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
            // One that prints without end has a line ready at its deadline, too.
            Ok(_) | Err(mpsc::RecvTimeoutError::Timeout) => {
                timed_out = true;
                kill_tree(pid);
                break;
            }
        }
    }
    let status = child.wait().map_err(|e| format!("cannot wait for `{}`: {e}", shown(command)))?;
    // After a kill some descendant may hold the pipe open for a moment more: the thread is left
    // to end by itself then.
    if !timed_out && !stopped && reader.join().is_err() {
        return Err("the thread that reads the output panicked".to_owned());
    }
    Ok(Outcome {
        success: status.success() && !timed_out && !stopped,
        code: status.code(),
        timed_out,
        stdout: copy,
        stderr: String::new(),
    })
}

/// Runs a program silently in a process group of its own and keeps both its outputs. When it has ended, or at its deadline, the
/// whole group is killed.
///
/// # Errors
/// Words, when it cannot be started or watched.
pub(crate) fn within(command: &mut Command, deadline: Duration) -> Result<Outcome, String> {
    let name = shown(command);
    let failed = |what: &str, e: &dyn std::fmt::Display| format!("cannot {what} `{name}`: {e}");
    let (stdin, out, err) = (Stdio::null(), Stdio::piped(), Stdio::piped());
    let command = command.stdin(stdin).stdout(out).stderr(err).process_group(0);
    let mut child = command.spawn().map_err(|e| failed("start", &e))?;
    let outputs = (child.stdout.take().map(read_all), child.stderr.take().map(read_all));
    let group = Pid::from_child(&child);
    let watched = pidfd_open(group, PidfdFlags::empty()).and_then(|process| {
        let mut fds = [PollFd::new(&process, PollFlags::IN)];
        let timeout = Timespec::try_from(deadline).map_err(|_| Errno::INVAL)?;
        poll(&mut fds, Some(&timeout))
    });
    // It was not waited for, so that its number names this group and no other.
    let _ = kill_process_group(group, Signal::KILL);
    let status = child.wait().map_err(|e| failed("wait for", &e))?;
    let ended = watched.map_err(|e| failed("watch", &e))?;
    let text = |reader: Option<Reader>| {
        reader
            .and_then(|r| r.join().ok())
            .map_or_else(String::new, |bytes| String::from_utf8_lossy(&bytes).into_owned())
    };
    let (stdout, stderr) = (text(outputs.0), text(outputs.1));
    let timed_out = ended == 0;
    let success = status.success() && !timed_out;
    Ok(Outcome { success, code: status.code(), timed_out, stdout, stderr })
}

/// A thread that reads an output to its end.
type Reader = std::thread::JoinHandle<Vec<u8>>;

fn read_all(mut from: impl Read + Send + 'static) -> Reader {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // What came before an error counts.
        let _ = from.read_to_end(&mut bytes);
        bytes
    })
}

/// Kills a process and all that descend from it. Each is stopped before its children are listed:
/// it can start no more of them, and as it lives they are not given to another parent.
fn kill_tree(root: u32) {
    let mut found = vec![root];
    let mut next = 0_usize;
    while let Some(&pid) = found.get(next) {
        signal(pid, Signal::STOP);
        found.extend(children_of(pid));
        next = next.saturating_add(1);
    }
    for pid in found {
        signal(pid, Signal::KILL);
    }
}

fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // Gone already is as good as killed.
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// The children of a process, from /proc/PID/task/TID/children (proc(5)).
fn children_of(pid: u32) -> Vec<u32> {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    tasks
        .flatten()
        .filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok())
        .flat_map(|text| text.split_whitespace().filter_map(|w| w.parse().ok()).collect::<Vec<_>>())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{capture, stream, watch, within};
    use std::io::Read;
    use std::process::Command;
    use std::time::{Duration, Instant};

    #[test]
    fn output_and_status_come_back() {
        let out = stream(
            Command::new("sh").args(["-c", "echo one; echo two; exit 3"]),
            Duration::from_secs(30),
        );
        let out = out.unwrap_or_else(|e| panic!("{e}"));
        assert_eq!((out.success, out.code, out.stdout.as_str()), (false, Some(3), "one\ntwo\n"));
        assert_eq!(out.why(), "exit status 3");
    }

    #[test]
    fn a_program_that_hangs_is_killed_with_its_children() {
        // The grandchild holds a pipe open: its end is seen as the end of the pipe.
        let (mut held, given) = std::io::pipe().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 100 & sleep 100"]).stderr(given);
        let begun = Instant::now();
        let out = stream(&mut command, Duration::from_millis(500)).unwrap();
        drop(command);
        assert!(out.timed_out && !out.success);
        assert_eq!(held.read(&mut [0]).unwrap(), 0);
        assert!(begun.elapsed() < Duration::from_secs(50), "the grandchild lived on");
    }

    #[test]
    fn a_program_that_prints_without_end_is_killed() {
        // Lines come faster than they are taken, so there is always one.
        let begun = Instant::now();
        let out = watch(Command::new("yes").arg("line"), Duration::from_millis(200), |_| {
            std::hint::black_box(vec![1_u8; 1 << 14]);
            begun.elapsed() < Duration::from_secs(10)
        });
        assert!(out.unwrap().timed_out, "it was not looked at the time");
    }

    #[test]
    fn a_program_is_killed_once_a_line_is_enough() {
        let begun = Instant::now();
        let mut command = Command::new("sh");
        command.args(["-c", "echo one; echo two; sleep 100"]);
        let out = watch(&mut command, Duration::from_secs(60), |line| line != "two\n").unwrap();
        assert!(!out.success && !out.timed_out);
        assert_eq!(out.stdout, "one\ntwo\n");
        assert!(begun.elapsed() < Duration::from_secs(50));
    }

    #[test]
    fn a_group_is_killed_when_its_first_process_ends_or_hangs() {
        for (script, timed_out) in [("sleep 100 & echo one; exit 3", false), ("sleep 100", true)] {
            let begun = Instant::now();
            let deadline = Duration::from_millis(if timed_out { 300 } else { 50_000 });
            let out = within(Command::new("sh").args(["-c", script]), deadline).unwrap();
            assert_eq!((out.success, out.timed_out), (false, timed_out), "{script}");
            assert!(timed_out || (out.code, out.stdout.as_str()) == (Some(3), "one\n"));
            // The one that it left had its outputs.
            assert!(begun.elapsed() < Duration::from_secs(20), "{script}");
        }
    }

    #[test]
    fn a_missing_program_is_an_error_with_its_name() {
        let why = capture(&mut Command::new("no-such-program-of-hmc")).err().unwrap_or_default();
        assert!(why.contains("no-such-program-of-hmc"), "{why}");
    }
}
