//! The other process of the tests: rank 1, which listens in a folder and obeys lines on its standard input.
//!
//! | line | what it does | what it answers |
//! |---|---|---|
//! | `mirror LEN` | waits for a tag, puts LEN bytes of its buffer back, answers the tag | `done` |
//! | `notified` | waits for the tag of a put | `done TAG` |
//! | `message LEN` | receives a message of LEN bytes and sends it back | `done` |
//! | `load LABEL` | puts into rank 0's window of that label, again and again, until that fails | `loading` after the first, `ended KIND` |
//! | `tag TAG` | sends a tag | `done` |

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use hmc_std::{Error, ErrorKind, Message, Peer, Result, Session, want};
use own_transport::domain::MemfileDomain;

const PATIENCE: Duration = Duration::from_secs(20);
/// Bytes of the buffer.
const BUFFER: u64 = 4 << 20;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("own_transport_peer: {e}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let dir = std::env::args().nth(1);
    let dir = dir.ok_or_else(|| invalid("name the folder to listen in"))?;
    let session = Session::builder(1).transport(MemfileDomain).uds(dir).buffer(BUFFER).start()?;
    write_line("ready");
    for line in std::io::stdin().lines() {
        let line = line.map_err(|e| invalid(&e.to_string()))?;
        let (verb, number) = line.split_once(' ').unwrap_or((&line, "0"));
        let number: u64 = number.parse().map_err(|_| invalid(&line))?;
        obey(&session, verb, number)?;
    }
    session.shutdown().within(PATIENCE).wait()
}

fn obey(session: &Session, verb: &str, number: u64) -> Result<()> {
    let peer = session.accept(0).within(PATIENCE).wait()?;
    match verb {
        "mirror" => {
            let tag = peer.recv(want::Tag).wait()?;
            peer.buffer()?.put(0, session.buffer().range(0, number)?).wait()?;
            peer.send(Message::Tag(tag)).wait()?;
            write_line("done");
        }
        "notified" => write_line(&format!("done {}", peer.recv(want::Notify).wait()?)),
        "message" => {
            let mut bytes = vec![0; usize::try_from(number).unwrap_or(0)];
            peer.recv_data(&mut bytes).wait().map(|d| d.bytes)?;
            peer.send_data(&bytes).wait()?;
            write_line("done");
        }
        "load" => {
            let e = load(session, &peer, number).expect_err("it goes on until it fails");
            write_line(&format!("ended {:?}", e.kind()));
        }
        "tag" => {
            peer.send(Message::Tag(number)).wait()?;
            write_line("done");
        }
        _ => return Err(invalid(verb)),
    }
    Ok(())
}

/// Puts into a window until that fails, a new byte each time.
fn load(session: &Session, peer: &Peer, label: u64) -> Result<()> {
    let window = peer.window(label).within(PATIENCE).wait()?;
    let mut span = session.memory().allocate(window.len())?.take_all()?;
    for n in 0u64.. {
        let [byte, ..] = n.to_le_bytes();
        span.fill(byte);
        span = window.put(0, span).within(PATIENCE).wait()?.memory;
        if n == 0 {
            write_line("loading");
        }
    }
    Ok(())
}

fn invalid(what: &str) -> Error {
    Error::new(ErrorKind::InvalidConfig, what)
}

/// A line to whoever started this process, who may have gone.
fn write_line(line: &str) {
    let mut out = std::io::stdout();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
