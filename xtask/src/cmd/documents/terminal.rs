//! A shell that runs the commands of a document one by one, as a reader types them, and what it prints.
//!
//! A command that is put into the background runs on until the shell ends, with all its processes.

use rustix::process::{Pid, Signal, kill_process_group};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, PipeReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Time for one command, its build included.
const LIMIT: Duration = Duration::from_secs(600);

/// Stands before the exit status of each command.
const MARKER: &str = "hmc-documents-status";

pub(super) struct Terminal {
    shell: Child,
    input: ChildStdin,
    lines: Receiver<String>,
    /// Free ports in place of those that the document names on the loopback address.
    ports: BTreeMap<String, u16>,
}

impl Terminal {
    /// Starts a shell in a folder, with the folder of `hmc` in the path; control sockets are below `own`, what is built in `target`.
    ///
    /// # Errors
    /// Words.
    pub(super) fn start(
        work: &Path,
        hmc: &Path,
        own: &Path,
        target: &Path,
    ) -> Result<Self, String> {
        let failed = |e: std::io::Error| format!("cannot start bash: {e}");
        let (from, to) = std::io::pipe().map_err(failed)?;
        let mut path = hmc.parent().unwrap_or(hmc).as_os_str().to_owned();
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        let mut command = Command::new("bash");
        command.args(["--norc", "--noprofile"]).current_dir(work).process_group(0);
        command.env("PATH", path).env("HMC_UDS_DIR", own.join("sockets"));
        // Projects that stand apart take what was built for the workspace.
        command.env("CARGO_TARGET_DIR", target);
        command.stdin(Stdio::piped()).stdout(to.try_clone().map_err(failed)?).stderr(to);
        let mut shell = command.spawn().map_err(failed)?;
        // It has the last ends of the pipe that can be written.
        drop(command);
        let input = shell.stdin.take().ok_or("bash has no input")?;
        Ok(Self { shell, input, lines: lines_of(from), ports: BTreeMap::new() })
    }

    /// Runs a command, and waits for its end and for the lines that it prints, in this order; `...` in them is any text.
    ///
    /// # Errors
    /// Words, with what it printed: another exit status than 0, a line that did not come, or no end.
    pub(super) fn run(&mut self, text: &str, output: &[String]) -> Result<(), String> {
        let text = self.with_free_ports(text)?;
        writeln!(self.input, "{{ {text}\n}} </dev/null\nprintf '\\n%s %s\\n' {MARKER} $?")
            .map_err(|e| format!("bash takes no command: {e}"))?;
        let deadline = Instant::now().checked_add(LIMIT).ok_or("no such time")?;
        let (mut wanted, mut ended) = (output.iter().peekable(), false);
        let mut printed = String::new();
        while !ended || wanted.peek().is_some() {
            let left = deadline.saturating_duration_since(Instant::now());
            // In the background it prints after its status.
            let left = if ended { left.min(Duration::from_secs(30)) } else { left };
            let Ok(line) = self.lines.recv_timeout(left) else {
                let what = wanted.peek().map_or("no end", |line| line.as_str());
                return Err(format!("waited in vain: {what}\n{printed}"));
            };
            printed.push_str(&line);
            printed.push('\n');
            if let Some(status) = line.strip_prefix(MARKER) {
                if status != " 0" {
                    return Err(format!("exit status{status}\n{printed}"));
                }
                ended = true;
            } else if wanted.peek().is_some_and(|pattern| matches(pattern, &line)) {
                wanted.next();
            }
        }
        Ok(())
    }

    fn with_free_ports(&mut self, text: &str) -> Result<String, String> {
        const LOOPBACK: &str = "127.0.0.1:";
        let mut parts = text.split(LOOPBACK);
        let mut out = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let digits = part.chars().take_while(char::is_ascii_digit).count();
            let (port, rest) = part.split_at(digits);
            let free = match self.ports.get(port) {
                Some(free) => *free,
                None => free_port().map_err(|e| format!("no free port: {e}"))?,
            };
            self.ports.insert(port.to_owned(), free);
            out.push_str(&format!("{LOOPBACK}{free}{rest}"));
        }
        Ok(out)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It was not waited for, so that its number names this group and no other.
        let _ = kill_process_group(Pid::from_child(&self.shell), Signal::KILL);
        let _ = self.shell.wait();
    }
}

fn lines_of(from: PipeReader) -> Receiver<String> {
    let (send, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(from).split(b'\n').map_while(Result::ok) {
            // A program may end its lines as a terminal wants.
            let line = String::from_utf8_lossy(&line).trim_end_matches('\r').to_owned();
            if send.send(line).is_err() {
                break;
            }
        }
    });
    lines
}

fn free_port() -> std::io::Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Whether a line is what a pattern says, where `...` stands for any text.
fn matches(pattern: &str, line: &str) -> bool {
    let mut parts = pattern.split("...");
    let Some(mut rest) = line.strip_prefix(parts.next().unwrap_or_default()) else {
        return false;
    };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        let Some((_, after)) = rest.split_once(part) else {
            return false;
        };
        rest = after;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::{Terminal, matches};

    #[test]
    fn patterns_stand_for_whole_lines() {
        for (pattern, line, is) in [
            ("a b", "a b", true),
            ("a b", "a b c", false),
            ("a ...", "a b c", true),
            ("a ... c", "a b c", true),
            ("a ... c", "a b d", false),
            ("... b ... d", "a b c d", true),
            ("... x ... d", "a b c d", false),
        ] {
            assert_eq!(matches(pattern, line), is, "{pattern}");
        }
    }

    #[test]
    fn a_command_fails_by_its_status_and_by_what_it_does_not_print() {
        let folder = std::env::temp_dir();
        let mut shell = Terminal::start(&folder, &folder, &folder, &folder).unwrap();
        let lines = |lines: &[&str]| lines.iter().map(|l| (*l).to_owned()).collect::<Vec<_>>();
        shell.run("x=1 && echo one two", &lines(&["one ..."])).unwrap();
        // The same shell, and a background command that prints later.
        shell.run("(read -t 0.2 < <(:); echo \"$x behind\") &", &lines(&["1 behind"])).unwrap();
        assert!(shell.run("false", &[]).unwrap_err().contains("exit status 1"));
        shell
            .run(
                "a=127.0.0.1:7000; b=127.0.0.1:7000; test $a = $b; test $a != 127.0.0.1:$((7000))",
                &[],
            )
            .unwrap();
    }
}
