//! `hmc get`: fetches a file that a server offers.

use std::path::{Path, PathBuf};

use hmc_std::{Peer, Session};

use crate::cmd::put::Moved;
use crate::connect::{self, PeerArgs};
use crate::failure::{Failure, Result};
use crate::signal::Stop;
use crate::transfer::meter::Meter;
use crate::transfer::protocol::{
    self, AbortCode, FileInfo, Reply, Request, RequestKind, RingInfo, TransferStep,
};
use crate::transfer::receiver;
use crate::transfer::ring::{self, Layout, Ring};
use crate::transfer::source::base_name;
use crate::transfer::target::{Target, TargetDir};
use crate::units;

/// The label of the ring. Each `hmc get` is a session of its own.
const LABEL: u64 = 1;

/// What `hmc get` is told.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Base name of a file in the server's shared folder
    #[arg(value_name = "NAME")]
    name: String,
    /// Where to write it: a file, or a folder that exists [default: its name, here]
    #[arg(long, value_name = "PATH")]
    out: Option<PathBuf>,
    /// Replace a file that exists
    #[arg(long)]
    overwrite: bool,
    #[command(flatten)]
    reach: PeerArgs,
    /// Bytes of memory that the sender may fill ahead (16K to 128M)
    #[arg(long, value_name = "SIZE", default_value = "2M", value_parser = ring::bytes)]
    buffer: u64,
    /// Print one line of JSON
    #[arg(long)]
    json: bool,
    /// Say which transport was chosen, why, and why not the others
    #[arg(long)]
    explain: bool,
}

/// The folder and the name to write to.
fn place(options: &Options) -> Result<(PathBuf, Vec<u8>)> {
    let name = options.name.clone().into_bytes();
    base_name(&name)?;
    let Some(out) = &options.out else { return Ok((PathBuf::from("."), name)) };
    if out.is_dir() {
        return Ok((out.clone(), name));
    }
    let parent = out.parent().filter(|p| !p.as_os_str().is_empty());
    let name = crate::transfer::source::name_of(out)?;
    Ok((parent.unwrap_or(Path::new(".")).to_path_buf(), name))
}

/// Fetches the file.
pub(crate) fn run(options: &Options, stop: &Stop) -> Result<()> {
    let (dir, name) = place(options)?;
    let folder = TargetDir::open(&dir)?;
    // Said before anything is sent.
    folder.check_free(&name, options.overwrite)?;
    let (session, peer) = options.reach.connect(0)?;
    stop.watch(&peer);
    let moved = get(options, &session, &peer, &folder, &name)
        .map_err(|f| f.during(format_args!("get {}", options.name)))?;
    moved.print(options.json, options.explain, &peer)?;
    // The file is in place; a peer that is slow to say goodbye changes nothing.
    let _ = session
        .shutdown()
        .within(options.reach.timeout().min(std::time::Duration::from_secs(2)))
        .wait();
    Ok(())
}

fn get(
    options: &Options,
    session: &Session,
    peer: &Peer,
    folder: &TargetDir,
    name: &[u8],
) -> Result<Moved> {
    let timeout = options.reach.timeout();
    let layout = Layout::for_file(options.buffer, u64::MAX);
    let ring = Ring::expose(session, peer, layout, LABEL)?;
    let mut meter = Meter::new(&options.name, 0, !options.json);
    let wanted = options.name.clone().into_bytes();
    let kind = RequestKind::Get(RingInfo { label: LABEL, layout });
    protocol::send(peer, &Request { hmc_file: protocol::VERSION, name: wanted, kind })?;
    let meta: FileInfo = match protocol::receive(peer, timeout)? {
        Reply::Sending(meta) => meta,
        Reply::Refused(why) => return Err(Failure::new(format!("the server refused: {why}"))),
        Reply::Ready(_) => return Err(Failure::new("the server wants to receive instead")),
    };
    meter.set_size(meta.size);
    let target = match Target::create(folder, name, meta, options.overwrite) {
        Ok(target) => target,
        Err(f) => {
            protocol::send_step(peer, TransferStep::Abort(AbortCode::Other))?;
            return Err(f);
        }
    };
    let (result, done) = receiver::receive(peer, ring, target, &mut meter, timeout);
    done.send(peer);
    let received = result?;
    let seconds = meter.seconds();
    Ok(Moved {
        op: "get",
        name: options.name.clone(),
        bytes: meta.size,
        seconds,
        gb_per_s: units::gb_per_s(meta.size, seconds),
        transport: connect::transport(peer),
        crc32c: format!("{:08x}", received.crc),
        peer: peer.rank().0,
        path: Some(received.path.display().to_string()),
        route: connect::route(peer),
    })
}
