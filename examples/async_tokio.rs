//! Two sessions as tasks of Tokio, on its current-thread runtime: each step is awaited, and nothing blocks the other task. HMC needs
//! nothing of Tokio; the runtime only has to be built.
//!
//! ```sh
//! cargo run --release -p examples --example async_tokio
//! ```

use std::error::Error;
use std::time::Duration;

use hmc_std::{Address, Message, Session, Who, want};

const OFFSET: u64 = 4096;

async fn source(to: Address) -> Result<(), hmc_std::Error> {
    let session = Session::builder(0).start()?;
    // `within` ends the operation; `tokio::time::timeout` would only stop waiting for it.
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

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let dir = std::env::temp_dir().join(format!("hmc-tokio-{}", std::process::id()));
    let listening = Session::builder(1).uds(&dir).buffer(1 << 20).start()?;
    let target = tokio::spawn(target(listening));
    let source = source(Address::Uds(dir.clone())).await;
    let target = target.await;
    std::fs::remove_dir_all(dir).ok();
    source?;
    Ok(target??)
}
