//! Connection info: what a peer needs to connect to a worker.

use super::process::Process;

/// Bytes before the address and the key.
const HEAD_BYTES: usize = 32;

/// Two lengths (u16, little-endian), the number of the AM target for the other end (u64), the address of the
/// wireup page (u64), the process (namespace u64, number u32), the worker's address, the key to the wireup page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ConnInfo<'a> {
    pub(super) target: u64,
    pub(super) wireup_page: u64,
    pub(super) owner: Process,
    pub(super) address: &'a [u8],
    pub(super) key: &'a [u8],
}

impl<'a> ConnInfo<'a> {
    pub(super) fn to_bytes(self) -> Vec<u8> {
        let len = |bytes: &[u8]| u16::try_from(bytes.len()).unwrap_or(u16::MAX).to_le_bytes();
        let mut bytes = Vec::with_capacity(HEAD_BYTES);
        for part in [
            &len(self.address)[..],
            &len(self.key),
            &self.target.to_le_bytes(),
            &self.wireup_page.to_le_bytes(),
            &self.owner.namespace.to_le_bytes(),
            &self.owner.pid.to_le_bytes(),
            self.address,
            self.key,
        ] {
            bytes.extend_from_slice(part);
        }
        bytes
    }

    /// Parses connection info. Returns `None` if its lengths do not fit.
    pub(super) fn read(bytes: &'a [u8]) -> Option<Self> {
        let (address_len, rest) = bytes.split_first_chunk::<2>()?;
        let (key_len, rest) = rest.split_first_chunk::<2>()?;
        let (target, rest) = rest.split_first_chunk::<8>()?;
        let (wireup_page, rest) = rest.split_first_chunk::<8>()?;
        let (namespace, rest) = rest.split_first_chunk::<8>()?;
        let (pid, rest) = rest.split_first_chunk::<4>()?;
        let (address, key) =
            rest.split_at_checked(usize::from(u16::from_le_bytes(*address_len)))?;
        let fits = key.len() == usize::from(u16::from_le_bytes(*key_len));
        let filled = !address.is_empty() && !key.is_empty();
        let owner =
            Process { namespace: u64::from_le_bytes(*namespace), pid: u32::from_le_bytes(*pid) };
        let (target, wireup_page) = (u64::from_le_bytes(*target), u64::from_le_bytes(*wireup_page));
        (fits && filled).then_some(Self { target, wireup_page, owner, address, key })
    }
}

#[cfg(test)]
mod tests {
    use super::{ConnInfo, Process};

    #[test]
    fn conn_info_is_read_whole_or_not_at_all() {
        let owner = Process { namespace: 0x66, pid: 0x77 };
        let info = ConnInfo {
            target: 0x55,
            wireup_page: 0x1122_3344,
            owner,
            address: b"worker",
            key: b"key",
        };
        let bytes = info.to_bytes();
        assert_eq!(bytes[..4], [6, 0, 3, 0]);
        assert_eq!(ConnInfo::read(&bytes), Some(info));
        for len in 0..bytes.len() {
            assert_eq!(ConnInfo::read(&bytes[..len]), None, "{len} bytes");
        }
        let longer = [&bytes[..], b"x"].concat();
        assert_eq!(ConnInfo::read(&longer), None);
        assert_eq!(ConnInfo::read(&ConnInfo { key: b"", ..info }.to_bytes()), None);
    }
}
