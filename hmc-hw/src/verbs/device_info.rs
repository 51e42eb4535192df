//! Properties of a device that is not open, as the system reports them, and whether HMC can use it.

use std::ffi::{CStr, c_char};
use std::fmt;
use std::ptr::NonNull;

use super::functions::Verbs;
use super::sys::{self, ibv_device};

/// Reason why HMC does not use a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unusable {
    /// It speaks iWARP.
    Iwarp,
    /// It speaks another protocol that has no reliable connections of InfiniBand's kind.
    Protocol {
        /// Its `ibv_node_type`.
        node: i32,
        /// Its `ibv_transport_type`.
        transport: i32,
    },
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Iwarp => f.write_str(
                "it speaks iWARP, where HMC needs InfiniBand or RoCE: choose another device, or use TCP",
            ),
            Self::Protocol { node, transport } => write!(
                f,
                "its protocol (node type {node}, transport type {transport}) has no reliable connections of InfiniBand or \
                 RoCE: choose another device, or use TCP"
            ),
        }
    }
}

/// What the system says of a device that is not open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// The kernel's name of it: `mlx5_0`.
    pub name: String,
    /// Its file, by which it is opened: `/dev/infiniband/uverbs0`.
    pub file: String,
    /// Its GUID.
    pub guid: u64,
    /// Its `ibv_node_type`.
    pub node: i32,
    /// Its `ibv_transport_type`.
    pub transport: i32,
}

impl DeviceInfo {
    /// Returns whether HMC can use it: InfiniBand and RoCE.
    ///
    /// # Errors
    /// [`Unusable`].
    pub const fn usable(&self) -> Result<(), Unusable> {
        match (self.node, self.transport) {
            (sys::IBV_NODE_RNIC, _) | (_, sys::IBV_TRANSPORT_IWARP) => Err(Unusable::Iwarp),
            (sys::IBV_NODE_CA, sys::IBV_TRANSPORT_IB) => Ok(()),
            (node, transport) => Err(Unusable::Protocol { node, transport }),
        }
    }
}

/// Returns what the system says of a device.
///
/// # Safety
/// The device is one of a list that lives.
pub(super) unsafe fn info(api: &Verbs, device: NonNull<ibv_device>) -> DeviceInfo {
    // SAFETY: the device lives, as the caller promises.
    let name = unsafe { (api.ibv_get_device_name)(device.as_ptr()) };
    // SAFETY: as above.
    let guid = unsafe { (api.ibv_get_device_guid)(device.as_ptr()) };
    let name = if name.is_null() {
        String::new()
    } else {
        // SAFETY: the device's own text, which ends with a zero.
        unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
    };
    // SAFETY: as above; nobody writes to it.
    let device = unsafe { device.as_ref() };
    DeviceInfo {
        name,
        file: format!("/dev/infiniband/{}", text(&device.dev_name)),
        guid: u64::from_be(guid),
        node: device.node_type,
        transport: device.transport_type,
    }
}

/// Returns the text of a field, up to its zero.
pub(super) fn text(field: &[c_char]) -> String {
    let bytes: Vec<u8> =
        field.iter().take_while(|c| **c != 0).map(|c| u8::from_ne_bytes(c.to_ne_bytes())).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(node: i32, transport: i32) -> DeviceInfo {
        let (name, file) = ("mlx5_0".to_owned(), "/dev/infiniband/uverbs0".to_owned());
        DeviceInfo { name, file, guid: 1, node, transport }
    }

    #[test]
    fn infiniband_and_roce_are_used_and_nothing_else() {
        for node in -2..9 {
            for transport in -2..6 {
                let usable = device(node, transport).usable();
                assert_eq!(usable.is_ok(), (node, transport) == (1, 0), "{node} {transport}");
                let is_iwarp = node == 4 || transport == 1;
                assert_eq!(usable == Err(Unusable::Iwarp), is_iwarp, "{node} {transport}");
            }
        }
    }

    #[test]
    fn a_text_ends_at_its_zero_or_with_its_field() {
        let field = |bytes: &[u8]| -> Vec<c_char> {
            bytes.iter().map(|b| c_char::from_ne_bytes([*b])).collect()
        };
        assert_eq!(text(&field(b"uverbs0\0\0x")), "uverbs0");
        assert_eq!(text(&field(b"full")), "full");
        assert_eq!(text(&[]), "");
    }
}
