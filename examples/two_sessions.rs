//! Two sessions of one process: one puts bytes into the other's buffer, and the other reads them.
//!
//! ```sh
//! cargo run --release -p examples --example two_sessions
//! ```

use hmc_std::{Address, Session};

const OFFSET: u64 = 4096;
const PUT: &[u8] = b"these bytes are the other session's";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = std::env::temp_dir().join(format!("hmc-two-{}", std::process::id()));
    let target = Session::builder(1).uds(&dir).buffer(1 << 20).start()?;
    let source = Session::builder(0).start()?;

    let peer = source.connect(&Address::Uds(dir.clone())).rank(1).wait()?;
    peer.buffer()?.put(OFFSET, PUT).wait()?;

    let mut got = vec![0; PUT.len()];
    target.buffer().read_at(OFFSET, &mut got)?;
    drop((source, target));
    std::fs::remove_dir_all(&dir)?;
    if got != PUT {
        return Err(format!("read {:?}", String::from_utf8_lossy(&got)).into());
    }
    println!("put and read {} bytes", PUT.len());
    Ok(())
}
