//! The first messages of a native connection: HELLO, WELCOME, REJECT, and the list of endpoints.
//!
//! The magic and the version have the same offsets in all versions, so any two versions can detect the difference.
//! All later fields belong to this version.

use bitflags::bitflags;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::limits::{MAX_ENDPOINTS, MAX_HELLO_BYTES, MAX_PEERS, MAX_SLOTS};
use crate::time::Duration;
use crate::types::{Incarnation, Rank, VERSION};
use crate::wire::advert::EndpointBlob;
use crate::wire::cursor::{Reader, WireError, WireErrorKind, Writer, to_u32, to_usize};

/// How a native HELLO begins.
pub const MAGIC: [u8; 4] = *b"HMC2";
/// Bytes of a HELLO's fixed part.
pub const HELLO_BYTES: usize = 112;
/// Bytes of a link token.
pub const TOKEN_BYTES: usize = 16;
/// Bytes that all endpoint blobs of one HELLO or WELCOME may take together: what
/// [`MAX_HELLO_BYTES`] leaves beside the message's kind, the fixed part and the token.
pub const MAX_ENDPOINT_LIST_BYTES: usize = 383;

const _: () = assert!(MAX_ENDPOINT_LIST_BYTES + 1 + HELLO_BYTES + TOKEN_BYTES == 512);
const _: () = assert!(MAX_HELLO_BYTES == 512);

bitflags! {
    /// What an end offers beyond the basics. Unknown bits of a peer are passed over.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Features: u32 {
        /// May copy between its own memory and the peer's by `process_vm_readv(2)` and
        /// `process_vm_writev(2)`.
        const CMA = 1;
        /// Understands an `Ack` for more than one operation.
        const BATCHED_ACKS = 1 << 1;
        /// Takes part in UCX, which has lanes of RDMA hardware there.
        const UCX_NIC = 1 << 2;
        /// Takes the bytes of a short message with its offer.
        const EAGER = 1 << 3;
        /// Compares generations of blocks where it serves its windows.
        const GENERATIONS = 1 << 4;
        /// Understands `Gather` on a data stream.
        const GATHER = 1 << 5;
        /// Over shared memory, receives control frames through a ring.
        const CTRL_RING = 1 << 6;
        /// Over shared memory, members of groups agree on windows into which they put bytes of collectives.
        const GROUP_WINDOWS = 1 << 7;
        /// Over shared memory, sends and takes pages of window words with 8 gates for each of the first 32 windows.
        const GATES = 1 << 8;
        /// Over TCP, the successful END of the receiver of a direct message stands for both ends'.
        const COUNTED = 1 << 9;
        /// Over shared memory, members of groups read long messages out of each other's memory by `process_vm_readv(2)`.
        const GROUP_READS = 1 << 10;
    }
}

/// Which machine: a hash of its boot id. Equal on both ends means "perhaps the same host"; only a
/// passed descriptor proves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct HostId(pub [u8; 16]);

/// The secret that binds secondary connections to a control connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct LinkToken(pub [u8; TOKEN_BYTES]);

impl LinkToken {
    /// Whether both are the same. Takes as long whatever they hold: how long a wrong guess takes
    /// tells nothing of how much of it was right.
    #[must_use]
    pub fn matches(&self, other: &Self) -> bool {
        let differ = self.0.iter().zip(&other.0).fold(0, |sum, (a, b)| sum | (a ^ b));
        core::hint::black_box(differ) == 0
    }
}

impl core::fmt::Debug for LinkToken {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        // A token in a log would let its reader attach.
        f.write_str("LinkToken(..)")
    }
}

/// The endpoint that a dialer was told to reach: who answers by a name that others use too, as a local socket's, compares
/// it with its own. As it stands in the frame.
#[derive(
    Clone, Copy, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Asked {
    ip: [u8; 16],
    netns: U64,
    port: U16,
}

impl Asked {
    /// No endpoint was named, and the dialer's network namespace is not known.
    pub const ANY: Self = Self::new([0; 16], 0, 0);

    /// That address and port, asked for from that network namespace.
    #[must_use]
    pub const fn new(ip: [u8; 16], port: u16, netns: u64) -> Self {
        Self { ip, netns: U64::new(netns), port: U16::new(port) }
    }

    /// An IPv6 address, or an IPv4 one within `::ffff:0:0/96`; all zeros: any.
    #[must_use]
    pub const fn ip(&self) -> [u8; 16] {
        self.ip
    }

    /// A TCP port; 0: none was named, and nothing is compared.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port.get()
    }

    /// The dialer's network namespace; 0: not known. Loopback addresses mean something within one only.
    #[must_use]
    pub const fn netns(&self) -> u64 {
        self.netns.get()
    }
}

impl core::fmt::Debug for Asked {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let mut words = f.debug_struct("Asked");
        words.field("ip", &self.ip).field("port", &self.port()).field("netns", &self.netns());
        words.finish()
    }
}

/// The data of one end in HELLO and WELCOME. Every message is moved in the space that its longest kind needs: what
/// is long and rarely looked at is borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello<'a> {
    /// What it offers.
    pub features: Features,
    /// The job that both ends must belong to.
    pub job: u64,
    /// Its rank, below [`MAX_PEERS`].
    pub rank: Rank,
    /// Its life.
    pub incarnation: Incarnation,
    /// Fresh random bytes.
    pub nonce: [u8; 16],
    /// Whom it believes to talk to; `None` when it does not care.
    pub expected: Option<Rank>,
    /// Its machine.
    pub host: HostId,
    /// How long it is silent at most; zero when it wants no heartbeats.
    pub heartbeat: Duration,
    /// How many operations it will have outstanding at most; up to [`MAX_SLOTS`].
    pub slots: u16,
    /// Which endpoint the dialer was told to reach. Means nothing in a WELCOME.
    pub asked: &'a Asked,
    /// Whether the dialer proves that it is of the same user, and wants the same of the acceptor ([`crate::wire::proof`]).
    /// Means nothing in a WELCOME.
    pub proves: bool,
    /// Its endpoints.
    pub endpoints: Endpoints<'a>,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    magic: [u8; 4],
    version: U16,
    mandatory: U16,
    features: U32,
    rank: U32,
    job: U64,
    incarnation: U64,
    nonce: [u8; 16],
    expected: U32,
    slots: U16,
    endpoints: u8,
    reserved: u8,
    host: [u8; 16],
    heartbeat: U64,
    asked: Asked,
    proves: u8,
    spare: [u8; 5],
}

const _: () = assert!(size_of::<Raw>() == HELLO_BYTES);

/// The fixed part, checked, and how many endpoints follow it (behind the token of a WELCOME).
pub(crate) type Fixed<'a> = (Hello<'a>, u8);

impl<'a> Hello<'a> {
    /// Reads the fixed part.
    pub(crate) fn parse_fixed(r: &mut Reader<'a>) -> Result<Fixed<'a>, WireError> {
        let at = r.at();
        let bad = |offset: u32, kind| Err(WireError::new(at.saturating_add(offset), kind));
        // Check what every version has before the length that only this version has.
        let mut head = *r;
        let magic = *head.array::<4>()?;
        if magic != MAGIC {
            return bad(0, WireErrorKind::Magic(magic));
        }
        let theirs = head.u16_le()?;
        if theirs != VERSION {
            return bad(4, WireErrorKind::Version { theirs });
        }
        let raw: &Raw = zerocopy::transmute_ref!(r.array::<HELLO_BYTES>()?);
        let value = |field, value| WireErrorKind::Value { field, value };
        if raw.mandatory.get() != 0 {
            return bad(6, WireErrorKind::Mandatory { unknown: raw.mandatory.get() });
        }
        if raw.rank.get() >= MAX_PEERS {
            return bad(12, value("rank", u64::from(raw.rank.get())));
        }
        let expected = match raw.expected.get() {
            u32::MAX => None,
            n if n < MAX_PEERS => Some(Rank(n)),
            n => return bad(48, value("expected rank", u64::from(n))),
        };
        if usize::from(raw.slots.get()) > MAX_SLOTS {
            return bad(52, value("slots", u64::from(raw.slots.get())));
        }
        if usize::from(raw.endpoints) > MAX_ENDPOINTS {
            return bad(54, value("endpoints", u64::from(raw.endpoints)));
        }
        if raw.reserved != 0 {
            return bad(55, value("reserved", u64::from(raw.reserved)));
        }
        if raw.proves > 1 {
            return bad(106, value("proof", u64::from(raw.proves)));
        }
        if raw.spare != [0; 5] {
            return bad(107, value("reserved", 1));
        }
        let hello = Hello {
            features: Features::from_bits_truncate(raw.features.get()),
            job: raw.job.get(),
            rank: Rank(raw.rank.get()),
            incarnation: Incarnation(raw.incarnation.get()),
            nonce: raw.nonce,
            expected,
            host: HostId(raw.host),
            heartbeat: Duration::from_nanos(raw.heartbeat.get()),
            slots: raw.slots.get(),
            asked: &raw.asked,
            proves: raw.proves == 1,
            endpoints: Endpoints::EMPTY,
        };
        Ok((hello, raw.endpoints))
    }

    /// The fixed part's bytes.
    pub(crate) fn fixed_bytes(&self) -> [u8; HELLO_BYTES] {
        zerocopy::transmute!(Raw {
            magic: MAGIC,
            version: U16::new(VERSION),
            mandatory: U16::new(0),
            features: U32::new(self.features.bits()),
            rank: U32::new(self.rank.0),
            job: U64::new(self.job),
            incarnation: U64::new(self.incarnation.0),
            nonce: self.nonce,
            expected: U32::new(self.expected.map_or(u32::MAX, |r| r.0)),
            slots: U16::new(self.slots),
            endpoints: self.endpoints.count,
            reserved: 0,
            host: self.host.0,
            heartbeat: U64::new(self.heartbeat.as_nanos()),
            asked: *self.asked,
            proves: u8::from(self.proves),
            spare: [0; 5],
        })
    }

    /// Returns the same HELLO without what it borrows: nothing is asked for, and there are no endpoints.
    #[must_use]
    pub const fn detached(self) -> Hello<'static> {
        Hello {
            features: self.features,
            job: self.job,
            rank: self.rank,
            incarnation: self.incarnation,
            nonce: self.nonce,
            expected: self.expected,
            host: self.host,
            heartbeat: self.heartbeat,
            slots: self.slots,
            asked: &Asked::ANY,
            proves: self.proves,
            endpoints: Endpoints::EMPTY,
        }
    }
}

/// The acceptor's answer to a HELLO: its own words, and the token for secondary connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Welcome<'a> {
    /// What the acceptor says about itself.
    pub hello: Hello<'a>,
    /// What secondary connections of this link must show.
    pub token: LinkToken,
}

/// A list of endpoint blobs, encoded and checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Endpoints<'a> {
    raw: &'a [u8],
    count: u8,
}

impl<'a> Endpoints<'a> {
    /// No endpoints.
    pub const EMPTY: Self = Self { raw: &[], count: 0 };

    /// How many there are; at most [`MAX_ENDPOINTS`].
    #[must_use]
    pub fn len(&self) -> usize {
        usize::from(self.count)
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The encoded list.
    #[must_use]
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.raw
    }

    /// The blobs in order.
    pub fn iter(&self) -> impl Iterator<Item = EndpointBlob<'a>> + use<'a> {
        let mut r = Reader::new(self.raw, 0);
        // Checked when the list was made, so the reader does not fail before it is empty.
        core::iter::from_fn(move || EndpointBlob::parse(&mut r).ok())
    }

    /// Reads `count` blobs, which must end where the frame ends.
    pub(crate) fn parse(mut r: Reader<'a>, count: u8) -> Result<Self, WireError> {
        let raw = r.rest();
        if raw.len() > MAX_ENDPOINT_LIST_BYTES {
            let (len, limit) = (to_u32(raw.len()), to_u32(MAX_ENDPOINT_LIST_BYTES));
            return Err(WireError::new(r.at(), WireErrorKind::TooLong { len, limit }));
        }
        for _ in 0..count {
            EndpointBlob::parse(&mut r)?;
        }
        r.end()?;
        Ok(Self { raw, count })
    }
}

/// A list of endpoint blobs under construction.
#[derive(Clone, Debug)]
pub struct EndpointList {
    raw: [u8; MAX_ENDPOINT_LIST_BYTES],
    used: u32,
    count: u8,
}

impl Default for EndpointList {
    fn default() -> Self {
        Self::new()
    }
}

impl EndpointList {
    /// An empty list.
    #[must_use]
    pub const fn new() -> Self {
        Self { raw: [0; MAX_ENDPOINT_LIST_BYTES], used: 0, count: 0 }
    }

    /// Adds a blob.
    ///
    /// # Errors
    /// `NoSpace` when the bytes do not fit, `Value` beyond [`MAX_ENDPOINTS`], `TooLong` for a blob
    /// beyond its own limit. The list stays as it was.
    pub fn push(&mut self, blob: EndpointBlob<'_>) -> Result<(), WireError> {
        let count = self.count.saturating_add(1);
        if usize::from(count) > MAX_ENDPOINTS {
            return Err(WireError::value(0, "endpoints", u64::from(count)));
        }
        let free = self.raw.get_mut(to_usize(self.used)..).unwrap_or(&mut []);
        let missing = blob.emitted_len().saturating_sub(free.len());
        if missing != 0 {
            let kind = WireErrorKind::NoSpace { missing: to_u32(missing) };
            return Err(WireError::new(self.used, kind));
        }
        let mut w = Writer::new(free);
        blob.emit(&mut w)?;
        self.used = self.used.saturating_add(w.written());
        self.count = count;
        Ok(())
    }

    /// The list as it goes into a [`Hello`].
    #[must_use]
    pub fn endpoints(&self) -> Endpoints<'_> {
        let raw = self.raw.get(..to_usize(self.used)).unwrap_or(&[]);
        Endpoints { raw, count: self.count }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        Asked, EndpointList, Endpoints, Features, Hello, HostId, LinkToken,
        MAX_ENDPOINT_LIST_BYTES, TOKEN_BYTES,
    };
    use crate::time::Duration;
    use crate::types::{Incarnation, Rank};
    use crate::wire::advert::EndpointBlob;
    use crate::wire::cursor::Reader;
    use std::vec::Vec;

    #[test]
    fn a_list_gives_back_what_was_pushed_and_stays_within_its_limits() {
        let mut list = EndpointList::new();
        for kind in 0..8u8 {
            list.push(EndpointBlob { kind, bytes: &[7; 40][..usize::from(kind)] }).unwrap();
        }
        assert!(list.push(EndpointBlob { kind: 8, bytes: &[] }).is_err());
        let kinds: Vec<(u8, usize)> =
            list.endpoints().iter().map(|b| (b.kind, b.bytes.len())).collect();
        assert_eq!(kinds, (0..8u8).map(|k| (k, usize::from(k))).collect::<Vec<_>>());

        let mut list = EndpointList::new();
        let big = [1u8; 2000];
        assert!(list.push(EndpointBlob { kind: 1, bytes: &big }).is_err());
        let fits = &big[..MAX_ENDPOINT_LIST_BYTES - 3];
        assert!(list.push(EndpointBlob { kind: 1, bytes: &big[..=fits.len()] }).is_err());
        assert!(list.endpoints().is_empty());
        list.push(EndpointBlob { kind: 1, bytes: fits }).unwrap();
        assert!(!list.endpoints().is_empty());
        assert_eq!(list.endpoints().as_bytes().len(), MAX_ENDPOINT_LIST_BYTES);
        let read = Endpoints::parse(Reader::new(list.endpoints().as_bytes(), 0), 1);
        assert_eq!(read.map(|e| e.len()), Ok(1), "the longest list can be read");
        let longer = [1u8; MAX_ENDPOINT_LIST_BYTES + 1];
        assert!(Endpoints::parse(Reader::new(&longer, 0), 1).is_err());
    }

    #[test]
    fn a_token_is_not_printed() {
        assert_eq!(std::format!("{:?}", LinkToken([9; 16])), "LinkToken(..)");
    }

    #[test]
    fn tokens_match_in_every_byte_or_not_at_all() {
        let token = LinkToken([0x5A; TOKEN_BYTES]);
        assert!(token.matches(&LinkToken([0x5A; TOKEN_BYTES])));
        for (at, bit) in (0..TOKEN_BYTES).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
            let mut other = token;
            other.0[at] ^= 1 << bit;
            assert!(!token.matches(&other) && !other.matches(&token), "byte {at}, bit {bit}");
            // Two bytes that differ alike do not make up for each other.
            other.0[(at + 1) % TOKEN_BYTES] ^= 1 << bit;
            assert!(!token.matches(&other), "byte {at} and its neighbour, bit {bit}");
        }
    }

    #[test]
    fn unknown_features_are_ignored() {
        let words = Hello {
            features: Features::from_bits_retain(u32::MAX),
            job: 1,
            rank: Rank(1),
            incarnation: Incarnation(1),
            nonce: [0; 16],
            expected: None,
            host: HostId::default(),
            heartbeat: Duration::ZERO,
            slots: 0,
            asked: &Asked::ANY,
            proves: false,
            endpoints: Endpoints::EMPTY,
        };
        let bytes = words.fixed_bytes();
        assert_eq!(bytes[8..12], [0xFF; 4], "all bits travel");
        let (read, _) = Hello::parse_fixed(&mut Reader::new(&bytes, 0)).unwrap();
        assert_eq!(read.features, Features::all());
    }
}
