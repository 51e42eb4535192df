//! Programs whose result is what they print, and a port on which one listens.

use std::io::Read as _;
use std::process::{Child, Command};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use crate::error::{Res, text};

/// How long one run may take. Its own measurement takes a second at the most, some more on a processor that is emulated.
const PATIENCE: Duration = Duration::from_secs(60);

/// A process that is ended with its handle.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a program to its end, or to the end of our patience, and gives what it printed.
pub(crate) fn output(mut command: Command, name: &str) -> Res<String> {
    let child = command.spawn().map_err(|e| format!("cannot start {name}: {e}"))?;
    let mut child = Running(child);
    let mut pipe = child.0.stdout.take().ok_or_else(|| format!("no pipe from {name}"))?;
    let (send, all) = channel();
    std::thread::spawn(move || {
        let mut text = String::new();
        let read = pipe.read_to_string(&mut text);
        let _ = send.send(read.map(|_| text));
    });
    let begun = Instant::now();
    let text_of_it = all
        .recv_timeout(PATIENCE)
        .map_err(|_| format!("{name} was silent for {} s", begun.elapsed().as_secs()))?;
    text_of_it.map_err(text)
}

/// Whether somebody listens at that port (proc(5), /proc/net/tcp: local address, remote address, state 0A).
pub(crate) fn listens(port: u16) -> bool {
    let suffix = format!(":{port:04X}");
    std::fs::read_to_string("/proc/net/tcp").is_ok_and(|table| {
        table.lines().any(|line| {
            let mut words = line.split_whitespace().skip(1);
            words.next().is_some_and(|w| w.ends_with(&suffix)) && words.nth(1) == Some("0A")
        })
    })
}
