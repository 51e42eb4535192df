//! Every message of the control connection: parse and emit.
//!
//! Integers and structs are the same in both protocols. All other messages are native: a frame of type STRUCT with
//! flags `0xC000`, whose first payload byte is the kind. A parsed message borrows its payload; nothing is copied.

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, TryFromBytes, Unaligned};

use crate::limits::{FRAME_HEADER_BYTES, MAX_EAGER_BYTES, MAX_FRAME_BYTES, MAX_PEERS};
use crate::region::{Epoch, WindowId};
use crate::rndv::{RndvId, RndvMsg};
use crate::types::Rank;
use crate::wire::advert::{ADVERT_BYTES, EndpointBlob, RegionAdvert};
use crate::wire::cursor::{Reader, WireError, WireErrorKind, Writer, to_u32};
use crate::wire::header::{FrameKind, Header};
use crate::wire::hello::{Endpoints, HELLO_BYTES, Hello, LinkToken, TOKEN_BYTES, Welcome};
use crate::wire::proof::{CHALLENGE_BYTES, Challenge, PROOF_BYTES, Proof};
use crate::wire::reject::{REJECT_BYTES, RejectReason};
use crate::wire::rndv::{emit_rndv, parse_rndv, rndv_len};

/// The first payload byte of each native message.
pub mod code {
    /// HELLO v2.
    pub const HELLO: u8 = 1;
    /// The answer to HELLO.
    pub const WELCOME: u8 = 2;
    /// The refusal of a HELLO or ATTACH.
    pub const REJECT: u8 = 3;
    /// The first frame of a secondary connection.
    pub const ATTACH: u8 = 4;
    /// The answer to ATTACH.
    pub const ATTACH_ACK: u8 = 5;
    /// The acceptor's proof, and what the dialer's must cover.
    pub const CHALLENGE: u8 = 6;
    /// The dialer's proof.
    pub const PROOF: u8 = 7;
    /// One endpoint blob that was too long for the HELLO.
    pub const ENDPOINT: u8 = 16;
    /// A window.
    pub const ADVERT: u8 = 17;
    /// The tag of a put.
    pub const NOTIFY: u8 = 18;
    /// The owner takes a window back.
    pub const REVOKE: u8 = 19;
    /// The user of a window has let go of it.
    pub const REVOKED: u8 = 20;
    /// A note of a message of `send_data`.
    pub const RNDV: u8 = 24;
    /// The offer of a short message of `send_data`, with its bytes.
    pub const EAGER: u8 = 25;
    /// A heartbeat.
    pub const PING: u8 = 32;
    /// The answer to a heartbeat.
    pub const PONG: u8 = 33;
    /// No new operations follow.
    pub const BYE: u8 = 34;
}

/// The first byte of a payload within its frame.
const BODY_AT: u32 = 8;

/// A control message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlMessage<'a> {
    /// The HELLO of the C++ HMC.
    HelloV1 {
        /// The dialer's rank. Any number: the C++ HMC has no limit.
        rank: Rank,
    },
    /// The dialer's first words.
    Hello(Hello<'a>),
    /// The acceptor's answer.
    Welcome(Welcome<'a>),
    /// The acceptor's refusal.
    Reject(RejectReason),
    /// The first frame of a secondary connection.
    Attach {
        /// The rank of the process that dials.
        rank: Rank,
        /// The token of its link.
        token: LinkToken,
        /// What the connection is for: a kind of endpoint ([`crate::wire::advert`]).
        channel: u8,
    },
    /// The secondary connection is bound; what follows on it are no control frames.
    AttachAck,
    /// The acceptor proves itself and asks the dialer to do the same.
    Challenge(Challenge),
    /// The dialer proves itself.
    Proof(Proof),
    /// An endpoint.
    Endpoint(EndpointBlob<'a>),
    /// A window of the sender.
    Advert(RegionAdvert),
    /// A user's 32-bit integer.
    Int32(i32),
    /// A user's tag; every value is legal.
    Tag(u64),
    /// A user's bytes.
    Struct(&'a [u8]),
    /// The tag of a put, after its bytes.
    Notify {
        /// The tag.
        tag: u64,
        /// The window that was written.
        window: WindowId,
    },
    /// A heartbeat.
    Ping(u64),
    /// The answer, with the heartbeat's number.
    Pong(u64),
    /// The owner takes a window back: use it no more, finish what runs, then answer `Revoked`.
    Revoke {
        /// The window.
        window: WindowId,
        /// The epoch that ends.
        epoch: Epoch,
    },
    /// The window is no longer used: a fence.
    Revoked {
        /// The window.
        window: WindowId,
        /// The epoch that ended.
        epoch: Epoch,
    },
    /// A message of a rendezvous (`send_data`): [`crate::rndv`].
    Rndv(RndvMsg),
    /// The offer of a short rendezvous, with its bytes.
    Eager {
        /// The rendezvous.
        id: RndvId,
        /// At most [`MAX_EAGER_BYTES`].
        bytes: &'a [u8],
    },
    /// No new operations follow from the sender.
    Bye,
}

// Each frame's message is moved a few times; what is longer than this, compilers move by a call.
const _: () = assert!(size_of::<ControlMessage<'static>>() <= 128);

/// What kind of message it is: the columns of the table in [`crate::ctrl::state`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, TryFromBytes, Immutable)]
#[expect(missing_docs, reason = "the names are those of ControlMessage's variants")]
#[repr(u8)]
pub enum ControlKind {
    HelloV1,
    Hello,
    Welcome,
    Reject,
    Attach,
    AttachAck,
    Challenge,
    Proof,
    Endpoint,
    Advert,
    Int32,
    Tag,
    Struct,
    Notify,
    Ping,
    Pong,
    Revoke,
    Revoked,
    Rndv,
    Eager,
    Bye,
}

impl ControlKind {
    /// Returns all kinds.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..=u8::MAX).filter_map(|n| Self::try_read_from_bytes(&[n]).ok())
    }
}

/// A payload that is not as long as its header says: a mistake of the caller's.
#[cold]
#[inline(never)]
const fn mismatch(want: u32, got: u32) -> WireError {
    let missing = want.saturating_sub(got);
    if missing != 0 {
        return WireError::new(BODY_AT, WireErrorKind::Truncated { missing });
    }
    WireError::new(BODY_AT, WireErrorKind::Trailing { extra: got.saturating_sub(want) })
}

/// The frame of a tag, for callers that keep no [`Writer`].
#[must_use]
#[inline]
pub const fn tag_frame(tag: u64) -> [u8; 16] {
    let [a, b, c, d, e, f, g, h] = Header::new(FrameKind::Int, 8).to_bytes();
    let [i, j, k, l, m, n, o, p] = tag.to_le_bytes();
    [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p]
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawNotify {
    header: [u8; FRAME_HEADER_BYTES],
    code: u8,
    tag: U64,
    window: U64,
}

/// The frame of a put's tag, for callers that keep no [`Writer`].
#[must_use]
#[inline]
pub fn notify_frame(tag: u64, window: WindowId) -> [u8; 25] {
    zerocopy::transmute!(RawNotify {
        header: Header::new(FrameKind::Native, 17).to_bytes(),
        code: code::NOTIFY,
        tag: U64::new(tag),
        window: U64::new(window.0),
    })
}

impl<'a> ControlMessage<'a> {
    /// What kind it is.
    #[must_use]
    #[inline]
    pub const fn kind(&self) -> ControlKind {
        match self {
            Self::HelloV1 { .. } => ControlKind::HelloV1,
            Self::Hello(_) => ControlKind::Hello,
            Self::Welcome(_) => ControlKind::Welcome,
            Self::Reject(_) => ControlKind::Reject,
            Self::Attach { .. } => ControlKind::Attach,
            Self::AttachAck => ControlKind::AttachAck,
            Self::Challenge(_) => ControlKind::Challenge,
            Self::Proof(_) => ControlKind::Proof,
            Self::Endpoint(_) => ControlKind::Endpoint,
            Self::Advert(_) => ControlKind::Advert,
            Self::Int32(_) => ControlKind::Int32,
            Self::Tag(_) => ControlKind::Tag,
            Self::Struct(_) => ControlKind::Struct,
            Self::Notify { .. } => ControlKind::Notify,
            Self::Ping(_) => ControlKind::Ping,
            Self::Pong(_) => ControlKind::Pong,
            Self::Revoke { .. } => ControlKind::Revoke,
            Self::Revoked { .. } => ControlKind::Revoked,
            Self::Rndv(_) => ControlKind::Rndv,
            Self::Eager { .. } => ControlKind::Eager,
            Self::Bye => ControlKind::Bye,
        }
    }

    /// Reads the message whose header was `header` and whose payload is all of `payload`.
    ///
    /// # Errors
    /// The error and its byte offset in the frame. The connection must be closed after it.
    #[inline]
    pub fn parse(header: Header, payload: &'a [u8]) -> Result<Self, WireError> {
        if to_u32(payload.len()) != header.len() {
            return Err(mismatch(header.len(), to_u32(payload.len())));
        }
        let mut r = Reader::new(payload, BODY_AT);
        let message = match (header.kind(), header.len()) {
            (FrameKind::Int, 8) => Self::Tag(r.u64_le()?),
            (FrameKind::Int, _) => Self::Int32(i32::from_le_bytes(*r.array()?)),
            (FrameKind::Struct, _) => return Ok(Self::Struct(payload)),
            (FrameKind::HelloV1, _) => Self::HelloV1 { rank: Rank(r.u32_le()?) },
            (FrameKind::Native, _) => return Self::parse_native(r),
        };
        r.end()?;
        Ok(message)
    }

    fn parse_native(mut r: Reader<'a>) -> Result<Self, WireError> {
        let message = match r.u8()? {
            code::HELLO => {
                let (fixed, count) = Hello::parse_fixed(&mut r)?;
                let endpoints = Endpoints::parse(r, count)?;
                return Ok(Self::Hello(Hello { endpoints, ..fixed }));
            }
            code::WELCOME => {
                let (fixed, count) = Hello::parse_fixed(&mut r)?;
                let token = LinkToken(*r.array()?);
                let hello = Hello { endpoints: Endpoints::parse(r, count)?, ..fixed };
                return Ok(Self::Welcome(Welcome { hello, token }));
            }
            code::REJECT => {
                let code = r.u16_le()?;
                Self::Reject(RejectReason::from_wire(code, r.u64_le()?))
            }
            code::ATTACH => {
                let at = r.at();
                let rank = r.u32_le()?;
                if rank >= MAX_PEERS {
                    return Err(WireError::value(at, "rank", u64::from(rank)));
                }
                let token = LinkToken(*r.array()?);
                Self::Attach { rank: Rank(rank), token, channel: r.u8()? }
            }
            code::ATTACH_ACK => Self::AttachAck,
            code::CHALLENGE => Self::Challenge(Challenge::parse(&mut r)?),
            code::PROOF => Self::Proof(Proof(*r.array()?)),
            code::ENDPOINT => Self::Endpoint(EndpointBlob::parse(&mut r)?),
            code::ADVERT => {
                let at = r.at();
                Self::Advert(RegionAdvert::parse(r.array()?, at)?)
            }
            code::NOTIFY => {
                let tag = r.u64_le()?;
                Self::Notify { tag, window: WindowId(r.u64_le()?) }
            }
            code::REVOKE => {
                let window = WindowId(r.u64_le()?);
                Self::Revoke { window, epoch: Epoch(r.u32_le()?) }
            }
            code::REVOKED => {
                let window = WindowId(r.u64_le()?);
                Self::Revoked { window, epoch: Epoch(r.u32_le()?) }
            }
            code::RNDV => Self::Rndv(parse_rndv(&mut r)?),
            code::EAGER => return Self::parse_eager(r),
            code::PING => Self::Ping(r.u64_le()?),
            code::PONG => Self::Pong(r.u64_le()?),
            code::BYE => Self::Bye,
            n => return Err(WireError::new(BODY_AT, WireErrorKind::UnknownKind(n))),
        };
        r.end()?;
        Ok(message)
    }

    fn parse_eager(mut r: Reader<'a>) -> Result<Self, WireError> {
        let id = RndvId(r.u32_le()?);
        let at = r.at();
        let bytes = r.rest();
        if bytes.len() > MAX_EAGER_BYTES {
            let (len, limit) = (to_u32(bytes.len()), to_u32(MAX_EAGER_BYTES));
            let kind = WireErrorKind::TooLong { len, limit };
            return Err(WireError::new(at, kind));
        }
        Ok(Self::Eager { id, bytes })
    }

    /// Bytes of the payload.
    #[must_use]
    #[inline]
    pub fn payload_len(&self) -> usize {
        let list = |e: &Endpoints<'_>| e.as_bytes().len();
        match self {
            Self::HelloV1 { .. } | Self::Int32(_) => 4,
            Self::Tag(_) => 8,
            Self::Struct(bytes) => bytes.len(),
            Self::Hello(h) => 1usize.saturating_add(HELLO_BYTES).saturating_add(list(&h.endpoints)),
            Self::Welcome(w) => 1usize
                .saturating_add(HELLO_BYTES)
                .saturating_add(TOKEN_BYTES)
                .saturating_add(list(&w.hello.endpoints)),
            Self::Reject(_) => 1usize.saturating_add(REJECT_BYTES),
            Self::Attach { .. } => TOKEN_BYTES.saturating_add(6),
            Self::Challenge(_) => CHALLENGE_BYTES.saturating_add(1),
            Self::Proof(_) => PROOF_BYTES.saturating_add(1),
            Self::Endpoint(blob) => blob.emitted_len().saturating_add(1),
            Self::Advert(_) => ADVERT_BYTES.saturating_add(1),
            Self::Notify { .. } => 17,
            Self::Revoke { .. } | Self::Revoked { .. } => 13,
            Self::Rndv(note) => rndv_len(note).saturating_add(1),
            Self::Eager { bytes, .. } => bytes.len().saturating_add(5),
            Self::Ping(_) | Self::Pong(_) => 9,
            Self::AttachAck | Self::Bye => 1,
        }
    }

    /// Bytes of the whole frame, header included.
    #[must_use]
    #[inline]
    pub fn emitted_len(&self) -> usize {
        self.payload_len().saturating_add(FRAME_HEADER_BYTES)
    }

    /// Writes the frame: header and payload.
    ///
    /// # Errors
    /// `NoSpace` when it does not fit, `TooLong` when the payload exceeds [`MAX_FRAME_BYTES`];
    /// nothing is written then.
    #[inline]
    pub fn emit(&self, out: &mut Writer<'_>) -> Result<(), WireError> {
        match *self {
            // The short ways for what is sent most.
            Self::Tag(tag) => out.array(&tag_frame(tag)),
            Self::Notify { tag, window } => out.array(&notify_frame(tag, window)),
            _ => self.emit_any(out),
        }
    }

    fn emit_any(&self, out: &mut Writer<'_>) -> Result<(), WireError> {
        let len = to_u32(self.payload_len());
        if len > MAX_FRAME_BYTES {
            let kind = WireErrorKind::TooLong { len, limit: MAX_FRAME_BYTES };
            return Err(WireError::new(out.written(), kind));
        }
        let missing = self.emitted_len().saturating_sub(out.space());
        if missing != 0 {
            let kind = WireErrorKind::NoSpace { missing: to_u32(missing) };
            return Err(WireError::new(out.written(), kind));
        }
        let start = |out: &mut Writer<'_>, code: u8| {
            Header::new(FrameKind::Native, len).emit(out)?;
            out.u8(code)
        };
        match *self {
            Self::HelloV1 { rank } => {
                Header::new(FrameKind::HelloV1, len).emit(out)?;
                out.u32_le(rank.0)
            }
            Self::Int32(n) => {
                Header::new(FrameKind::Int, len).emit(out)?;
                out.array(&n.to_le_bytes())
            }
            Self::Tag(tag) => out.array(&tag_frame(tag)),
            Self::Struct(bytes) => {
                Header::new(FrameKind::Struct, len).emit(out)?;
                out.bytes(bytes)
            }
            Self::Hello(ref hello) => {
                start(out, code::HELLO)?;
                out.array(&hello.fixed_bytes())?;
                out.bytes(hello.endpoints.as_bytes())
            }
            Self::Welcome(ref w) => {
                start(out, code::WELCOME)?;
                out.array(&w.hello.fixed_bytes())?;
                out.array(&w.token.0)?;
                out.bytes(w.hello.endpoints.as_bytes())
            }
            Self::Reject(reason) => {
                start(out, code::REJECT)?;
                let (code, detail) = reason.to_wire();
                out.u16_le(code)?;
                out.u64_le(detail)
            }
            Self::Attach { rank, token, channel } => {
                start(out, code::ATTACH)?;
                out.u32_le(rank.0)?;
                out.array(&token.0)?;
                out.u8(channel)
            }
            Self::AttachAck => start(out, code::ATTACH_ACK),
            Self::Challenge(ref challenge) => {
                start(out, code::CHALLENGE)?;
                challenge.emit(out)
            }
            Self::Proof(ref proof) => {
                start(out, code::PROOF)?;
                out.array(&proof.0)
            }
            Self::Endpoint(blob) => {
                start(out, code::ENDPOINT)?;
                blob.emit(out)
            }
            Self::Advert(ref advert) => {
                start(out, code::ADVERT)?;
                out.array(&advert.to_bytes())
            }
            Self::Notify { tag, window } => out.array(&notify_frame(tag, window)),
            Self::Revoke { window, epoch } => {
                start(out, code::REVOKE)?;
                out.u64_le(window.0)?;
                out.u32_le(epoch.0)
            }
            Self::Revoked { window, epoch } => {
                start(out, code::REVOKED)?;
                out.u64_le(window.0)?;
                out.u32_le(epoch.0)
            }
            Self::Rndv(ref note) => {
                start(out, code::RNDV)?;
                emit_rndv(note, out)
            }
            Self::Eager { id, bytes } => {
                start(out, code::EAGER)?;
                out.u32_le(id.0)?;
                out.bytes(bytes)
            }
            Self::Ping(n) => {
                start(out, code::PING)?;
                out.u64_le(n)
            }
            Self::Pong(n) => {
                start(out, code::PONG)?;
                out.u64_le(n)
            }
            Self::Bye => start(out, code::BYE),
        }
    }
}
