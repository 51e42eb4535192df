//! This end as the target: its windows, which the peer reaches without it.

use std::os::fd::BorrowedFd;

use hmc_core::region::{Epoch, LocalSlice, WindowDesc, WindowId};
use hmc_core::transport::{Note, Notes, Registration, Target};
use hmc_core::window::{WindowEntry, WindowFault, WindowState, WindowTable, WindowTransition};
use hmc_std::transport::{Fence, Gate, Released, pages_of};
use hmc_std::{Error, ErrorKind, Region, Result};

use crate::name::NOTE_WINDOW;
use crate::plane::MemfilePlane;
use crate::window::WindowNote;

impl Registration for MemfilePlane {
    type Memory = Region;
    type Released = Released;

    fn add_memory(&mut self, memory: &Region) {
        self.regions.add(memory);
    }

    fn release_memory(&mut self, all: bool) {
        self.regions.release(all, &mut self.released);
    }

    fn take_released(&mut self) -> Released {
        std::mem::take(&mut self.released)
    }
}

impl Target for MemfilePlane {
    type Windows = Box<[WindowEntry]>;
    type Gate = Gate;
    type Fault = Error;

    fn windows(&mut self) -> &mut WindowTable<Box<[WindowEntry]>> {
        &mut self.windows
    }

    /// Tells the peer where the file of the window is.
    fn open<'a>(
        &mut self,
        memory: &Region,
        local: LocalSlice,
        window: &WindowDesc,
        buf: &'a mut [u8],
    ) -> Result<Option<Note<'a>>> {
        let fd = if window.extent.is_empty() { None } else { Some(file_of(memory)?) };
        let note = WindowNote::new(window, local, fd)?;
        let bytes = note.emit(buf).map_err(|e| Error::new(ErrorKind::Io, e.to_string()))?;
        Ok(Some(Note { kind: NOTE_WINDOW, bytes }))
    }

    /// The peer's word is the fence: it may be in the middle of a pwrite(2), also when it is stopped.
    fn revoke(&mut self, id: WindowId, epoch: Epoch) -> std::result::Result<Fence, WindowFault> {
        self.windows.apply(id, epoch, WindowTransition::Revoke)?;
        Ok(Fence::PeerAck)
    }

    fn is_released(&self, id: WindowId, epoch: Epoch) -> bool {
        self.acknowledged.contains(&(id, epoch)) || self.life.has_ended()
    }

    fn free_window(&mut self, id: WindowId, epoch: Epoch) {
        // An error: the table has no such window, it was freed before.
        let _ = self.windows.apply(id, epoch, WindowTransition::Fence);
        self.acknowledged.retain(|window| *window != (id, epoch));
    }
}

impl Notes for MemfilePlane {
    fn receive_note(&mut self, note: Note<'_>) -> Result<()> {
        if note.kind != NOTE_WINDOW {
            return Ok(());
        }
        let described = WindowNote::parse(note.bytes)
            .map_err(|e| Error::new(ErrorKind::Protocol, e.to_string()))?;
        self.requests.add_window(&described, &mut self.released)
    }

    /// Only of a window that was revoked, and once: the table bounds what is kept.
    fn receive_release(&mut self, id: WindowId, epoch: Epoch) {
        let entry = self.windows.entry(id, epoch);
        let is_revoked = entry.is_ok_and(|e| e.state() != WindowState::Exposed);
        if is_revoked && !self.acknowledged.contains(&(id, epoch)) {
            self.acknowledged.push((id, epoch));
        }
    }
}

/// The file behind a region.
fn file_of(memory: &Region) -> Result<BorrowedFd<'_>> {
    let file = pages_of(memory).and_then(|pages| pages.fd().ok());
    file.ok_or_else(|| {
        let what = "memfile exposes only memory that the session allocated, as long as its pages were not replaced; allocate it, or use shm";
        Error::new(ErrorKind::Unsupported, what)
    })
}
