//! A transport of one's own, in a crate that is not part of HMC: `memfile`.
//!
//! Memory that a session allocates lies in a memfd. The owner of a window tells the peer where that file is; the peer opens it and
//! puts by pwrite(2), gets by pread(2). So the initiator does all copies, and the target does none. Tags go as frames over the
//! link's second connection.
//!
//! | question | answer of this transport |
//! |---|---|
//! | who checks an access | the initiator, against the note of the window ([`window`](mod@window)); the kernel keeps it inside the file |
//! | when a put is done | its pwrite(2) has returned; with a tag: the peer has acknowledged the tag |
//! | what is the fence of a window | the peer's word that it has closed the file, or the end of its process |
//! | what is the fence of a request | its completion: this end copies by itself, under the link's lock |
//! | what it lacks | memory that was registered in place cannot be exposed |
//!
//! Register it at both ends, and name it:
//!
//! ```
//! use hmc_std::{Address, Session};
//! use own_transport::{MEMFILE, MemfileDomain};
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), hmc_std::Error> {
//! # let dir = std::env::temp_dir().join(format!("own-transport-doc-{}", std::process::id()));
//! let target = Session::builder(1).transport(MemfileDomain).uds(&dir).buffer(4096).start()?;
//! let source = Session::builder(0).transport(MemfileDomain).start()?;
//! let at = Address::Uds(dir.clone());
//! let peer = source.connect(&at).rank(1).over(MEMFILE).within(Duration::from_secs(10)).wait()?;
//! peer.buffer()?.put(100, b"by file").wait()?;
//! let mut got = [0; 7];
//! target.buffer().read_at(100, &mut got)?;
//! assert_eq!(&got, b"by file");
//! assert!(peer.explain().to_string().starts_with("memfile\n"));
//! # drop((source, target)); std::fs::remove_dir_all(dir).ok();
//! # Ok(()) }
//! ```

pub mod domain;
mod frames;
pub mod name;
mod plane;
mod requests;
mod target;
pub mod window;

pub use domain::MemfileDomain;
pub use name::MEMFILE;
