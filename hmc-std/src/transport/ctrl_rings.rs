//! The rings of a link's control frames, which its data plane exchanges and its control half uses.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use hmc_mem::os::life::PeerLife;
use hmc_mem::os::ring::{RingReader, RingWriter};
use rustix::io::Errno;

use crate::base::error::Result;
use crate::base::lock::lock;

/// The ring by which this end sends. It takes nothing more from the mark of the peer's end on: nobody would read it.
#[derive(Debug)]
pub(crate) struct PeerRing {
    writer: RingWriter,
    life: Option<Arc<PeerLife>>,
}

impl PeerRing {
    pub(crate) const fn new(writer: RingWriter, life: Option<Arc<PeerLife>>) -> Self {
        Self { writer, life }
    }

    /// As [`RingWriter::write`]; `PIPE` if the peer's process has ended, `PROTO` if it broke the ring.
    #[inline]
    pub(crate) fn write(&mut self, bytes: &[u8]) -> std::result::Result<(usize, bool), Errno> {
        if self.life.as_ref().is_some_and(|life| life.has_ended()) {
            return Err(Errno::PIPE);
        }
        self.writer.write(bytes).map_err(|_| Errno::PROTO)
    }

    /// As [`RingWriter::take_sleeper`].
    pub(crate) fn take_sleeper(&self) -> bool {
        self.writer.take_sleeper()
    }
}

/// One ring for each direction, until the control half takes it.
#[derive(Debug)]
pub(crate) struct CtrlRings {
    reader: Mutex<Option<RingReader>>,
    writer: Mutex<Option<PeerRing>>,
    /// There is a writer: a look that costs no lock.
    has_writer: AtomicBool,
}

impl CtrlRings {
    /// Makes the ring through which this end receives. Returns the descriptor of its pages for the peer, too.
    ///
    /// # Errors
    /// `NoSpace`, `SystemLimit`, `Io`.
    pub(crate) fn new() -> Result<(Arc<Self>, OwnedFd)> {
        let (reader, fd) = RingReader::new()?;
        let (reader, writer) = (Mutex::new(Some(reader)), Mutex::default());
        Ok((Arc::new(Self { reader, writer, has_writer: AtomicBool::new(false) }), fd))
    }

    /// Maps the ring of a peer that has this `life`.
    ///
    /// # Errors
    /// Its pages cannot be mapped.
    pub(crate) fn map_writer(&self, fd: OwnedFd, life: Option<Arc<PeerLife>>) -> Result<()> {
        *lock(&self.writer) = Some(PeerRing::new(RingWriter::map(fd)?, life));
        self.has_writer.store(true, Ordering::Release);
        Ok(())
    }

    pub(crate) fn take_reader(&self) -> Option<RingReader> {
        lock(&self.reader).take()
    }

    pub(crate) fn has_writer(&self) -> bool {
        self.has_writer.load(Ordering::Acquire)
    }

    pub(crate) fn take_writer(&self) -> Option<PeerRing> {
        self.has_writer.store(false, Ordering::Relaxed);
        lock(&self.writer).take()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use hmc_mem::os::life::{LifePage, PeerLife};
    use hmc_mem::os::ring::{RingReader, RingWriter};
    use rustix::io::Errno;

    use super::PeerRing;

    #[test]
    fn a_ring_takes_nothing_from_the_mark_of_its_owners_end_on() {
        let life = Arc::new(LifePage::new().expect("a page"));
        let (mut reader, fd) = RingReader::new().expect("pages");
        let writer = RingWriter::map(fd).expect("mapped");
        let holder = Arc::clone(&life);
        let (go, ends) = std::sync::mpsc::channel::<()>();
        let (tell, held) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            std::mem::forget(holder.hold().expect("nobody holds it"));
            tell.send(()).expect("the test waits");
            let _ = ends.recv();
        });
        held.recv().expect("it is held");
        let (word, fd) = life.offer().expect("it is held");
        let fd = fd.try_clone_to_owned().expect("a descriptor");
        let peer = PeerLife::map(fd, word.offset()).expect("a word");
        let mut ring = PeerRing::new(writer, Some(Arc::new(peer)));
        assert_eq!(ring.write(&[1; 8]), Ok((8, false)));
        drop(go);
        thread.join().expect("no panic");
        assert_eq!(ring.write(&[2; 8]), Err(Errno::PIPE));
        assert_eq!(reader.read(&mut [0; 16]), Ok((8, false)));
    }
}
