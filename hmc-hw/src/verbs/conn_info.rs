//! Messages that the two ends of a link exchange on the control connection: connection info, and the keys to
//! windows.
//!
//! All numbers are little-endian; `docs/WIRE.md` has the bytes. Every value of a peer is checked here before use.

use hmc_core::range::{Extent, Side};
use hmc_core::region::{Epoch, WindowDesc, WindowId};
use hmc_core::types::{Access, MemoryKind};
use hmc_core::wire::cursor::{Reader, WireError, WireErrorKind, Writer};

use super::gid::{Gid, GidType};
use super::port::{LinkLayer, Mtu};
use super::reach::End;
use super::tags::MIN_RECEIVED;

/// Kind of a note with conn info: how to connect to the sender.
pub const ENDPOINT_VERBS: u8 = 5;
/// Kind of a note with the key to a window.
pub const ENDPOINT_VERBS_KEY: u8 = 6;

/// Kind of a note without bytes: the sender has connected its queue pairs, and serves requests.
pub const ENDPOINT_VERBS_CONNECTED: u8 = 7;

/// The version of the conn info.
const VERSION: u8 = 4;
/// Queue pairs that a link can have.
pub(super) const MAX_LANES: usize = 16;
/// NICs that a session can use.
pub(super) const MAX_NICS: usize = 8;
/// A queue pair's number, and a packet's, have 24 bits.
const MAX_U24: u32 = 0x00ff_ffff;

/// One queue pair of the sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LaneInfo {
    pub(super) qp_num: u32,
    /// The number of the first packet that it sends.
    pub(super) psn: u32,
}

/// One NIC of the sender, by the port that it uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NicInfo {
    /// The sender's port.
    pub(super) end: End,
    /// The largest payload of a packet.
    pub(super) mtu: Mtu,
    /// Gets of the peer that one of its queue pairs serves at a time.
    pub(super) max_gets: u8,
    pub(super) lid: u16,
    /// By which its queue pairs read the word that flushes read.
    pub(super) flush_key: u32,
}

/// What a peer needs to connect to this end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ConnInfo {
    /// Where the peer may read at any time: the word that flushes read.
    pub(super) flush_address: u64,
    /// 1 to [`MAX_NICS`].
    pub(super) nics: Vec<NicInfo>,
    /// 1 to [`MAX_LANES`], and no fewer than NICs. They are on the NICs in turn: the one of index i on that of index i mod n.
    pub(super) lanes: Vec<LaneInfo>,
    /// Receives that the first queue pair has for tags, [`MIN_RECEIVED`] at least.
    pub(super) tags: u8,
}

/// As `ibv_port_attr.link_layer` numbers them.
fn number_of(link: LinkLayer) -> u32 {
    match link {
        LinkLayer::InfiniBand => 1,
        LinkLayer::Ethernet => 2,
        LinkLayer::Other(number) => u32::from(number),
    }
}

/// The peer's conn info cannot be used.
fn bad(field: &'static str, value: impl Into<u64>, r: &Reader<'_>) -> WireError {
    WireError { at: r.at(), kind: WireErrorKind::Value { field, value: value.into() } }
}

/// As the last of the limits where there are more.
fn count_of<T>(items: &[T]) -> u8 {
    u8::try_from(items.len()).unwrap_or(u8::MAX)
}

impl LaneInfo {
    fn parse(r: &mut Reader<'_>) -> Result<Self, WireError> {
        let lane = Self { qp_num: r.u32_le()?, psn: r.u32_le()? };
        if lane.qp_num > MAX_U24 {
            return Err(bad("number of a queue pair", lane.qp_num, r));
        }
        if lane.psn > MAX_U24 {
            return Err(bad("packet number", lane.psn, r));
        }
        Ok(lane)
    }
}

impl NicInfo {
    fn emit(&self, out: &mut Writer<'_>) -> Result<(), WireError> {
        for number in [number_of(self.end.link), self.end.kind.number(), self.mtu.0] {
            // Each is one of a few.
            out.u8(u8::try_from(number).unwrap_or(u8::MAX))?;
        }
        out.u8(self.max_gets)?;
        out.u16_le(self.lid)?;
        out.array(&self.end.gid.0)?;
        out.u32_le(self.flush_key)
    }

    fn parse(r: &mut Reader<'_>) -> Result<Self, WireError> {
        let (link_layer, gid_type, mtu) = (r.u8()?, r.u8()?, r.u8()?);
        let link = LinkLayer::of(link_layer);
        if link_layer == 0 || matches!(link, LinkLayer::Other(_)) {
            return Err(bad("link layer", link_layer, r));
        }
        if gid_type > 2 {
            return Err(bad("GID type", gid_type, r));
        }
        let kind = GidType::of(u32::from(gid_type));
        let mtu = Mtu(u32::from(mtu));
        if mtu.bytes().is_none() {
            return Err(bad("MTU", mtu.0, r));
        }
        let max_gets = r.u8()?;
        if max_gets == 0 {
            // No put would ever be visible: a flush is a read.
            return Err(bad("reads at a time", max_gets, r));
        }
        let lid = r.u16_le()?;
        let end = End { link, kind, gid: Gid(*r.array()?) };
        Ok(Self { end, mtu, max_gets, lid, flush_key: r.u32_le()? })
    }
}

impl ConnInfo {
    /// Writes it.
    ///
    /// # Errors
    /// `NoSpace`.
    pub(super) fn emit(&self, out: &mut Writer<'_>) -> Result<(), WireError> {
        for number in [VERSION, count_of(&self.nics), count_of(&self.lanes), self.tags] {
            out.u8(number)?;
        }
        out.u64_le(self.flush_address)?;
        self.nics.iter().try_for_each(|nic| nic.emit(out))?;
        for lane in &self.lanes {
            out.u32_le(lane.qp_num)?;
            out.u32_le(lane.psn)?;
        }
        Ok(())
    }

    /// Reads one.
    ///
    /// # Errors
    /// `Truncated`, `Trailing`; `Value` for what no sender writes.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        let mut r = Reader::new(bytes, 0);
        let version = r.u8()?;
        if version != VERSION {
            return Err(bad("version of the conn info", version, &r));
        }
        let (nics, lanes) = (r.u8()?, r.u8()?);
        if nics == 0 || usize::from(nics) > MAX_NICS {
            return Err(bad("number of NICs", nics, &r));
        }
        if lanes < nics || usize::from(lanes) > MAX_LANES {
            return Err(bad("number of queue pairs", lanes, &r));
        }
        let tags = r.u8()?;
        if tags < MIN_RECEIVED {
            // Some tag would never be sent.
            return Err(bad("receives for tags", tags, &r));
        }
        let flush_address = r.u64_le()?;
        let nics = (0..nics).map(|_| NicInfo::parse(&mut r)).collect::<Result<_, _>>()?;
        let lanes = (0..lanes).map(|_| LaneInfo::parse(&mut r)).collect::<Result<_, _>>()?;
        r.end()?;
        Ok(Self { flush_address, nics, lanes, tags })
    }
}

/// Bytes of a window's key without the keys themselves.
pub(super) const WINDOW_KEY_BYTES: usize = 31;

/// How a peer reaches a window: told before the window is, and once more if the keys are valid later only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WindowKey {
    /// The window, as its advert describes it; of host memory.
    pub(super) window: WindowDesc,
    /// Where it begins in its owner's address space: a number for the NIC, never followed here.
    pub(super) base: u64,
    /// None if they follow. One is for all of the window and all queue pairs of the link. More are one for each queue pair, of each of
    /// its parts ([`super::window_parts`]).
    pub(super) keys: Vec<u32>,
}

impl WindowKey {
    /// Writes it.
    ///
    /// # Errors
    /// `NoSpace`.
    pub(super) fn emit(&self, out: &mut Writer<'_>) -> Result<(), WireError> {
        out.u64_le(self.window.window.0)?;
        out.u32_le(self.window.epoch.0)?;
        out.u8(self.window.access.bits())?;
        out.u64_le(self.window.extent.len())?;
        out.u64_le(self.base)?;
        out.u16_le(u16::try_from(self.keys.len()).unwrap_or(u16::MAX))?;
        self.keys.iter().try_for_each(|key| out.u32_le(*key))
    }

    /// Reads one.
    ///
    /// # Errors
    /// `Truncated`, `Trailing`; `Value` for unknown rights, and for a window that leaves the address space.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        let mut r = Reader::new(bytes, 0);
        let (window, epoch) = (WindowId(r.u64_le()?), Epoch(r.u32_le()?));
        let access = r.u8()?;
        let access = Access::from_bits(access).ok_or_else(|| bad("access", access, &r))?;
        let (len, base, count) = (r.u64_le()?, r.u64_le()?, r.u16_le()?);
        // It is not believed: the bytes end before.
        let keys = (0..count).map(|_| r.u32_le()).collect::<Result<Vec<_>, _>>()?;
        r.end()?;
        if Extent::new(u64::MAX).span(Side::Remote, base, len).is_err() {
            return Err(bad("length of a window", len, &r));
        }
        let extent = Extent::new(len);
        let window = WindowDesc { window, epoch, extent, access, kind: MemoryKind::Cpu };
        Ok(Self { window, base, keys })
    }
}

/// Reads a note of that kind as a data plane does, and writes what was read to `out`. Returns its length; `None` for a note of RDMA
/// verbs without bytes, and of another transport.
#[doc(hidden)]
pub fn reread(kind: u8, bytes: &[u8], out: &mut [u8]) -> Option<Result<usize, WireError>> {
    let mut out = Writer::new(out);
    let emitted = match kind {
        ENDPOINT_VERBS => ConnInfo::parse(bytes).and_then(|info| info.emit(&mut out)),
        ENDPOINT_VERBS_KEY => WindowKey::parse(bytes).and_then(|key| key.emit(&mut out)),
        _ => return None,
    };
    Some(emitted.map(|()| usize::try_from(out.written()).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use hmc_core::range::Extent;
    use hmc_core::region::{Epoch, WindowDesc, WindowId};
    use hmc_core::types::{Access, MemoryKind};
    use hmc_core::wire::cursor::{WireErrorKind, Writer};

    use super::{
        ConnInfo, End, Gid, GidType, LaneInfo, LinkLayer, Mtu, NicInfo, WINDOW_KEY_BYTES, WindowKey,
    };

    /// Of three queue pairs on two NICs.
    fn info() -> ConnInfo {
        let lanes = vec![
            LaneInfo { qp_num: 0x0012_3456, psn: 0x00ab_cdef },
            LaneInfo { qp_num: 1, psn: 0x00ff_ffff },
            LaneInfo { qp_num: 2, psn: 3 },
        ];
        let end = End { link: LinkLayer::Ethernet, kind: GidType::RoceV2, gid: Gid([9; 16]) };
        let first = NicInfo { end, mtu: Mtu(3), max_gets: 16, lid: 0x0708, flush_key: 0x2122_2324 };
        let end = End { link: LinkLayer::InfiniBand, kind: GidType::InfiniBand, gid: Gid([8; 16]) };
        let second = NicInfo { end, mtu: Mtu(5), max_gets: 4, lid: 0x0506, flush_key: 7 };
        ConnInfo {
            flush_address: 0x1112_1314_1516_1718,
            nics: vec![first, second],
            lanes,
            tags: 32,
        }
    }

    fn bytes_of(emit: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
        let mut storage = [0; 512];
        let mut out = Writer::new(&mut storage);
        emit(&mut out);
        let len = usize::try_from(out.written()).unwrap();
        storage[..len].to_vec()
    }

    #[test]
    fn conn_info_has_these_bytes() {
        let bytes = bytes_of(|out| info().emit(out).unwrap());
        let mut wanted = vec![4, 2, 3, 32, 0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11];
        wanted.extend([2, 2, 3, 16, 8, 7]);
        wanted.extend([9; 16]);
        wanted.extend([0x24, 0x23, 0x22, 0x21, 1, 0, 5, 4, 6, 5]);
        wanted.extend([8; 16]);
        wanted.extend([7, 0, 0, 0]);
        wanted.extend([0x56, 0x34, 0x12, 0, 0xef, 0xcd, 0xab, 0, 1, 0, 0, 0, 0xff, 0xff, 0xff, 0]);
        wanted.extend([2, 0, 0, 0, 3, 0, 0, 0]);
        assert_eq!(bytes, wanted);
        assert_eq!(ConnInfo::parse(&bytes), Ok(info()));
    }

    #[test]
    fn conn_info_is_read_whole_or_not_at_all() {
        let bytes = bytes_of(|out| info().emit(out).unwrap());
        for len in 0..bytes.len() {
            assert!(ConnInfo::parse(&bytes[..len]).is_err(), "{len} bytes");
        }
        assert!(ConnInfo::parse(&[&bytes[..], &[0]].concat()).is_err());
        // Of the second NIC, too.
        let of_nics = [12, 38].into_iter().flat_map(|at| {
            [
                (at, 0, "link layer"),
                (at, 3, "link layer"),
                (at + 1, 3, "GID type"),
                (at + 2, 0, "MTU"),
                (at + 2, 6, "MTU"),
                (at + 3, 0, "reads at a time"),
            ]
        });
        let others = [
            (0, 3, "version of the conn info"),
            (0, 5, "version of the conn info"),
            (1, 0, "number of NICs"),
            (1, 9, "number of NICs"),
            (1, 4, "number of queue pairs"),
            (2, 0, "number of queue pairs"),
            (2, 1, "number of queue pairs"),
            (2, 17, "number of queue pairs"),
            (3, 0, "receives for tags"),
            (3, 3, "receives for tags"),
            (67, 1, "number of a queue pair"),
            (71, 1, "packet number"),
            (87, 1, "packet number"),
        ];
        for (at, value, field) in of_nics.chain(others) {
            let mut bad = bytes.clone();
            bad[at] = value;
            let e = ConnInfo::parse(&bad).unwrap_err();
            assert!(
                matches!(e.kind, WireErrorKind::Value { field: named, .. } if named == field),
                "byte {at} = {value}: {e:?}"
            );
        }
    }

    #[test]
    fn the_longest_conn_info_fits_a_note() {
        let (nic, lane) = (info().nics[0], info().lanes[0]);
        let nics = vec![nic; super::MAX_NICS];
        let longest = ConnInfo { nics, lanes: vec![lane; super::MAX_LANES], ..info() };
        let bytes = bytes_of(|out| longest.emit(out).unwrap());
        assert_eq!((bytes.len(), ConnInfo::parse(&bytes)), (12 + 8 * 26 + 16 * 8, Ok(longest)));
    }

    #[test]
    fn a_window_key_has_these_bytes() {
        let window = WindowDesc {
            window: WindowId(0x0807_0605_0403_0201),
            epoch: Epoch(0x0c0b_0a09),
            extent: Extent::new(0x1000),
            access: Access::WRITE,
            kind: MemoryKind::Cpu,
        };
        let mut head = (1..=12).collect::<Vec<u8>>();
        head.extend([2, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0x20, 0, 0, 0, 0, 0, 0]);
        assert_eq!(head.len() + 2, WINDOW_KEY_BYTES);
        let keys = |count: usize| [0x3132_3334, 0x4142_4344, 5][..count].to_vec();
        for count in 0_u8..=3 {
            let key = WindowKey { window, base: 0x2000, keys: keys(count.into()) };
            let bytes = bytes_of(|out| key.emit(out).unwrap());
            let all = [0x34, 0x33, 0x32, 0x31, 0x44, 0x43, 0x42, 0x41, 5, 0, 0, 0];
            let tail = &all[..usize::from(count) * 4];
            assert_eq!(bytes, [&head[..], &[count, 0], tail].concat());
            assert_eq!(WindowKey::parse(&bytes), Ok(key));
            for len in 0..bytes.len() {
                assert!(WindowKey::parse(&bytes[..len]).is_err(), "{len} bytes");
            }
            assert!(WindowKey::parse(&[&bytes[..], &[0]].concat()).is_err());
        }
        let bytes = [&head[..], &[1, 0, 1, 1, 1, 1]].concat();
        let mut bad = bytes.clone();
        bad[12] = 4;
        assert!(WindowKey::parse(&bad).is_err(), "rights that do not exist");
        let mut bad = bytes;
        bad[21..29].fill(0xff);
        assert!(WindowKey::parse(&bad).is_err(), "it leaves the address space");
    }
}
