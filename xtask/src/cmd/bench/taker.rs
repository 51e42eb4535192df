//! A measuring program that takes samples when it is told to, seen from here.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// How long a sample, and the setting up of a row, may take.
const PATIENCE: Duration = Duration::from_secs(300);

/// One line of a row, as the program prints it.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) unit: String,
    pub(crate) value: Option<f64>,
    /// Which series of the row it is, and its samples in nanoseconds; none where there are no samples.
    pub(crate) series: Option<u64>,
    pub(crate) samples: Vec<f64>,
    note: String,
}

impl Line {
    /// What was not measured, and why.
    pub(crate) fn note(&self) -> &str {
        &self.note
    }

    fn read(json: &serde_json::Value) -> Self {
        let text =
            |key: &str| json.get(key).and_then(|v| v.as_str()).unwrap_or_default().to_owned();
        let samples = json.get("samples").and_then(|v| v.as_array());
        Self {
            name: text("name"),
            unit: text("unit"),
            value: json.get("value").and_then(serde_json::Value::as_f64),
            series: json.get("series").and_then(serde_json::Value::as_u64),
            samples: samples.into_iter().flatten().filter_map(serde_json::Value::as_f64).collect(),
            note: text("note"),
        }
    }
}

/// What a program says next.
#[derive(Debug)]
pub(crate) enum Word {
    /// It is ready for a sample.
    Turn,
    /// The row is over: its lines, or why it could not be measured.
    Over(Result<Vec<Line>, String>),
}

/// A program. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Taker {
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
}

impl Taker {
    /// Starts it; `delay` is the share of its time that it wastes.
    ///
    /// # Errors
    /// Words.
    pub(crate) fn start(program: &Path, delay: f64) -> Result<Self, String> {
        let mut child = Command::new(program)
            .args(["--turns", "--delay", &delay.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| format!("cannot start {}: {e}", program.display()))?;
        let Some((stdin, stdout)) = child.stdin.take().zip(child.stdout.take()) else {
            return Err("no pipes to the measuring program".to_owned());
        };
        let (send, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self { child, stdin, lines })
    }

    /// Writes a line to the process and returns its next line.
    ///
    /// # Errors
    /// Words, when it is gone or silent.
    pub(crate) fn request(&mut self, line: &str) -> Result<Word, String> {
        writeln!(self.stdin, "{line}")
            .map_err(|e| format!("the measuring program is gone: {e}"))?;
        let said = self.lines.recv_timeout(PATIENCE);
        let said = said.map_err(|e| format!("the measuring program says nothing: {e}"))?;
        if said == "turn" {
            return Ok(Word::Turn);
        }
        let json: serde_json::Value =
            serde_json::from_str(&said).map_err(|e| format!("`{said}`: {e}"))?;
        let lines = json.get("lines").and_then(|v| v.as_array());
        Ok(Word::Over(match lines {
            Some(lines) => Ok(lines.iter().map(Line::read).collect()),
            None => Err(json.get("error").and_then(|e| e.as_str()).unwrap_or(&said).to_owned()),
        }))
    }
}

impl Drop for Taker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
