//! A server that lends memory: each client gets a window of its own, writes into it, and loses it when its time is over. From
//! then on no byte of the memory changes, whatever the client does.
//!
//! ```sh
//! cargo run --release -p examples --example window_server
//! ```

use std::time::Duration;

use hmc_std::{Access, Address, Error, ErrorKind, Message, Peer, Session, want};

const CLIENTS: u32 = 3;
const LEASE: u64 = 64 << 10;
const LABEL: u64 = 1;
const REVOKED: u64 = 2;
const PATIENCE: Duration = Duration::from_secs(10);

fn client(rank: u32, server: &Address) -> Result<(), Error> {
    let session = Session::builder(rank).start()?;
    let peer = session.connect(server).wait()?;
    let window = peer.window(LABEL).within(PATIENCE).wait()?;
    let bytes = vec![rank.to_le_bytes()[0]; 4096];
    window.put(0, &bytes).notify(u64::from(rank)).wait()?;
    // The lease is over: whatever is put now is refused.
    peer.recv(want::TagIs(REVOKED)).within(PATIENCE).wait()?;
    match window.put(0, b"too late").wait() {
        Err(e) if matches!(e.kind(), ErrorKind::Revoked | ErrorKind::NotFound) => Ok(()),
        Err(e) => Err(e),
        Ok(_) => Err(Error::new(ErrorKind::Protocol, "a put into a revoked window was accepted")),
    }
}

/// Lends memory to the client, and gives what the client has written.
fn serve(session: &Session, peer: &Peer) -> Result<u8, Error> {
    let lease = session.memory().allocate(LEASE)?.take_all()?;
    let window = peer.expose(lease, Access::WRITE, LABEL).map_err(|(e, _)| e)?;
    peer.recv(want::Notify).within(PATIENCE).wait()?;
    let lease = window.revoke().within(PATIENCE).wait()?;
    // Behind the fence the memory is private: a plain slice.
    let written = lease.as_slice().first().copied().unwrap_or(0);
    peer.send(Message::Tag(REVOKED)).wait()?;
    Ok(written)
}

fn main() -> Result<(), Error> {
    let dir = std::env::temp_dir().join(format!("hmc-server-{}", std::process::id()));
    let server = Session::builder(0).uds(&dir).start()?;
    let address = &Address::Uds(dir.clone());
    std::thread::scope(|scope| {
        let clients: Vec<_> =
            (1..=CLIENTS).map(|rank| scope.spawn(move || client(rank, address))).collect();
        for rank in 1..=CLIENTS {
            let peer = server.accept(rank).within(PATIENCE).wait()?;
            println!("rank {rank} wrote {} into its window", serve(&server, &peer)?);
        }
        clients.into_iter().try_for_each(|client| match client.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })?;
    drop(server);
    std::fs::remove_dir_all(dir).ok();
    Ok(())
}
