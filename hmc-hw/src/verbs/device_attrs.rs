//! Capabilities of a device.

use std::ffi::c_int;

use super::device_info::text;
use super::sys::{self, ibv_device_attr};

/// Limits and capabilities of a device (`ibv_device_attr`, infiniband/verbs.h). A limit counts all users of the device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceAttrs {
    /// The version of its firmware.
    pub firmware: String,
    /// The number of its ports, which are numbered from 1.
    pub ports: u8,
    /// Queue pairs that it can have.
    pub max_qp: u32,
    /// Work requests that a queue of a queue pair can have.
    pub max_qp_wr: u32,
    /// Ranges of memory that a work request can have.
    pub max_sge: u32,
    /// Completion queues that it can have.
    pub max_cq: u32,
    /// Entries that a completion queue can have.
    pub max_cqe: u32,
    /// Registrations that it can have.
    pub max_mr: u32,
    /// Bytes that a registration can have.
    pub max_mr_size: u64,
    /// Protection domains that it can have.
    pub max_pd: u32,
    /// Gets that a queue pair can have in flight as their target (`max_qp_rd_atom`).
    pub max_target_gets: u32,
    /// Gets that a queue pair can have in flight as their initiator (`max_qp_init_rd_atom`).
    pub max_initiator_gets: u32,
    /// Shared receive queues that it can have.
    pub max_srq: u32,
    /// Receives that a shared receive queue can have.
    pub max_srq_wr: u32,
    /// Memory windows that it can have.
    pub max_mw: u32,
    /// Its capabilities (`IBV_DEVICE_*`).
    pub flags: u32,
}

impl DeviceAttrs {
    pub(super) fn of(attr: &ibv_device_attr) -> Self {
        // The header has them signed. None is negative.
        let number = |n: c_int| u32::try_from(n).unwrap_or(0);
        Self {
            firmware: text(&attr.fw_ver),
            ports: attr.phys_port_cnt,
            max_qp: number(attr.max_qp),
            max_qp_wr: number(attr.max_qp_wr),
            max_sge: number(attr.max_sge),
            max_cq: number(attr.max_cq),
            max_cqe: number(attr.max_cqe),
            max_mr: number(attr.max_mr),
            max_mr_size: attr.max_mr_size,
            max_pd: number(attr.max_pd),
            max_target_gets: number(attr.max_qp_rd_atom),
            max_initiator_gets: number(attr.max_qp_init_rd_atom),
            max_srq: number(attr.max_srq),
            max_srq_wr: number(attr.max_srq_wr),
            max_mw: number(attr.max_mw),
            flags: attr.device_cap_flags,
        }
    }

    /// Returns `true` if it advertises memory windows of type 2B (`IBV_DEVICE_MEM_WINDOW_TYPE_2B`), which are bound to one queue pair and
    /// its protection domain. Some providers advertise them and lack the calls: [`super::window_probe::try_windows`] tries them.
    #[must_use]
    pub const fn has_type_2b_windows(&self) -> bool {
        self.flags & sys::IBV_DEVICE_MEM_WINDOW_TYPE_2B != 0 && self.max_mw != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::c_char;
    use std::mem::MaybeUninit;

    #[test]
    fn attributes_are_those_of_the_header() {
        let mut attr = MaybeUninit::<ibv_device_attr>::zeroed();
        // SAFETY: numbers, all of them zero.
        let attr = unsafe { attr.assume_init_mut() };
        for (to, c) in attr.fw_ver.iter_mut().zip(c"20.31".to_bytes()) {
            *to = c_char::from_ne_bytes([*c]);
        }
        (attr.phys_port_cnt, attr.max_qp, attr.max_mw, attr.max_srq) = (2, 100, 7, -1);
        let attrs = DeviceAttrs::of(attr);
        assert_eq!((attrs.firmware.as_str(), attrs.ports, attrs.max_qp), ("20.31", 2, 100));
        assert_eq!((attrs.max_mw, attrs.max_srq), (7, 0));
        assert!(!attrs.has_type_2b_windows());
        for (flags, has) in [(1 << 17 | 1 << 21, false), (1 << 23, false), (1 << 24, true)] {
            let attrs = DeviceAttrs { flags, ..attrs.clone() };
            assert_eq!(attrs.has_type_2b_windows(), has, "{flags:#x}");
        }
        assert!(!DeviceAttrs { flags: u32::MAX, max_mw: 0, ..attrs }.has_type_2b_windows());
    }
}
