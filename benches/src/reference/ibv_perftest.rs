//! The programs of perftest (`ib_write_bw` and its kin): two processes on this machine, over the device and GID of the sessions.

use std::fmt;
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Command, Stdio};

use hmc_hw::verbs::library::{Library, Search};
use hmc_hw::verbs::select::{Port, Selector};

use super::pages::spin;
use super::process::{Running, listens, output};
use crate::context::Context;
use crate::error::{Res, text};

/// Messages up to this length are counted by their rate: the bandwidth has too few digits for them.
const SHORT: u64 = 4096;

/// The programs, over one device.
#[derive(Clone, Debug)]
pub(crate) struct Perftest {
    device: String,
    gid: u8,
}

impl fmt::Display for Perftest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, GID {}", self.device, self.gid)
    }
}

/// A run of one program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Test {
    /// The name of the program.
    pub(crate) program: &'static str,
    /// Bytes of a message.
    pub(crate) len: u64,
    /// Messages.
    pub(crate) messages: u32,
    /// Messages in flight; none for latency.
    pub(crate) depth: Option<u32>,
}

impl Perftest {
    /// Over the port and GID that sessions use.
    ///
    /// # Errors
    /// Why sessions have none.
    pub(crate) fn of_sessions() -> Res<Self> {
        let library = Library::load(&Search::default()).map_err(text)?;
        let wanted = match std::env::var("HMC_RDMA_PORT") {
            Ok(name) if !name.is_empty() => name.parse().map_err(text)?,
            _ => Selector::default(),
        };
        let port = Port::open(library, &wanted).map_err(text)?;
        Ok(Self { device: port.device().name().to_owned(), gid: port.gid_index() })
    }

    /// Nanoseconds for a message: the whole time over the number of messages; of a latency test the mean time of one, which is half a
    /// round trip for `ib_write_lat`.
    pub(crate) fn run(&self, context: &Context, test: Test) -> Res<f64> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(text)?;
        let port = listener.local_addr().map_err(text)?.port();
        drop(listener);
        let (home, away) = context.processors();
        let mut server = self.command(test, port, away);
        server.stdout(Stdio::null());
        let mut server = Running(server.spawn().map_err(|e| missing(test.program, &e))?);
        spin(|| listens(port) || server.0.try_wait().is_ok_and(|end| end.is_some()))?;
        let mut client = self.command(test, port, home);
        client.arg("127.0.0.1").stdout(Stdio::piped());
        let said = output(client, test.program)?;
        parse(&said, test).ok_or_else(|| format!("{} said: {}", test.program, said.trim()))
    }

    fn command(&self, test: Test, port: u16, cpu: Option<usize>) -> Command {
        let mut command = match cpu {
            Some(cpu) => {
                let mut pinned = Command::new("taskset");
                pinned.args(["-c", &cpu.to_string(), test.program]);
                pinned
            }
            None => Command::new(test.program),
        };
        command.args(["-F", "-d", &self.device, "-x", &self.gid.to_string()]);
        for (option, value) in
            [("-p", u64::from(port)), ("-s", test.len), ("-n", u64::from(test.messages))]
        {
            command.args([option, &value.to_string()]);
        }
        if let Some(depth) = test.depth {
            command.args(["-t", &depth.to_string()]);
        }
        command.stdin(Stdio::null()).stderr(Stdio::null());
        command
    }
}

fn missing(program: &str, e: &std::io::Error) -> String {
    format!("cannot start {program} by taskset: {e}; `apt install perftest`")
}

/// Reads the last line of the table. Of bandwidth: bytes, messages, peak and mean in MiB/s, millions of messages a second. Of latency:
/// bytes, messages, then microseconds: the least, the greatest, the middle one, the mean.
fn parse(said: &str, test: Test) -> Option<f64> {
    let is_row = |line: &&str| line.starts_with(|c: char| c.is_ascii_digit());
    let line = said.lines().map(str::trim).rfind(is_row)?;
    let words: Vec<f64> = line.split_whitespace().filter_map(|w| w.parse().ok()).collect();
    let at = |index: usize| words.get(index).copied().filter(|value| *value > 0.0);
    if at(0)? as u64 != test.len {
        return None;
    }
    Some(match test.depth {
        None => at(5)? * 1e3,
        Some(_) if test.len <= SHORT => 1e3 / at(4)?,
        Some(_) => test.len as f64 / (at(3)? * f64::from(1 << 20)) * 1e9,
    })
}

#[cfg(test)]
mod tests {
    use super::{Test, parse};

    fn test(len: u64, depth: Option<u32>) -> Test {
        Test { program: "ib_write_bw", len, messages: 1000, depth }
    }

    #[test]
    fn the_tables_are_read() {
        let of = |head: &str, row: &str| format!("---\n {head}\n {row}\n---\n");
        let head =
            "#bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]";
        let said =
            of(head, "65536      1000             12.31              10.00              0.000160");
        assert_eq!(parse(&said, test(65536, Some(16))), Some(6_250_000.0));
        let said =
            of(head, "8          1000             0.03               0.03               0.004000");
        assert_eq!(parse(&said, test(8, Some(64))), Some(250_000.0));
        let head = "#bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]";
        let said = of(
            head,
            "8       1000          80.10          900.00       90.00   	       95.50        	12.0",
        );
        assert_eq!(parse(&said, test(8, None)), Some(95_500.0));
        assert_eq!(parse(&said, test(16, None)), None, "another test's");
        assert_eq!(parse("Couldn't connect", test(8, None)), None);
        let said = of(head, "65536 1000 0.00 0.00 0.000000");
        assert_eq!(parse(&said, test(65536, Some(16))), None, "no speed");
    }
}
