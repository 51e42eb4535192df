//! Local memory, as a transport uses it.

use crate::types::MemoryKind;

/// How a transport moves bytes of a kind of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Served {
    /// From and to where they are.
    Direct,
    /// Not at all: the bytes are to be copied to host memory first.
    Staged,
}

/// The local memory that a data plane knows.
pub trait Registration {
    /// The host's handle of registered memory.
    type Memory;
    /// Handles, registrations and mappings that are not used any more. They are dropped without the lock of the link: a drop may
    /// run code of the application, or take long.
    type Released;

    /// How memory of `kind` is served. It stays the same as long as the data plane lives.
    fn serves(&self, kind: MemoryKind) -> Served {
        match kind {
            MemoryKind::Cpu => Served::Direct,
            _ => Served::Staged,
        }
    }

    /// Makes memory known; called before the first request that names it. The data plane keeps a handle of it. A second call for
    /// the same memory changes nothing.
    fn add_memory(&mut self, memory: &Self::Memory);

    /// Releases memory that only data planes hold. With `all`, every memory that no request in flight uses: the link has ended.
    fn release_memory(&mut self, all: bool);

    /// Returns what was released since the last call, mappings of the peer's windows included.
    #[must_use]
    fn take_released(&mut self) -> Self::Released;
}
