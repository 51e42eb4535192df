//! Descriptions of memory and of transports' addresses: window adverts and endpoint blobs.
//!
//! An interface between the control plane and the data plane. A parsed advert is a checked *claim*:
//! its numbers fit together, but only the owner (or its NIC) decides on each access.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::limits::{MAX_ENDPOINT_BYTES, MAX_UDS_PATH_BYTES};
use crate::range::{Extent, Side};
use crate::region::{Epoch, WindowDesc, WindowId};
use crate::types::{Access, MemoryKind};
use crate::wire::cursor::{Reader, WireError, WireErrorKind, Writer, to_u32};

/// Bytes of an advert's body.
pub const ADVERT_BYTES: usize = 48;
/// Bytes before the content of an endpoint blob: kind and length.
pub const BLOB_HEAD_BYTES: usize = 3;

/// What lies behind a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WindowBacking {
    /// Memory without a descriptor (adopted, or of a device): the shm transport reaches it only by
    /// copies that the owner makes.
    Process,
    /// A memfd, whose descriptor the shm transport passes. The window lies within the memfd.
    Memfd {
        /// First byte of the window within the memfd.
        base: u64,
        /// Size of the memfd in bytes.
        size: Extent,
    },
}

/// What a window is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WindowRole {
    /// The window over the owner's connection buffer, to which the offset-based calls refer.
    Default,
    /// A window that the owner exposed by itself; the label is the user's.
    Named(u64),
}

/// A window, as its owner describes it to the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionAdvert {
    /// Name, epoch, size, rights, memory kind.
    pub region: WindowDesc,
    /// What lies behind it.
    pub backing: WindowBacking,
    /// What it is for.
    pub role: WindowRole,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    window: U64,
    epoch: U32,
    access: u8,
    memory: u8,
    backing: u8,
    role: u8,
    len: U64,
    base: U64,
    size: U64,
    label: U64,
}

const _: () = assert!(size_of::<Raw>() == ADVERT_BYTES);

impl RegionAdvert {
    /// Reads an advert's body, the first byte of which is byte `at` of its frame.
    ///
    /// # Errors
    /// `Value` for unknown rights, kinds or roles, or for fields that must be zero and are not;
    /// `Range` when the window does not lie within its memfd.
    pub fn parse(bytes: &[u8; ADVERT_BYTES], at: u32) -> Result<Self, WireError> {
        let raw: Raw = zerocopy::transmute!(*bytes);
        let bad = |offset: u32, field, value| {
            Err(WireError::value(at.saturating_add(offset), field, value))
        };
        let Some(access) = Access::from_bits(raw.access) else {
            return bad(12, "access", u64::from(raw.access));
        };
        let Some(kind) = MemoryKind::from_wire(raw.memory) else {
            return bad(13, "memory kind", u64::from(raw.memory));
        };
        let len = raw.len.get();
        let (base, size) = (raw.base.get(), raw.size.get());
        let backing = match raw.backing {
            0 => {
                if base != 0 {
                    return bad(24, "base", base);
                }
                if size != 0 {
                    return bad(32, "memfd size", size);
                }
                WindowBacking::Process
            }
            1 => {
                let size = Extent::new(size);
                if let Err(e) = size.span(Side::Remote, base, len) {
                    let at = at.saturating_add(24);
                    return Err(WireError::new(at, WireErrorKind::Range(e)));
                }
                WindowBacking::Memfd { base, size }
            }
            n => return bad(14, "backing", u64::from(n)),
        };
        let label = raw.label.get();
        let role = match raw.role {
            0 if label == 0 => WindowRole::Default,
            0 => return bad(40, "label", label),
            1 => WindowRole::Named(label),
            n => return bad(15, "role", u64::from(n)),
        };
        let region = WindowDesc {
            window: WindowId(raw.window.get()),
            epoch: Epoch(raw.epoch.get()),
            extent: Extent::new(len),
            access,
            kind,
        };
        Ok(Self { region, backing, role })
    }

    /// The advert's body.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; ADVERT_BYTES] {
        let (backing, base, size) = match self.backing {
            WindowBacking::Process => (0, 0, 0),
            WindowBacking::Memfd { base, size } => (1, base, size.len()),
        };
        let (role, label) = match self.role {
            WindowRole::Default => (0, 0),
            WindowRole::Named(label) => (1, label),
        };
        zerocopy::transmute!(Raw {
            window: U64::new(self.region.window.0),
            epoch: U32::new(self.region.epoch.0),
            access: self.region.access.bits(),
            memory: self.region.kind.to_wire(),
            backing,
            role,
            len: U64::new(self.region.extent.len()),
            base: U64::new(base),
            size: U64::new(size),
            label: U64::new(label),
        })
    }
}

/// A transport's endpoint: a kind and bytes that only that transport understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EndpointBlob<'a> {
    /// Which transport. Numbers of transports that this end does not have are passed over.
    pub kind: u8,
    /// The transport's own bytes; at most [`MAX_ENDPOINT_BYTES`].
    pub bytes: &'a [u8],
}

/// The blobs that this version understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EndpointDesc<'a> {
    /// Shared memory: the socket at this path passes descriptors. Not empty, no zero byte, at most
    /// [`MAX_UDS_PATH_BYTES`].
    Shm {
        /// The path's bytes.
        path: &'a [u8],
    },
    /// A data stream: dial this port (not 0) at the address of the control connection.
    Tcp {
        /// The port's two bytes are in the blob, little-endian.
        port: [u8; 2],
    },
    /// UCX. In a HELLO or WELCOME it is empty: there is a worker. Its address follows in an ENDPOINT message, since it
    /// grows with the host's devices.
    Ucx {
        /// The worker's address, as UCX made it.
        address: &'a [u8],
    },
    /// The key to a window, for UCX.
    UcxKey(UcxKey<'a>),
    /// A transport that this version does not know.
    Other(EndpointBlob<'a>),
}

/// How UCX reaches a window: told before the window is, in an ENDPOINT message.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct UcxKey<'a> {
    /// The window, as its advert describes it; of host memory.
    pub region: WindowDesc,
    /// Where it begins in its owner's address space: a number for UCX, never followed here.
    pub base: u64,
    /// The key, as UCX packed it; not empty.
    pub key: &'a [u8],
    /// The whole content of the blob.
    raw: &'a [u8],
}

/// Bytes before the key itself.
pub const UCX_KEY_HEAD_BYTES: usize = 29;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawKeyHead {
    window: U64,
    epoch: U32,
    access: u8,
    len: U64,
    base: U64,
}

const _: () = assert!(size_of::<RawKeyHead>() == UCX_KEY_HEAD_BYTES);

impl core::fmt::Debug for UcxKey<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        // Not the key: who has it can reach the memory.
        write!(f, "UcxKey({:?}, {} bytes)", self.region, self.key.len())
    }
}

impl<'a> UcxKey<'a> {
    /// Puts a key's content into `storage`. `None` when it does not fit, or the key is empty.
    pub fn compose(
        region: &WindowDesc,
        base: u64,
        key: &[u8],
        storage: &'a mut [u8],
    ) -> Option<Self> {
        let len = UCX_KEY_HEAD_BYTES.checked_add(key.len())?;
        let raw = storage.get_mut(..len)?;
        let (head, rest) = raw.split_first_chunk_mut::<UCX_KEY_HEAD_BYTES>()?;
        *head = zerocopy::transmute!(RawKeyHead {
            window: U64::new(region.window.0),
            epoch: U32::new(region.epoch.0),
            access: region.access.bits(),
            len: U64::new(region.extent.len()),
            base: U64::new(base),
        });
        for (to, from) in rest.iter_mut().zip(key) {
            *to = *from;
        }
        Self::read(raw).ok()
    }

    /// The whole content of the blob.
    #[must_use]
    pub const fn content(&self) -> &'a [u8] {
        self.raw
    }

    fn read(raw: &'a [u8]) -> Result<Self, WireError> {
        let short = || WireError::value(1, "length of a key", u64::from(to_u32(raw.len())));
        let (head, key) = raw.split_first_chunk::<UCX_KEY_HEAD_BYTES>().ok_or_else(short)?;
        if key.is_empty() {
            return Err(short());
        }
        let head: RawKeyHead = zerocopy::transmute!(*head);
        let access = Access::from_bits(head.access)
            .ok_or_else(|| WireError::value(15, "access", u64::from(head.access)))?;
        let region = WindowDesc {
            window: WindowId(head.window.get()),
            epoch: Epoch(head.epoch.get()),
            extent: Extent::new(head.len.get()),
            access,
            kind: MemoryKind::Cpu,
        };
        Ok(Self { region, base: head.base.get(), key, raw })
    }
}

/// Kind of an [`EndpointDesc::Shm`].
pub const ENDPOINT_SHM: u8 = 1;
/// Kind of an [`EndpointDesc::Tcp`].
pub const ENDPOINT_TCP: u8 = 2;
/// Kind of an [`EndpointDesc::Ucx`].
pub const ENDPOINT_UCX: u8 = 3;
/// Kind of an [`EndpointDesc::UcxKey`].
pub const ENDPOINT_UCX_KEY: u8 = 4;
/// Kind of the note after which its sender's control frames travel through the receiver's ring.
pub const ENDPOINT_CTRL_RING: u8 = 8;
/// The first kind of a transport that an application brings ([`ConnType::Custom`](crate::types::ConnType::Custom)). It and those
/// above have no meaning here.
pub const ENDPOINT_CUSTOM: u8 = 128;

impl<'a> EndpointDesc<'a> {
    /// A data stream at `port`.
    #[must_use]
    pub const fn tcp(port: u16) -> Self {
        Self::Tcp { port: port.to_le_bytes() }
    }

    /// The port of a data stream.
    #[must_use]
    pub const fn port(&self) -> Option<u16> {
        match self {
            Self::Tcp { port } => Some(u16::from_le_bytes(*port)),
            Self::Shm { .. } | Self::Ucx { .. } | Self::UcxKey(_) | Self::Other(_) => None,
        }
    }

    /// This endpoint as a blob.
    #[must_use]
    pub const fn blob(&'a self) -> EndpointBlob<'a> {
        match self {
            Self::Shm { path } => EndpointBlob { kind: ENDPOINT_SHM, bytes: path },
            Self::Tcp { port } => EndpointBlob { kind: ENDPOINT_TCP, bytes: port },
            Self::Ucx { address } => EndpointBlob { kind: ENDPOINT_UCX, bytes: address },
            Self::UcxKey(key) => EndpointBlob { kind: ENDPOINT_UCX_KEY, bytes: key.raw },
            Self::Other(blob) => *blob,
        }
    }
}

impl<'a> EndpointBlob<'a> {
    /// What this version makes of the blob.
    ///
    /// # Errors
    /// A known kind with bytes that it cannot have; `at` is relative to the blob.
    pub fn decode(&self) -> Result<EndpointDesc<'a>, WireError> {
        const CONTENT: u32 = 3;
        let len = to_u32(self.bytes.len());
        match self.kind {
            ENDPOINT_SHM => {
                if self.bytes.len() > MAX_UDS_PATH_BYTES {
                    let limit = to_u32(MAX_UDS_PATH_BYTES);
                    return Err(WireError::new(1, WireErrorKind::TooLong { len, limit }));
                }
                if self.bytes.is_empty() || self.bytes.contains(&0) {
                    return Err(WireError::value(CONTENT, "socket path", 0));
                }
                Ok(EndpointDesc::Shm { path: self.bytes })
            }
            ENDPOINT_TCP => match <[u8; 2]>::try_from(self.bytes) {
                Ok([0, 0]) => Err(WireError::value(CONTENT, "port", 0)),
                Ok(port) => Ok(EndpointDesc::Tcp { port }),
                Err(_) => Err(WireError::value(1, "length of a port", u64::from(len))),
            },
            ENDPOINT_UCX => Ok(EndpointDesc::Ucx { address: self.bytes }),
            ENDPOINT_UCX_KEY => UcxKey::read(self.bytes).map(EndpointDesc::UcxKey),
            _ => Ok(EndpointDesc::Other(*self)),
        }
    }

    /// Bytes of the blob on the wire.
    #[must_use]
    pub fn emitted_len(&self) -> usize {
        BLOB_HEAD_BYTES.saturating_add(self.bytes.len())
    }

    /// Reads a blob.
    ///
    /// # Errors
    /// `Truncated`; `TooLong` beyond [`MAX_ENDPOINT_BYTES`].
    pub fn parse(r: &mut Reader<'a>) -> Result<Self, WireError> {
        let kind = r.u8()?;
        let at = r.at();
        let len = r.u16_le()?;
        let limit = to_u32(MAX_ENDPOINT_BYTES);
        if u32::from(len) > limit {
            return Err(WireError::new(at, WireErrorKind::TooLong { len: u32::from(len), limit }));
        }
        Ok(Self { kind, bytes: r.bytes(usize::from(len))? })
    }

    /// Writes the blob.
    ///
    /// # Errors
    /// `NoSpace`; `TooLong` beyond [`MAX_ENDPOINT_BYTES`], which writes nothing.
    pub fn emit(&self, out: &mut Writer<'_>) -> Result<(), WireError> {
        let limit = to_u32(MAX_ENDPOINT_BYTES);
        match u16::try_from(self.bytes.len()) {
            Ok(len) if u32::from(len) <= limit => {
                out.u8(self.kind)?;
                out.u16_le(len)?;
                out.bytes(self.bytes)
            }
            _ => {
                let len = to_u32(self.bytes.len());
                Err(WireError::new(out.written(), WireErrorKind::TooLong { len, limit }))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        ADVERT_BYTES, EndpointBlob, EndpointDesc, RegionAdvert, UcxKey, WindowBacking, WindowRole,
    };
    use crate::range::Extent;
    use crate::region::{Epoch, WindowDesc, WindowId};
    use crate::types::{Access, MemoryKind};
    use crate::wire::cursor::WireErrorKind;

    fn advert() -> RegionAdvert {
        RegionAdvert {
            region: WindowDesc {
                window: WindowId(0x0102_0304_0506_0708),
                epoch: Epoch(9),
                extent: Extent::new(0x1000),
                access: Access::all(),
                kind: MemoryKind::Cpu,
            },
            backing: WindowBacking::Memfd { base: 0x2000, size: Extent::new(0x3000) },
            role: WindowRole::Named(5),
        }
    }

    #[test]
    fn an_advert_is_checked_field_by_field() {
        let good = advert().to_bytes();
        assert_eq!(RegionAdvert::parse(&good, 9), Ok(advert()));
        let at = |i: usize, v: u8| -> (u32, WireErrorKind) {
            let mut b = good;
            b[i] = v;
            let e = RegionAdvert::parse(&b, 9).unwrap_err();
            (e.at - 9, e.kind)
        };
        assert!(matches!(at(12, 4), (12, WireErrorKind::Value { field: "access", value: 4 })));
        assert!(matches!(at(13, 0), (13, WireErrorKind::Value { field: "memory kind", .. })));
        assert!(matches!(at(13, 9), (13, WireErrorKind::Value { field: "memory kind", .. })));
        assert!(matches!(at(14, 0), (24, WireErrorKind::Value { field: "base", .. })));
        assert!(matches!(at(14, 2), (14, WireErrorKind::Value { field: "backing", .. })));
        assert!(matches!(at(15, 0), (40, WireErrorKind::Value { field: "label", .. })));
        assert!(matches!(at(15, 2), (15, WireErrorKind::Value { field: "role", .. })));
        assert!(matches!(at(16, 1), (24, WireErrorKind::Range(e)) if e.len == 0x1001));
        assert!(matches!(at(24, 1), (24, WireErrorKind::Range(e)) if e.offset == 0x2001));
        assert!(matches!(at(33, 0x2f), (24, WireErrorKind::Range(e)) if e.limit == 0x2f00));
        assert!(matches!(at(31, 0xff), (24, WireErrorKind::Range(_))));
    }

    #[test]
    fn a_window_of_process_memory_has_no_memfd() {
        let a =
            RegionAdvert { backing: WindowBacking::Process, role: WindowRole::Default, ..advert() };
        let mut b: [u8; ADVERT_BYTES] = a.to_bytes();
        assert_eq!(RegionAdvert::parse(&b, 0), Ok(a));
        b[32] = 1;
        let e = RegionAdvert::parse(&b, 0).unwrap_err();
        assert!(matches!(e.kind, WireErrorKind::Value { field: "memfd size", value: 1 }));
    }

    #[test]
    fn endpoints_are_decoded_or_passed_over() {
        let blob = |kind, bytes: &'static [u8]| EndpointBlob { kind, bytes };
        assert_eq!(blob(1, b"/run/x").decode(), Ok(EndpointDesc::Shm { path: b"/run/x" }));
        assert_eq!(blob(2, &[0x39, 0x30]).decode().unwrap().port(), Some(12345));
        assert_eq!(EndpointDesc::tcp(12345).blob(), blob(2, &[0x39, 0x30]));
        assert!(matches!(blob(77, &[]).decode(), Ok(EndpointDesc::Other(_))));
        assert!(blob(1, &[]).decode().is_err());
        assert!(blob(1, b"a\0b").decode().is_err());
        assert!(blob(1, &[b'a'; 107]).decode().is_ok());
        assert!(blob(1, &[b'a'; 108]).decode().is_err());
        assert!(blob(2, &[0, 0]).decode().is_err());
        assert!(blob(2, &[1]).decode().is_err());
        assert!(blob(2, &[1, 2, 3]).decode().is_err());
        assert_eq!(blob(3, b"").decode(), Ok(EndpointDesc::Ucx { address: b"" }));
        assert_eq!(blob(3, b"at").decode().unwrap().blob(), blob(3, b"at"));
        assert_eq!(blob(3, b"at").decode().unwrap().port(), None);
    }

    #[test]
    fn a_key_travels_with_its_window() {
        let mut storage = [0; 33];
        let region = WindowDesc {
            window: WindowId(0x0807_0605_0403_0201),
            epoch: Epoch(0x0C0B_0A09),
            extent: Extent::new(0x1000),
            access: Access::WRITE,
            kind: MemoryKind::Cpu,
        };
        let base = 0x1_0000_0000;
        assert_eq!(UcxKey::compose(&region, base, b"12345", &mut storage), None, "no space");
        assert_eq!(UcxKey::compose(&region, base, b"", &mut storage), None, "no key");
        let key = UcxKey::compose(&region, base, b"1234", &mut storage).unwrap();
        let endpoint = EndpointDesc::UcxKey(key);
        let blob = endpoint.blob();
        assert_eq!((blob.kind, blob.bytes.len()), (4, 33));
        assert_eq!(blob.bytes[..15], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 2, 0, 16]);
        let Ok(EndpointDesc::UcxKey(read)) = blob.decode() else { panic!("{blob:?}") };
        assert_eq!((read.region, read.base, read.key), (region, base, &b"1234"[..]));
        assert!(
            !std::format!("{read:?}").contains("49"),
            "the key is no secret any more: {read:?}"
        );
        for len in 0..30 {
            let short = EndpointBlob { kind: 4, bytes: &blob.bytes[..len] };
            assert_eq!(short.decode().is_ok(), len == 30, "{len} bytes");
        }
        let mut bad: [u8; 33] = blob.bytes.try_into().unwrap();
        bad[12] = 4;
        let e = EndpointBlob { kind: 4, bytes: &bad }.decode().unwrap_err();
        assert!(matches!((e.at, e.kind), (15, WireErrorKind::Value { field: "access", value: 4 })));
    }
}
