//! The passive process: executes commands from its standard input, one a line, and replies `ok ...` or an error.
//!
//! It is the target of ours and the other end of every reference. It is killed with its parent.

use hmc_std::{Message, want};
use std::collections::HashMap;
use std::io::{BufRead as _, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use hmc_core::types::{Access, ConnType};
use hmc_std::address::Address;
use hmc_std::session::Session;
use hmc_std::window::Window;

use crate::error::{Res, text};
use crate::in_flight::InFlight;
use crate::machine;
use crate::measure::Delay;
use crate::reference::cma;
use crate::reference::pages::{SharedPages, spin};
use crate::reference::socket::{Listener, PageBytes, Stream};
use crate::reference::ucx_raw::End;
use crate::rows::group::{Member, What};
use crate::rows::ucx::latency;

#[derive(Default)]
struct PeerProcess {
    sessions: HashMap<u32, Session>,
    windows: Vec<Window<hmc_std::Span>>,
    pages: Option<SharedPages>,
    listener: Option<Listener>,
    stream: Option<Stream>,
    bytes: Option<PageBytes>,
    raw: Option<End>,
    member: Option<Member>,
    /// Where the memory of the last heap window lies, and how long it is.
    heap: Option<(usize, usize)>,
}

/// Runs until standard input ends.
pub(crate) fn main(cpu: Option<usize>) -> ExitCode {
    // prctl(2), PR_SET_PDEATHSIG: the process ends when its parent is killed.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    machine::raise_open_files();
    // Without a processor of its own it is not pinned to its parent's.
    if let Err(why) = cpu.map_or_else(machine::unpin, machine::pin) {
        println!("{why}");
        return ExitCode::FAILURE;
    }
    let mut me = PeerProcess::default();
    write_line("ok");
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        match me.obey(&line) {
            Ok(answer) => write_line(&format!("ok {answer}")),
            Err(why) => write_line(&why),
        }
    }
    ExitCode::SUCCESS
}

fn write_line(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}");
    let _ = out.flush();
}

/// The words after the command.
struct Words<'a>(std::str::SplitWhitespace<'a>);

impl<'a> Words<'a> {
    fn word(&mut self) -> Res<&'a str> {
        self.0.next().ok_or_else(|| "a word is missing".to_owned())
    }

    fn number<T: std::str::FromStr>(&mut self) -> Res<T> {
        let word = self.word()?;
        word.parse().map_err(|_| format!("`{word}` is no number"))
    }
}

impl PeerProcess {
    fn obey(&mut self, line: &str) -> Res<String> {
        let mut words = Words(line.split_whitespace());
        let w = &mut words;
        match w.word()? {
            "session" => return self.session(w),
            "end" => drop(self.sessions.remove(&w.number()?)),
            "flags" => self.flags(w)?,
            "tags" => self.tags(w)?,
            "receive" => self.receive(w)?,
            "pong" => self.pong(w)?,
            "window" => self.window(w)?,
            "unwindow" => self.windows.clear(),
            "share" => return self.share(w),
            "flagref" => self.flag_reference(w)?,
            "listen" => return self.listen(w),
            "accept" => self.stream = Some(self.listener.as_ref().ok_or("no listener")?.accept()?),
            "echo" => {
                let (size, rounds, spin) = (w.number()?, w.number()?, w.word()? == "spin");
                let stream = self.stream()?;
                stream.spin(spin)?;
                stream.echo(size, rounds)?;
                stream.spin(false)?;
            }
            "sink" => self.sink(w)?,
            "cma" => return self.cma(w),
            "idle" => self.idle(w)?,
            "raw" => {
                let end = self.raw.insert(End::new(w.number()?)?);
                return end.conn_info();
            }
            "rawpeer" => {
                let end = self.raw.as_mut().ok_or("no raw end")?;
                end.connect(w.word()?)?;
                end.open()?;
            }
            // member RANK COUNT FOLDER: of the group of the first COUNT ranks
            "member" => {
                let (rank, count) = (w.number()?, w.number()?);
                self.member = Some(Member::new(rank, count, Path::new(w.word()?))?);
            }
            // collect WHAT BYTES TIMES
            "collect" => {
                let (what, len, times) = (What::parse(w.word()?)?, w.number()?, w.number()?);
                self.member.as_mut().ok_or("no member")?.run(what, len, times, Delay(0.0))?;
            }
            "rawserve" => self.raw()?.serve(w.number()?)?,
            "rawflags" => {
                latency::answer(self.raw()?, w.number()?, w.number()?, w.number()?)?;
            }
            other => return Err(format!("unknown command {other}")),
        }
        Ok(String::new())
    }

    fn of(&self, rank: u32) -> Res<&Session> {
        self.sessions.get(&rank).ok_or_else(|| format!("no session of rank {rank}"))
    }

    fn raw(&self) -> Res<&End> {
        self.raw.as_ref().ok_or_else(|| "no raw end".to_owned())
    }

    fn stream(&mut self) -> Res<&mut Stream> {
        self.stream.as_mut().ok_or_else(|| "no stream".to_owned())
    }

    /// `session RANK FOLDER BYTES [ucx|still]`: a session with all listeners, over UCX or another transport without heartbeats.
    /// Replies with its TCP address.
    fn session(&mut self, w: &mut Words<'_>) -> Res<String> {
        let rank = w.number()?;
        let folder = w.word()?;
        let bytes = w.number()?;
        let mut session = Session::builder(rank).uds(folder).tcp("127.0.0.1:0").buffer(bytes);
        session = match w.word() {
            Ok("ucx") => session.ucx().heartbeat(None),
            Ok("still") => session.heartbeat(None),
            _ => session,
        };
        let session = session.start().map_err(text)?;
        session.buffer().fill(0, bytes, 3).map_err(text)?;
        let listeners = session.info().listeners;
        let address = listeners.first().ok_or("no TCP listener")?.address().to_string();
        self.sessions.insert(rank, session);
        Ok(address)
    }

    /// `flags RANK PEER SIZE FIRST ROUNDS both|last|DEPTH`: answers each put of SIZE bytes at 0 with one to 8192. It is there when its
    /// first and last word are, or when the last is, as `ucp_put_lat` has it. With a number, so many answers may be in flight.
    fn flags(&self, w: &mut Words<'_>) -> Res<()> {
        let session = self.of(w.number()?)?;
        let peer = session.peer(w.number()?).map_err(text)?;
        let size: u64 = w.number()?;
        let first: u64 = w.number()?;
        let rounds: u64 = w.number()?;
        let how = w.word()?;
        let both = how == "both" && size > 8;
        let mut in_flight = how.parse().ok().map(InFlight::new);
        let buffer = session.buffer();
        let (remote, answer) =
            (peer.buffer().map_err(text)?, buffer.range(16384, size).map_err(text)?);
        let seen = |at: u64, seq: u64| buffer.load_flag(at).is_ok_and(|v| v == seq);
        for seq in first..first + rounds {
            spin(|| seen(size - 8, seq) && (!both || seen(0, seq)))?;
            if both || size == 8 {
                buffer.store_flag(16384, seq).map_err(text)?;
            }
            if size > 8 {
                buffer.store_flag(16384 + size - 8, seq).map_err(text)?;
            }
            match &mut in_flight {
                Some(ops) => ops.begin(|| remote.put(8192, answer).start_blocking())?,
                None => remote.put(8192, answer).wait().map(drop).map_err(text)?,
            }
        }
        in_flight.map_or(Ok(()), InFlight::finish)
    }

    /// `flagref SIZE FIRST ROUNDS`: the same with plain copies in the shared pages.
    fn flag_reference(&self, w: &mut Words<'_>) -> Res<()> {
        let pages = self.pages.as_ref().ok_or("no pages")?;
        let size: usize = w.number()?;
        let first: u64 = w.number()?;
        let rounds: u64 = w.number()?;
        let mut body = vec![5u8; size - 8];
        for seq in first..first + rounds {
            pages.wait(size - 8, seq)?;
            pages.wait(0, seq)?;
            if let Some(word) = body.first_chunk_mut::<8>() {
                *word = seq.to_ne_bytes();
                pages.copy_in(8192, &body);
            }
            pages.store(8192 + size - 8, seq);
        }
        Ok(())
    }

    /// `tags RANK PEER ROUNDS`: answers tags.
    fn tags(&self, w: &mut Words<'_>) -> Res<()> {
        let session = self.of(w.number()?)?;
        let peer = session.peer(w.number()?).map_err(text)?;
        let rounds: u64 = w.number()?;
        for _ in 0..rounds {
            let tag = peer.recv(want::Tag).wait().map_err(text)?;
            peer.send(Message::Tag(tag)).wait().map_err(text)?;
        }
        Ok(())
    }

    /// `receive RANK PEER BYTES COUNT buffer|slice`: receives messages to the start of the buffer, or to memory that is lent.
    fn receive(&self, w: &mut Words<'_>) -> Res<()> {
        let session = self.of(w.number()?)?;
        let peer = session.peer(w.number()?).map_err(text)?;
        let bytes: u64 = w.number()?;
        let count: u64 = w.number()?;
        let mut slice = match w.word()? {
            "slice" => Some(vec![3u8; usize::try_from(bytes).map_err(text)?]),
            _ => None,
        };
        let range = session.buffer().range(0, bytes).map_err(text)?;
        for _ in 0..count {
            let received = match &mut slice {
                Some(slice) => peer.recv_data(slice.as_mut_slice()).wait(),
                None => peer.recv_data(range).wait(),
            };
            received.map_err(text)?;
        }
        Ok(())
    }

    /// `pong RANK PEER BYTES COUNT`: answers messages of any size.
    fn pong(&self, w: &mut Words<'_>) -> Res<()> {
        let session = self.of(w.number()?)?;
        let peer = session.peer(w.number()?).map_err(text)?;
        let bytes: u64 = w.number()?;
        let count: u64 = w.number()?;
        let range = session.buffer().range(0, bytes).map_err(text)?;
        for _ in 0..count {
            peer.recv_data(range).wait().map_err(text)?;
            peer.send_data(range).wait().map_err(text)?;
        }
        Ok(())
    }

    /// `window RANK PEER LABEL BYTES memfd|heap cold|warm`: exposes fresh memory.
    fn window(&mut self, w: &mut Words<'_>) -> Res<()> {
        let rank = w.number()?;
        let peer: u32 = w.number()?;
        let label = w.number()?;
        let bytes: u64 = w.number()?;
        let kind = w.word()?;
        let warm = w.word()? == "warm";
        let session = self.of(rank)?;
        let region =
            match kind {
                "memfd" => session.memory().allocate(bytes),
                "heap" => session.memory().register(hmc_std::memory::HeapBytes::from(
                    vec![3u8; usize::try_from(bytes).map_err(text)?],
                )),
                other => return Err(format!("memory of kind {other}")),
            }
            .map_err(text)?;
        let mut span = region.take_all().map_err(text)?;
        if warm {
            span.fill(3);
        }
        let bytes = span.as_mut_slice();
        let place = (bytes.as_mut_ptr().expose_provenance(), bytes.len());
        let peer = session.peer(peer).map_err(text)?;
        let window = peer.expose(span, Access::all(), label).map_err(|(e, _)| text(e))?;
        self.windows.push(window);
        if kind == "heap" {
            self.heap = Some(place);
        }
        Ok(())
    }

    /// `share BYTES cold|warm`: pages for the reference. Replies with the descriptor.
    fn share(&mut self, w: &mut Words<'_>) -> Res<String> {
        let pages = SharedPages::create(w.number()?)?;
        if w.word()? == "warm" {
            pages.warm()?;
        }
        let fd = pages.fd()?;
        self.pages = Some(pages);
        Ok(fd.to_string())
    }

    /// `listen tcp` or `listen PATH`. Answers with the address.
    fn listen(&mut self, w: &mut Words<'_>) -> Res<String> {
        let word = w.word()?;
        let path = (word != "tcp").then(|| Path::new(word));
        let (listener, address) = Listener::open(path)?;
        self.listener = Some(listener);
        Ok(address)
    }

    /// `sink SIZE COUNT`: receives messages, then acknowledges with one byte.
    fn sink(&mut self, w: &mut Words<'_>) -> Res<()> {
        let size: usize = w.number()?;
        let count: u64 = w.number()?;
        let mut place = match self.bytes.take() {
            Some(b) => b,
            None => PageBytes::new(64 << 20),
        };
        let stream = self.stream()?;
        for _ in 0..count {
            stream.recv(&mut place.bytes()[..size])?;
        }
        stream.send(&[1])?;
        self.bytes = Some(place);
        Ok(())
    }

    /// `cma PID BYTES TIMES ADDRESS..`: reads from the addresses in turn, and replies with the nanoseconds of one
    /// read.
    fn cma(&mut self, w: &mut Words<'_>) -> Res<String> {
        let pid = w.number()?;
        let size: usize = w.number()?;
        let times: u32 = w.number()?;
        let mut addresses: Vec<usize> = Vec::new();
        for word in w.0.by_ref() {
            addresses.push(word.parse().map_err(text)?);
        }
        // The very memory that ours puts into.
        let Some((into, _)) = self.heap.filter(|(_, len)| *len == size) else {
            return Err(format!("no heap window of {size} bytes"));
        };
        let begun = Instant::now();
        for address in addresses.iter().cycle().take(times as usize) {
            // SAFETY: the window's region owns the memory, which is not borrowed while it is exposed; the other
            // process waits for this reply and has no operation in flight.
            unsafe { cma::read(pid, *address, into, size)? };
        }
        let each = begun.elapsed().as_nanos() as f64 / f64::from(times);
        Ok(each.to_string())
    }

    /// `idle FIRST COUNT FOLDER HUB`: that many sessions, all connected to rank HUB.
    fn idle(&mut self, w: &mut Words<'_>) -> Res<()> {
        let first: u32 = w.number()?;
        let count: u32 = w.number()?;
        let hub = Address::Uds(w.word()?.into());
        let rank: u32 = w.number()?;
        for i in first..first + count {
            let session = Session::builder(i).buffer(4096).start().map_err(text)?;
            session
                .connect(&hub)
                .rank(rank)
                .over(ConnType::Shm)
                .within(Duration::from_secs(30))
                .wait()
                .map_err(text)?;
            self.sessions.insert(i, session);
        }
        Ok(())
    }
}
