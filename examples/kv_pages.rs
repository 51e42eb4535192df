//! KV-cache pages from a prefill worker to a decode worker, in two processes.
//!
//! The decode worker exposes a window for the pages it wants, the prefill worker puts scattered
//! pages into it and lets a tag follow the last one, the decode worker takes its memory back with a
//! fence and reads it as a plain slice.
//!
//! ```sh
//! cargo run --release -p examples --example kv_pages
//! ```

use std::process::Command;
use std::time::Duration;

use hmc_std::memory::HeapBytes;
use hmc_std::{Access, Address, Error, ErrorKind, Piece, Session, want};

const PAGE: u64 = 64 * 1024;
const PAGES: u64 = 32;
const READY: u64 = 7;
const WINDOW: u64 = 1;
const PATIENCE: Duration = Duration::from_secs(10);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = std::env::temp_dir().join(format!("hmc-kv-{}", std::process::id()));
    match std::env::args().nth(1) {
        Some(dir) => prefill(&Address::Uds(dir.into()))?,
        None => {
            // This process decodes; a child with the same program fills.
            let decoder = Session::builder(1).uds(&dir).start()?;
            let mut child = Command::new(std::env::current_exe()?).arg(&dir).spawn()?;
            let result = decode(&decoder);
            child.wait()?;
            drop(decoder);
            std::fs::remove_dir_all(&dir)?;
            result?;
        }
    }
    Ok(())
}

fn prefill(decoder: &Address) -> Result<(), Error> {
    let session = Session::builder(0).start()?;
    let peer = session.connect(decoder).rank(1).wait()?;
    let window = peer.window(WINDOW).within(PATIENCE).wait()?;
    // The model's own memory, registered in place: no staging copy.
    let bytes: Vec<u8> = (0..PAGES).flat_map(page).collect();
    let cache = session.memory().register(HeapBytes::from(bytes))?;
    let cache = cache.share()?;
    let piece = |n: u64| -> Result<Piece<'_>, Error> {
        // Pages land in reverse, to show that each goes where it is told.
        let to = PAGES.saturating_sub(n).saturating_sub(1).saturating_mul(PAGE);
        Ok(Piece::new(cache.range(n.saturating_mul(PAGE), PAGE)?, to))
    };
    let pieces = (0..PAGES).map(piece).collect::<Result<Vec<_>, _>>()?;
    // One operation. Its tag comes when all pages are visible at the decoder.
    window.put_list(&pieces).notify(READY).within(PATIENCE).wait()?;
    println!("prefill: {PAGES} pages of {PAGE} bytes over {}", peer.explain());
    session.shutdown().within(PATIENCE).wait()
}

fn decode(session: &Session) -> Result<(), Error> {
    let peer = session.accept(0).within(PATIENCE).wait()?;
    let memory = session.memory().allocate(PAGE.saturating_mul(PAGES))?;
    let window = peer.expose(memory.take_all()?, Access::WRITE, WINDOW).map_err(|(e, _)| e)?;
    let tag = peer.recv(want::Notify).wait()?;
    // From here on the peer cannot write any more, and the bytes can be borrowed.
    let pages = window.revoke().within(PATIENCE).wait()?;
    let expected: Vec<u8> = (0..PAGES).rev().flat_map(page).collect();
    let good = pages.as_slice() == expected;
    println!("decode: tag {tag}, {} bytes, {}", pages.len(), if good { "right" } else { "WRONG" });
    if good { Ok(()) } else { Err(Error::new(ErrorKind::Protocol, "wrong bytes")) }
}

fn page(n: u64) -> impl Iterator<Item = u8> {
    let [byte, ..] = n.to_le_bytes();
    (0..PAGE).map(move |i| byte.wrapping_mul(31).wrapping_add(i.to_le_bytes()[0]))
}
