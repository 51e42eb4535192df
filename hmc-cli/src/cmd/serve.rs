//! `hmc serve`: receives files, offers files. One thread for each client that is being served; the
//! main thread only receives requests.

mod requests;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hmc_std::config::Environment;
use hmc_std::{ErrorKind, Peer, Session, Who, want};
use serde::Serialize;

use self::requests::{MAX_WAITING, Next, Requests};
use crate::connect;
use crate::failure::{Failure, Result};
use crate::output;
use crate::signal::Stop;
use crate::transfer::meter::Meter;
use crate::transfer::protocol::{self, FileInfo, Reply, Request, RequestKind, RingInfo};
use crate::transfer::receiver;
use crate::transfer::ring::{self, Layout, Ring};
use crate::transfer::sender;
use crate::transfer::source::{Source, base_name};
use crate::transfer::target::{Target, TargetDir};
use crate::units;

/// How often the main thread looks whether it should end.
const LOOK: Duration = Duration::from_millis(200);

/// What `hmc serve` is told.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Listen on this TCP address, IP:PORT; port 0 takes a free one
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// Folder of the control socket, private to this user; needed for shared memory [default, without
    /// --listen: $HMC_UDS_DIR, $XDG_RUNTIME_DIR/hmc or /tmp/hmc-UID]
    #[arg(long, value_name = "DIR")]
    uds: Option<PathBuf>,
    /// Rank of this process, 0 to 4095
    #[arg(long, value_name = "N", default_value_t = 0)]
    rank: u32,
    /// Folder that receives files, by base name
    #[arg(long, value_name = "DIR", required_unless_present = "share")]
    into: Option<PathBuf>,
    /// Let a received file replace one that exists
    #[arg(long, requires = "into")]
    overwrite: bool,
    /// Folder whose files `hmc get` may fetch: regular files by base name, no links
    #[arg(long, value_name = "DIR")]
    share: Option<PathBuf>,
    /// Bytes of memory for each transfer (16K to 128M); it limits how far a sender runs ahead
    #[arg(long, value_name = "SIZE", default_value = "2M", value_parser = ring::bytes)]
    buffer: u64,
    /// Seconds that a client may keep silent in the middle of a transfer
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: u64,
    /// Allow an address beyond loopback although nothing proves who connects
    #[arg(long)]
    insecure: bool,
    /// Take part in UCX, for clients that ask for it; libucp is loaded at run time
    #[arg(long)]
    ucx: bool,
    /// End after one transfer, with its status
    #[arg(long)]
    once: bool,
    /// Print events as lines of JSON
    #[arg(long)]
    json: bool,
}

/// What is printed.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
enum Event {
    Listening {
        pid: u32,
        rank: u32,
        tcp: Option<String>,
        uds: Option<String>,
    },
    Received {
        name: String,
        path: String,
        bytes: u64,
        seconds: f64,
        gb_per_s: f64,
        transport: &'static str,
        /// Computed from this process's own region.
        crc32c: String,
        from: u32,
    },
    Sent {
        name: String,
        bytes: u64,
        seconds: f64,
        gb_per_s: f64,
        transport: &'static str,
        crc32c: String,
        to: u32,
    },
    Failed {
        name: String,
        peer: u32,
        why: String,
    },
}

impl Event {
    fn text(&self) -> String {
        match self {
            Self::Listening { pid, rank, tcp, uds } => {
                let addresses = [
                    uds.as_ref().map(|d| format!("uds://{d}")),
                    tcp.as_ref().map(|a| format!("tcp://{a}")),
                ];
                let addresses: Vec<String> = addresses.into_iter().flatten().collect();
                format!("rank {rank} (process {pid}) listens at {}", addresses.join(" and "))
            }
            Self::Received { path, bytes, seconds, gb_per_s, transport, crc32c, from, .. } => {
                format!(
                    "received {path} from rank {from}: {bytes} bytes in {seconds:.3} s, {gb_per_s:.2} GB/s over {transport}, crc32c {crc32c}"
                )
            }
            Self::Sent { name, bytes, seconds, gb_per_s, transport, crc32c, to } => format!(
                "sent {name} to rank {to}: {bytes} bytes in {seconds:.3} s, {gb_per_s:.2} GB/s over {transport}, crc32c {crc32c}"
            ),
            Self::Failed { name, peer, why } => format!("{name} (rank {peer}): {why}"),
        }
    }
}

/// The server, as its threads share it.
struct Server<'a> {
    options: &'a Options,
    stop: &'a Stop,
    session: &'a Session,
    into: Option<TargetDir>,
    share: Option<TargetDir>,
    requests: Requests,
    labels: AtomicU64,
    /// With --once: how the transfer ended.
    outcome: Mutex<Option<Result<()>>>,
}

/// Serves until interrupted, or once.
pub(crate) fn run(options: &Options, stop: &Stop) -> Result<()> {
    let into = options.into.as_deref().map(TargetDir::open).transpose()?;
    let share = options.share.as_deref().map(TargetDir::open).transpose()?;
    let timeout = Duration::from_secs(options.timeout);
    let mut builder = Session::builder(options.rank).redial(false).deadline(timeout);
    if let Some(addr) = &options.listen {
        builder = builder.tcp(addr);
    }
    let uds = match (&options.uds, &options.listen) {
        (Some(dir), _) => Some(dir.clone()),
        (None, None) => Some(Environment::read().default_uds_dir()),
        (None, Some(_)) => None,
    };
    if let Some(dir) = &uds {
        builder = builder.uds(dir);
    }
    if options.insecure {
        builder = builder.insecure();
    }
    if options.ucx {
        builder = builder.ucx();
    }
    let session = builder.start()?;
    stop.tidy_first();
    let server = Server {
        options,
        stop,
        session: &session,
        into,
        share,
        requests: Requests::default(),
        labels: AtomicU64::new(1),
        outcome: Mutex::default(),
    };
    server.report(&Event::Listening {
        pid: std::process::id(),
        rank: options.rank,
        tcp: crate::connect::tcp_listener(&session),
        uds: uds.map(|d| d.display().to_string()),
    })?;
    let result = server.serve_requests();
    drop(server);
    let _ = session.shutdown().within(Duration::from_secs(1)).wait();
    if stop.is_set() { Err(Failure::interrupted()) } else { result }
}

impl Server<'_> {
    fn report(&self, event: &Event) -> Result<()> {
        if self.options.json { output::json(event) } else { output::text(&event.text()) }
    }

    fn outcome(&self) -> Option<Result<()>> {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Ends the server with the outcome of its one transfer. Of several that began the first to end is the one.
    fn end_with(&self, outcome: Result<()>) {
        let mut first = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert(outcome);
    }

    fn serve_requests(&self) -> Result<()> {
        std::thread::scope(|scope| {
            let result = loop {
                if self.stop.is_set() {
                    break Ok(());
                }
                if let Some(outcome) = self.outcome() {
                    break outcome;
                }
                let (rank, bytes) =
                    match self.session.recv(Who::Any, want::Bytes).within(LOOK).wait() {
                        Ok((rank, bytes)) => (rank.0, bytes),
                        Err(e) if e.kind() == ErrorKind::DeadlineExceeded => continue,
                        Err(e) => break Err(e.into()),
                    };
                let peer = match self.session.peer(rank) {
                    Ok(peer) => peer,
                    // A client that is gone already wants nothing. With --once its transfer was the one.
                    Err(e) if self.options.once && !self.requests.has(rank) => {
                        self.end_with(self.failed("request".to_owned(), rank, e.into()));
                        continue;
                    }
                    Err(_) => continue,
                };
                if !self.requests.begins(&peer, &bytes) {
                    continue;
                }
                self.stop.watch(&peer);
                let client = peer.clone();
                let spawned = std::thread::Builder::new()
                    .name(format!("rank {rank}"))
                    .spawn_scoped(scope, move || self.serve_client(client, bytes));
                if let Err(e) = spawned {
                    self.requests.remove(rank);
                    let why =
                        self.refuse(&peer, Failure::new(format!("no thread: {e}; ask again")));
                    let outcome = self.failed("request".to_owned(), rank, why);
                    if self.options.once {
                        self.end_with(outcome);
                    }
                }
            };
            // Those that are being served wake, and their threads end, before the scope does: all at a time, since each may
            // leave the goodbye unanswered.
            for peer in self.session.peers() {
                let goodbye = move || drop(peer.disconnect().within(LOOK).wait());
                let _ = std::thread::Builder::new().spawn_scoped(scope, goodbye);
            }
            result
        })
    }

    /// Serves a rank until nothing of it waits.
    fn serve_client(&self, peer: Peer, first: Vec<u8>) {
        let rank = peer.rank().0;
        let mut next = Some(Next::Serve(peer, first));
        while let Some(one) = next {
            let (name, result) = match one {
                Next::Refuse(peer, count) => {
                    (format!("{count} requests"), Err(self.refuse_all(&peer, count)))
                }
                Next::Serve(peer, bytes) => match protocol::parse::<Request>(&bytes) {
                    Ok(request) => (
                        String::from_utf8_lossy(&request.name).into_owned(),
                        self.serve(&peer, &request),
                    ),
                    Err(f) => ("request".to_owned(), Err(self.refuse(&peer, f))),
                },
            };
            let outcome = match result {
                Ok(event) => self.report(&event),
                Err(f) => self.failed(name, rank, f),
            };
            if self.options.once {
                return self.end_with(outcome);
            }
            next = self.requests.next(rank);
        }
    }

    /// Refuses a client's requests beyond what is kept, while it listens.
    fn refuse_all(&self, peer: &Peer, count: u64) -> Failure {
        let why = format!("{MAX_WAITING} requests wait already; ask again when they are answered");
        for _ in 0..count {
            let sent = protocol::send(peer, &Reply::Refused(why.clone()));
            if sent.is_err() || self.stop.is_set() {
                break;
            }
        }
        Failure::new(why).during("refused")
    }

    /// Reports a transfer that failed.
    fn failed(&self, name: String, peer: u32, failure: Failure) -> Result<()> {
        let why = failure.to_string();
        self.report(&Event::Failed { name, peer, why }).and(Err(failure))
    }

    /// Refuses a client's request.
    fn refuse(&self, peer: &Peer, why: Failure) -> Failure {
        let reply = Reply::Refused(why.to_string());
        let failure = why.during("refused");
        if self.options.once {
            // Before the client knows: a transfer that begins after its answer ends later.
            self.end_with(Err(failure.clone()));
        }
        let _ = protocol::send(peer, &reply);
        failure
    }

    fn serve(&self, peer: &Peer, request: &Request) -> Result<Event> {
        if request.hmc_file != protocol::VERSION {
            let text = format!(
                "version {} of the file protocol is not spoken here, {} is; use the same hmc at both ends",
                request.hmc_file,
                protocol::VERSION
            );
            return Err(self.refuse(peer, Failure::new(text)));
        }
        match request.kind {
            RequestKind::Put(meta) => self.take(peer, &request.name, meta),
            RequestKind::Get(ring) => self.give(peer, &request.name, ring),
        }
    }

    fn take(&self, peer: &Peer, name: &[u8], meta: FileInfo) -> Result<Event> {
        let timeout = Duration::from_secs(self.options.timeout);
        let shown = String::from_utf8_lossy(name).into_owned();
        let label = self.labels.fetch_add(1, Ordering::Relaxed);
        let prepared = self
            .into
            .as_ref()
            .ok_or_else(|| {
                Failure::new("this server only shares files (it was started without --into)")
            })
            .and_then(|folder| Target::create(folder, name, meta, self.options.overwrite))
            .and_then(|target| {
                let layout = Layout::for_file(self.options.buffer, meta.size);
                Ok((target, Ring::expose(self.session, peer, layout, label)?))
            });
        let (target, ring) = match prepared {
            Ok(both) => both,
            Err(f) => return Err(self.refuse(peer, f)),
        };
        let mut meter = Meter::new(&shown, meta.size, false);
        protocol::send(peer, &Reply::Ready(RingInfo { label, layout: ring.layout() }))?;
        let (result, done) = receiver::receive(peer, ring, target, &mut meter, timeout);
        let seconds = meter.seconds();
        let transport = connect::transport(peer);
        done.send(peer);
        let received = result?;
        Ok(Event::Received {
            name: shown,
            path: received.path.display().to_string(),
            bytes: meta.size,
            seconds,
            gb_per_s: units::gb_per_s(meta.size, seconds),
            transport,
            crc32c: format!("{:08x}", received.crc),
            from: peer.rank().0,
        })
    }

    fn give(&self, peer: &Peer, name: &[u8], ring: RingInfo) -> Result<Event> {
        let timeout = Duration::from_secs(self.options.timeout);
        let shown = String::from_utf8_lossy(name).into_owned();
        let opened = self
            .share
            .as_ref()
            .ok_or_else(|| {
                Failure::new("this server shares no files (it was started without --share)")
            })
            .and_then(|folder| {
                let source = Source::open_shared(folder.fd(), base_name(name)?);
                source.map_err(|f| f.during(format_args!("`{shown}`")))
            });
        let source = match opened {
            Ok(source) => source,
            Err(f) => return Err(self.refuse(peer, f)),
        };
        let meta = source.meta();
        let mut meter = Meter::new(&shown, meta.size, false);
        protocol::send(peer, &Reply::Sending(meta))?;
        let crc = sender::send(self.session, peer, &source, ring, &mut meter, timeout)?;
        let seconds = meter.seconds();
        Ok(Event::Sent {
            name: shown,
            bytes: meta.size,
            seconds,
            gb_per_s: units::gb_per_s(meta.size, seconds),
            transport: connect::transport(peer),
            crc32c: format!("{crc:08x}"),
            to: peer.rank().0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Event;

    #[test]
    fn events_are_shown_as_text() {
        let listening = |tcp: Option<&str>, uds: Option<&str>| {
            let (tcp, uds) = (tcp.map(str::to_owned), uds.map(str::to_owned));
            Event::Listening { pid: 7, rank: 1, tcp, uds }.text()
        };
        let begin = "rank 1 (process 7) listens at";
        let both = listening(Some("127.0.0.1:9"), Some("/d"));
        assert_eq!(both, format!("{begin} uds:///d and tcp://127.0.0.1:9"));
        assert_eq!(listening(None, Some("/d")), format!("{begin} uds:///d"));
        let name = || "a".to_owned();
        let received = Event::Received {
            name: name(),
            path: "/in/a".to_owned(),
            bytes: 10,
            seconds: 0.25,
            gb_per_s: 1.5,
            transport: "shm",
            crc32c: "01234567".to_owned(),
            from: 2,
        };
        assert_eq!(
            received.text(),
            "received /in/a from rank 2: 10 bytes in 0.250 s, 1.50 GB/s over shm, crc32c 01234567"
        );
        let sent = Event::Sent {
            name: name(),
            bytes: 10,
            seconds: 0.25,
            gb_per_s: 1.5,
            transport: "tcp",
            crc32c: "01234567".to_owned(),
            to: 3,
        };
        assert_eq!(
            sent.text(),
            "sent a to rank 3: 10 bytes in 0.250 s, 1.50 GB/s over tcp, crc32c 01234567"
        );
        let failed = Event::Failed { name: name(), peer: 4, why: "no file".to_owned() };
        assert_eq!(failed.text(), "a (rank 4): no file");
    }
}
