//! Small copies into directly accessible memory: done in the call, without the transport's queues.

use std::sync::Arc;

use hmc_core::limits::MAX_CHUNK_BYTES;
use hmc_core::range::ByteRange;
use hmc_core::region::{Epoch, LocalSlice, WindowId, WindowSlice};
use hmc_core::types::Access;
use hmc_core::work::Opcode;
use hmc_mem::os::mapped_window::MappedWindow;
use hmc_mem::shared::SharedBytes;

use super::DataState;
use crate::link::transfer_list::TransferList;
use crate::memory::Region;

/// Transfers of a list that the transport is handed at a time.
const AT_ONCE: usize = 16;

/// Blocks of a list that are copied in the call at most: the link's lock is held meanwhile.
const MAX_BLOCKS_NOW: u32 = 4096;

/// How a copy that was tried in the call was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Copied {
    /// It was not: it must be posted, even if it fails.
    Not,
    /// By the transport.
    ByTransport,
    /// Through a mapped window.
    Mapped,
}

impl DataState {
    /// A window of the peer, if its pages are mapped here.
    pub(crate) fn mapped(&self, id: WindowId, epoch: Epoch) -> Option<Arc<MappedWindow>> {
        self.queue.transport().mapped(id, epoch).cloned()
    }

    /// Returns whether it is known if the pages of a window of the peer are mapped here.
    pub(crate) fn is_settled(&self, id: WindowId, epoch: Epoch) -> bool {
        self.queue.transport().is_settled(id, epoch)
    }

    /// Bytes of payload moved so far: by this end's operations, and by the peer's.
    pub(crate) fn bytes_moved(&self) -> (u64, u64) {
        let (out, into) = self.queue.transport().bytes_moved();
        (out.saturating_add(self.bytes_now), into)
    }

    /// Puts and gets that were begun.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let (puts, gets) = self.queue.transport().mapped_counts();
        (self.puts.saturating_add(puts), self.gets.saturating_add(gets))
    }

    /// Does a small copy into memory that can be reached directly, or out of it. Tries the transport first: where windows are
    /// mapped, callers come here once and then use [`Self::mapped`].
    #[inline(always)]
    pub(crate) fn transfer_now(
        &mut self,
        region: &Region,
        opcode: Opcode,
        local: LocalSlice,
        remote: WindowSlice,
    ) -> Copied {
        // Of transports that do it at once none compares generations.
        if remote.expected.is_none()
            && self.queue.transport_mut().try_transfer(opcode, local, remote)
        {
            return Copied::ByTransport;
        }
        match self.copy_mapped(region, opcode, local, remote) {
            true => Copied::Mapped,
            false => Copied::Not,
        }
    }

    /// Does a small copy through a mapped window. Returns `false` if it must be posted, even if it fails.
    #[inline]
    fn copy_mapped(
        &mut self,
        region: &Region,
        opcode: Opcode,
        local: LocalSlice,
        remote: WindowSlice,
    ) -> bool {
        let (at, len) = ((remote.span.offset(), remote.expected), local.span.len());
        let window = self.queue.transport().mapped(remote.window, remote.epoch);
        let Some(window) = window.filter(|_| len <= MAX_CHUNK_BYTES) else { return false };
        let copied = match opcode {
            Opcode::Put => window.write(at, region.bytes(), local.span, len),
            Opcode::Get => window.read(at, region.bytes(), local.span, len),
            // The tag follows the bytes by the connection.
            Opcode::PutNotify { .. } => return false,
        };
        self.bytes_now = self.bytes_now.saturating_add(if copied.is_ok() { len } else { 0 });
        copied.is_ok()
    }

    /// A put or get of at most 1 MiB of bytes that are in no region, into memory that can be reached directly or out of it, done
    /// here and now; `false` when it must be posted from a region.
    pub(crate) fn copy_lent(
        &mut self,
        code: Opcode,
        bytes: SharedBytes<'_>,
        range: ByteRange,
        remote: WindowSlice,
    ) -> bool {
        let (at, len) = ((remote.span.offset(), remote.expected), range.len());
        let window = self.queue.transport().mapped(remote.window, remote.epoch);
        let Some(window) = window.filter(|_| len <= MAX_CHUNK_BYTES) else { return false };
        let copied = match code {
            Opcode::Put => window.write(at, bytes, range, len),
            Opcode::Get => window.read(at, bytes, range, len),
            Opcode::PutNotify { .. } => return false,
        };
        if copied.is_ok() {
            self.bytes_now = self.bytes_now.saturating_add(len);
            self.count(code);
        }
        copied.is_ok()
    }

    /// Hands a list to the transport, some transfers at a time.
    fn copy_list_by_transport(&mut self, list: &TransferList) -> bool {
        let mut transfers = list.iter().map(|(_, t)| t);
        while let Some(first) = transfers.next() {
            let (mut some, mut count) = ([first; AT_ONCE], 1_usize);
            for (place, t) in some.iter_mut().skip(1).zip(&mut transfers) {
                *place = t;
                count = count.saturating_add(1);
            }
            let some = some.get(..count).unwrap_or_default();
            if !self.queue.transport_mut().try_transfer_list(some) {
                return false;
            }
        }
        true
    }

    /// A list of small copies into memory that can be reached directly, done here and now; `false`
    /// when it must be posted, all of it: some copies may have been done, and are done again.
    pub(crate) fn transfer_list_now(&mut self, list: &TransferList) -> bool {
        if list.bytes() > MAX_CHUNK_BYTES {
            return false;
        }
        if list.len() == 0 || list.len() > MAX_BLOCKS_NOW {
            return false;
        }
        // Of transports that do it at once none compares generations.
        (!list.expects() && self.copy_list_by_transport(list)) || self.copy_list_mapped(list)
    }

    /// Does a list of small copies through a mapped window, all inside its gate. Returns `false` if it must be posted, even if it
    /// fails.
    fn copy_list_mapped(&mut self, list: &TransferList) -> bool {
        let Some((_, first)) = list.iter().next() else { return false };
        let window = self.queue.transport().mapped(first.remote.window, first.remote.epoch);
        let Some(window) = window else { return false };
        let needed = if first.opcode == Opcode::Get { Access::READ } else { Access::WRITE };
        let copied = window.inside(needed, |inside| {
            list.iter().all(|(region, t)| {
                let at = (t.remote.span.offset(), t.remote.expected);
                let len = t.local.span.len();
                inside.copy(at, region.bytes(), t.local.span, len).is_ok()
            })
        });
        let is_done = copied == Ok(true);
        if is_done {
            self.bytes_now = self.bytes_now.saturating_add(list.bytes());
        }
        is_done
    }
}

#[cfg(test)]
mod tests {
    use hmc_core::limits::MAX_CHUNK_BYTES;
    use hmc_core::region::{WindowDesc, WindowId, WindowSlice};
    use hmc_core::types::ConnType;
    use hmc_core::work::{CompleteWhen, Opcode};
    use hmc_mem::os::memfd::Mapping;

    use super::Copied;
    use crate::link::ends::{End, pair};
    use crate::link::transfer_list::{Blocks, ListBuilder};
    use crate::memory::Region;

    /// One byte more than is copied in one piece.
    const LONG: u64 = MAX_CHUNK_BYTES + 1;

    /// Fills a region.
    fn fill(region: &Region, byte: u8) {
        region.bytes().fill(region.local().extent.whole(), byte).expect("in range");
    }

    /// Whether the first `n` bytes of a region are 1, and the others 0.
    fn ones(region: &Region, n: u64) -> bool {
        let [all, n] = [region.len(), n].map(|n| usize::try_from(n).expect("small"));
        let mut bytes = vec![9; all];
        region.bytes().read_at(region.local().extent.whole(), &mut bytes).expect("in range");
        bytes == [vec![1; n], vec![0; all.saturating_sub(n)]].concat()
    }

    /// A window of the far end, mapped here.
    fn target(near: &End, far: &End) -> (Region, WindowDesc) {
        let (region, window) = far.expose(LONG);
        near.run_until_idle();
        assert!(near.link.data().mapped(window.window, window.epoch).is_some());
        (region, window)
    }

    #[test]
    fn a_transfer_is_done_at_once_up_to_the_length_of_a_piece() {
        let (near, far) = pair(ConnType::Shm);
        let (source, _) = near.expose(LONG);
        let (target, window) = target(&near, &far);
        let mut moved = 0;
        for (len, at_once) in [(1, true), (MAX_CHUNK_BYTES, true), (LONG, false)] {
            for opcode in [Opcode::Put, Opcode::Get, Opcode::PutNotify { tag: 3 }] {
                fill(&source, u8::from(opcode != Opcode::Get));
                fill(&target, u8::from(opcode == Opcode::Get));
                let local = source.slice(0, len).expect("in range");
                let remote = window.slice(0, len).expect("in range");
                let copied = near.link.data().transfer_now(&source, opcode, local, remote);
                let at_once = at_once && !matches!(opcode, Opcode::PutNotify { .. });
                let want = if at_once { Copied::Mapped } else { Copied::Not };
                assert_eq!(copied, want, "{opcode:?} of {len} bytes");
                let to = if opcode == Opcode::Get { &source } else { &target };
                moved += if at_once { len } else { 0 };
                assert!(ones(to, if at_once { len } else { 0 }), "{opcode:?} of {len} bytes");
                assert_eq!(near.link.data().bytes_moved(), (moved, 0));
            }
        }
    }

    #[test]
    fn bytes_of_no_region_are_copied_at_once_up_to_the_length_of_a_piece() {
        let (near, far) = pair(ConnType::Shm);
        let mut moved = 0;
        for (len, at_once) in [(1, true), (MAX_CHUNK_BYTES, true), (LONG, false)] {
            let (target, window) = target(&near, &far);
            let bytes = Mapping::create(len).expect("memory");
            let bytes_of_it = vec![1; usize::try_from(len).expect("small")];
            bytes.bytes().write_at(bytes.extent().whole(), &bytes_of_it).expect("in range");
            let remote = window.slice(0, len).expect("in range");
            let (view, whole) = (bytes.bytes(), bytes.extent().whole());
            let mut data = near.link.data();
            assert_eq!(data.copy_lent(Opcode::Put, view, whole, remote), at_once, "{len} bytes");
            moved += if at_once { len } else { 0 };
            assert!(ones(&target, if at_once { len } else { 0 }), "{len} bytes");
            assert_eq!(data.bytes_moved(), (moved, 0));
            let other = WindowSlice { window: WindowId(window.window.0 ^ (1 << 20)), ..remote };
            assert!(!data.copy_lent(Opcode::Put, view, whole, other), "not that window");
        }
    }

    #[test]
    fn a_list_is_done_at_once_up_to_the_length_of_a_piece() {
        let (near, far) = pair(ConnType::Shm);
        let (source, _) = near.expose(LONG);
        let (target, window) = target(&near, &far);
        let named = |window: &WindowDesc, list: &[(u64, u64)]| {
            let mut all = ListBuilder::new(Opcode::Put, CompleteWhen::Visible, window, list.len());
            for &(at, len) in list {
                all.push(&source, Blocks::one(at, at, len)).expect("in range");
            }
            all.finish().expect("few")
        };
        for (len, at_once) in [(1, true), (MAX_CHUNK_BYTES / 2, true), (LONG / 2 + 1, false)] {
            fill(&source, 1);
            fill(&target, 0);
            let list = [0, LONG - len].map(|at| (at, len));
            let done = near.link.data().transfer_list_now(&named(&window, &list));
            assert_eq!(done, at_once, "2 x {len} bytes");
            assert_eq!(ones(&target, 0), !at_once, "2 x {len} bytes");
            let lost = WindowDesc { window: WindowId(window.window.0 ^ (1 << 20)), ..window };
            assert!(!near.link.data().transfer_list_now(&named(&lost, &list)), "no such window");
            assert!(!near.link.data().transfer_list_now(&named(&window, &[])), "nothing");
        }
    }
}
