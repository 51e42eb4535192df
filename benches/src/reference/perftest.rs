//! `ucx_perftest` of the UCX that is measured: two processes on loopback, on the same processors, with the same UCX_TLS.

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::pages::spin;
use super::process::{Running, listens, output};
use crate::context::Context;
use crate::error::{Res, text};

/// The program, and where its libraries lie.
#[derive(Clone, Debug)]
pub(crate) struct Perftest {
    program: PathBuf,
    libraries: PathBuf,
}

/// What one run said, for one message.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Said {
    /// Nanoseconds: the whole time over the number of messages; of a latency test half a round trip.
    pub(crate) ns: f64,
    /// The middle one of its messages, in nanoseconds.
    pub(crate) middle_ns: f64,
}

impl Perftest {
    /// The one that belongs to a libucp: in the folder `bin` beside or above the library's own.
    pub(crate) fn of(library: &Path) -> Res<Self> {
        let libraries = library.parent().ok_or("a library without a folder")?;
        let places = libraries.ancestors().take(3).map(|folder| folder.join("bin/ucx_perftest"));
        let program = places.into_iter().find(|file| file.is_file()).ok_or_else(|| {
            format!(
                "no ucx_perftest beside {}: `apt install ucx-utils` for the system's UCX",
                library.display()
            )
        })?;
        Ok(Self { program, libraries: libraries.to_path_buf() })
    }

    /// One run of a test with messages of `len` bytes, over endpoints without error handling: UCX never tells them that
    /// the peer is gone.
    pub(crate) fn run(&self, context: &Context, test: &str, len: u64, times: u64) -> Res<Said> {
        self.run_with(context, test, len, times, &[])
    }

    /// The same over endpoints with error handling, as sessions need them.
    pub(crate) fn run_safe(
        &self,
        context: &Context,
        test: &str,
        len: u64,
        times: u64,
    ) -> Res<Said> {
        self.run_with(context, test, len, times, &["-e"])
    }

    fn run_with(
        &self,
        context: &Context,
        test: &str,
        len: u64,
        times: u64,
        options: &[&str],
    ) -> Res<Said> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(text)?;
        let port = listener.local_addr().map_err(text)?.port();
        drop(listener);
        let (home, away) = context.processors();
        let mut server = self.command(port, away);
        server.args(options);
        let mut server = Running(server.stdout(Stdio::null()).spawn().map_err(text)?);
        spin(|| listens(port) || server.0.try_wait().is_ok_and(|end| end.is_some()))?;
        let mut client = self.command(port, home);
        client.arg("127.0.0.1").args(["-t", test, "-f", "-v"]).args(options);
        client.stdout(Stdio::piped());
        // A tenth of the messages is warmth.
        for (option, value) in [("-s", len), ("-n", times), ("-w", times / 10 + 1)] {
            client.args([option, &value.to_string()]);
        }
        let said = output(client, "ucx_perftest")?;
        parse(&said).ok_or_else(|| format!("ucx_perftest said: {}", said.trim()))
    }

    fn command(&self, port: u16, cpu: Option<usize>) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["-p", &port.to_string()]);
        if let Some(cpu) = cpu {
            command.args(["-c", &cpu.to_string()]);
        }
        // The libraries of the same installation, whatever the program was linked with.
        command.env("LD_LIBRARY_PATH", &self.libraries);
        command.stdin(Stdio::null()).stderr(Stdio::null());
        command
    }
}

/// Reads the last line of the table: messages, then microseconds (the middle one, the last average, the whole one), then
/// rates.
fn parse(text: &str) -> Option<Said> {
    let line =
        text.lines().map(str::trim).rfind(|l| l.starts_with(|c: char| c.is_ascii_digit()))?;
    let mut words = line.split(',').map(|w| w.trim().parse::<f64>().ok());
    let (_, middle, _, whole) = (words.next()??, words.next()??, words.next()??, words.next()??);
    (whole > 0.0).then_some(Said { ns: whole * 1e3, middle_ns: middle * 1e3 })
}

#[cfg(test)]
mod tests {
    use super::{Said, parse};

    #[test]
    fn the_table_is_read() {
        let text =
            "iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr
     10000,1.182,1.253,1.254,49892.28,49892.28,798276,798276\n";
        assert_eq!(parse(text), Some(Said { ns: 1254.0, middle_ns: 1182.0 }));
        assert_eq!(parse("iterations,typical_lat\n"), None);
        assert_eq!(parse(""), None);
    }
}
