//! Two sessions as tasks of smol, on the executor of one thread: each step is awaited, and nothing blocks the other task. HMC needs
//! nothing of smol.
//!
//! ```sh
//! cargo run --release -p examples --example async_smol
//! ```

use std::time::Duration;

use hmc_std::{Address, Message, Session, Who, want};

const OFFSET: u64 = 4096;

async fn source(to: Address) -> Result<(), hmc_std::Error> {
    let session = Session::builder(0).start()?;
    // `within` ends the operation; a race with `smol::Timer` would only stop waiting for it.
    let peer = session.connect(&to).within(Duration::from_secs(10)).await?;
    peer.buffer()?.put(OFFSET, b"put by a task").notify(7).await?;
    let reply = peer.recv(want::Bytes).await?;
    println!("the other end read {:?}", String::from_utf8_lossy(&reply));
    session.shutdown().await
}

async fn target(session: Session) -> Result<(), hmc_std::Error> {
    let peer = session.accept(Who::Any).await?;
    let tag = peer.recv(want::Notify).await?; // behind all bytes of the put
    let mut bytes = [0; 13];
    session.buffer().read_at(OFFSET, &mut bytes)?;
    println!("rank {} put with tag {tag}", peer.rank());
    peer.send(Message::bytes(&bytes)).await?;
    session.shutdown().await
}

fn main() -> Result<(), hmc_std::Error> {
    let dir = std::env::temp_dir().join(format!("hmc-smol-{}", std::process::id()));
    let listening = Session::builder(1).uds(&dir).buffer(1 << 20).start()?;
    let executor = smol::LocalExecutor::new();
    let target = executor.spawn(target(listening));
    let source = smol::block_on(executor.run(source(Address::Uds(dir.clone()))));
    let target = smol::block_on(executor.run(target));
    std::fs::remove_dir_all(dir).ok();
    source.and(target)
}
