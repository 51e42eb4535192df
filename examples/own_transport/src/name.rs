//! What the transport is called, in programs and on the wire.

use hmc_core::types::ConnType;
use hmc_core::wire::advert::ENDPOINT_CUSTOM;

/// The name of the transport: `connect_with(rank, &address, MEMFILE, timeout)` asks for it.
pub const MEMFILE: ConnType = ConnType::Custom("memfile");

/// Its number on the wire. Another transport of one's own takes another one.
pub(crate) const ENDPOINT: u8 = ENDPOINT_CUSTOM + 17;

/// The kind of the notes that describe windows.
pub(crate) const NOTE_WINDOW: u8 = ENDPOINT + 1;
