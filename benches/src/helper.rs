//! The handle of the other process: starts it, sends commands, receives replies, and ends it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use crate::error::{Res, text};

/// Time limit of one reply.
const PATIENCE: Duration = Duration::from_secs(120);

/// A passive process. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Helper {
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
}

impl Helper {
    /// Starts this program again as a passive process, on `cpu` if one is named.
    pub(crate) fn start(cpu: Option<usize>) -> Res<Self> {
        let exe = std::env::current_exe().map_err(text)?;
        let mut command = Command::new(exe);
        command.arg("--passive");
        if let Some(cpu) = cpu {
            command.arg("--cpu").arg(cpu.to_string());
        }
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| format!("cannot start a helper process: {e}"))?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let Some((stdin, stdout)) = pipes else {
            let _ = child.kill();
            let _ = child.wait();
            return Err("no pipes to the helper process".to_owned());
        };
        let (send, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        let mut this = Self { child, stdin, lines };
        this.receive()?;
        Ok(this)
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a command.
    pub(crate) fn send(&mut self, line: &str) -> Res<()> {
        writeln!(self.stdin, "{line}").map_err(|e| format!("the helper process is gone: {e}"))
    }

    /// Its next line: `ok ...`, without the `ok`.
    pub(crate) fn receive(&mut self) -> Res<String> {
        self.receive_within(PATIENCE)?.ok_or_else(silent)
    }

    /// Its next line, while `work` is called again and again.
    pub(crate) fn receive_while(&mut self, mut work: impl FnMut()) -> Res<String> {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            work();
            if let Some(line) = self.receive_within(Duration::ZERO)? {
                return Ok(line);
            }
        }
        Err(silent())
    }

    fn receive_within(&mut self, patience: Duration) -> Res<Option<String>> {
        match self.lines.recv_timeout(patience) {
            Ok(line) => match line.strip_prefix("ok") {
                Some(rest) => Ok(Some(rest.trim().to_owned())),
                None => Err(format!("the helper process says: {line}")),
            },
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err("the helper process ended".to_owned()),
        }
    }

    /// Sends a command and receives the reply.
    pub(crate) fn request(&mut self, line: &str) -> Res<String> {
        self.send(line)?;
        self.receive()
    }

    /// Lets `for_how_long` pass, in which it must print nothing.
    pub(crate) fn stay_quiet(&mut self, for_how_long: Duration) -> Res<()> {
        match self.lines.recv_timeout(for_how_long) {
            Err(RecvTimeoutError::Timeout) => Ok(()),
            Ok(line) => Err(format!("the helper process says: {line}")),
            Err(RecvTimeoutError::Disconnected) => Err("the helper process ended".to_owned()),
        }
    }
}

fn silent() -> String {
    format!("the helper process was silent for {} s", PATIENCE.as_secs())
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
