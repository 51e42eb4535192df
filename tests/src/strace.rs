//! `strace` at a process of a test: its calls fail, or it is killed in the middle of one, at a place that was chosen.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStderr, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

/// A running `strace`. It lets go of whom it watches when this value goes.
#[derive(Debug)]
pub struct Strace {
    child: Child,
    /// What it says; open for as long as it may say something.
    _words: BufReader<ChildStderr>,
}

impl Strace {
    /// Attaches to a process, as its options say: to its first thread, with `-f` to all. Returns when it has.
    ///
    /// # Errors
    /// Why it cannot: it is not installed, or this user may not.
    ///
    /// # Panics
    /// When it says nothing that can be read.
    pub fn attach(pid: u32, options: &[&str]) -> Result<Self, String> {
        let mut strace = Command::new("strace");
        strace.args(options).arg("-p").arg(pid.to_string()).stderr(Stdio::piped());
        let mut child = strace.spawn().map_err(|e| format!("no strace: {e}"))?;
        let mut words = BufReader::new(child.stderr.take().expect("piped"));
        let mut said = String::new();
        words.read_line(&mut said).expect("words");
        let mut strace = Self { child, _words: words };
        if said.contains("attached") {
            return Ok(strace);
        }
        strace.wait();
        Err(format!("strace may not attach: {said}"))
    }

    /// Waits until it has ended, because whom it watches has.
    pub fn wait(&mut self) {
        let _ = self.child.wait();
    }
}

impl Drop for Strace {
    fn drop(&mut self) {
        // By this signal it detaches before it ends; killed, it might leave a call half changed.
        if let Ok(None) = self.child.try_wait() {
            let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        }
        self.wait();
    }
}
