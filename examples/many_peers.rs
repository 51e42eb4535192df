//! One session with many peers: puts to all of them are in flight at a time, and when one ends, the next is started.
//!
//! ```sh
//! cargo run --release -p examples --example many_peers
//! ```

use std::time::Duration;

use hmc_std::{Address, Error, ErrorKind, Op, Session, Waited, Who, wait_any, want};

const PEERS: u32 = 8;
const ROUNDS: usize = 32;
/// Puts that are in flight at a time.
const DEPTH: usize = 6;
const LEN: u64 = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(10);

fn peer(rank: u32, hub: &Address) -> Result<(), Error> {
    let session = Session::builder(rank).buffer(LEN).start()?;
    session.connect(hub).wait()?;
    let mut received = 0;
    while received < ROUNDS / 8 {
        session.recv(0, want::Notify).within(PATIENCE).wait()?;
        received = received.saturating_add(1);
    }
    Ok(())
}

fn hub(session: &Session) -> Result<(), Error> {
    let mut windows = Vec::new();
    for _ in 0..PEERS {
        windows.push(session.accept(Who::Any).within(PATIENCE).wait()?.buffer()?);
    }
    let range = session.buffer().range(0, LEN)?;
    let mut in_flight: Vec<Op> = Vec::new();
    for (tag, window) in (0..).zip(windows.iter().cycle().take(ROUNDS)) {
        if in_flight.len() == DEPTH {
            let ops: Vec<&Op> = in_flight.iter().collect();
            match wait_any(&ops, PATIENCE)? {
                Waited::Ended(n) => in_flight.swap_remove(n).wait().map(drop)?,
                Waited::Limit | Waited::Interrupted => {
                    return Err(Error::new(ErrorKind::DeadlineExceeded, "no put has ended"));
                }
            }
        }
        in_flight.push(window.put(0, range).notify(tag).start_blocking()?);
    }
    for op in in_flight {
        op.wait()?;
    }
    println!("{ROUNDS} puts to {PEERS} peers, {DEPTH} at a time");
    Ok(())
}

fn main() -> Result<(), Error> {
    let dir = std::env::temp_dir().join(format!("hmc-hub-{}", std::process::id()));
    let session = Session::builder(0).uds(&dir).buffer(LEN).start()?;
    let address = &Address::Uds(dir.clone());
    std::thread::scope(|scope| {
        let peers: Vec<_> =
            (1..=PEERS).map(|rank| scope.spawn(move || peer(rank, address))).collect();
        hub(&session)?;
        peers.into_iter().try_for_each(|peer| match peer.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })?;
    drop(session);
    std::fs::remove_dir_all(dir).ok();
    Ok(())
}
