//! A device: its limits, abilities and ports.

use crate::abi::{
    _ibv_device_ops, IBV_GID_TYPE_IB, IBV_GID_TYPE_ROCE_V1, IBV_GID_TYPE_ROCE_V2,
    IBV_LINK_LAYER_ETHERNET, IBV_LINK_LAYER_INFINIBAND, IBV_MTU_4096, IBV_NODE_CA, IBV_PORT_ACTIVE,
    IBV_TRANSPORT_IB, ibv_device, ibv_mtu, ibv_port_state,
};

/// Maximum number of devices.
pub(crate) const DEVICES: usize = 4;
/// The number of the first queue pair of each device: devices have the same numbers.
const FIRST_QP: u32 = 0x11;
/// The largest message.
pub(crate) const MAX_MESSAGE: u64 = 1 << 31;

/// An entry of a GID table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gid {
    pub(crate) raw: [u8; 16],
    pub(crate) kind: u32,
}

/// A port.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) state: ibv_port_state,
    pub(crate) link_layer: u8,
    pub(crate) lid: u16,
    pub(crate) active_mtu: ibv_mtu,
    pub(crate) gids: Vec<Option<Gid>>,
}

impl Port {
    /// A port with the GIDs that such a port has when its link is up.
    fn new(device: usize, port: usize, link_layer: u8) -> Self {
        let (d, p) = (low_byte(device), low_byte(port));
        let local = [0xFE, 0x80, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0xFF, 0xFE, 0, d, p];
        // ::ffff:10.9.device.port
        let ipv4 = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 10, 9, d, p];
        let entry = |raw, kind| Some(Gid { raw, kind });
        let is_ethernet = link_layer == IBV_LINK_LAYER_ETHERNET;
        let mut gids = if is_ethernet {
            vec![
                entry(local, IBV_GID_TYPE_ROCE_V1),
                entry(local, IBV_GID_TYPE_ROCE_V2),
                entry(ipv4, IBV_GID_TYPE_ROCE_V1),
                entry(ipv4, IBV_GID_TYPE_ROCE_V2),
            ]
        } else {
            vec![entry(local, IBV_GID_TYPE_IB)]
        };
        gids.resize(8, None);
        let lid = if is_ethernet { 0 } else { 0x10 * u16::from(d + 1) + u16::from(p) };
        Self { state: IBV_PORT_ACTIVE, link_layer, lid, active_mtu: IBV_MTU_4096, gids }
    }

    /// Sets a number. `None`: there is none of that name.
    fn set(&mut self, name: &str, value: u64) -> Option<()> {
        match name {
            "state" => self.state = u32::try_from(value).ok()?,
            "lid" => self.lid = u16::try_from(value).ok()?,
            "active_mtu" => self.active_mtu = u32::try_from(value).ok()?,
            "gids" => self.gids.resize(usize::try_from(value).ok()?, None),
            _ => return None,
        }
        Some(())
    }

    pub(crate) fn gid(&self, index: u8) -> Option<Gid> {
        self.gids.get(usize::from(index)).copied().flatten()
    }
}

fn low_byte(number: usize) -> u8 {
    u8::try_from(number & 0xFF).unwrap_or(0)
}

/// What a device can do with memory windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Windows {
    /// None.
    None,
    /// Type 2B.
    Full,
    /// It advertises type 2B, but its table of operations has no call for them.
    NoCall,
    /// It advertises type 2B, but `ibv_alloc_mw` fails.
    NoAlloc,
    /// It advertises type 2B, but each bind fails.
    NoBind,
}

/// Numbers of a device that a test can set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) max_qp: u64,
    pub(crate) max_qp_wr: u64,
    pub(crate) max_sge: u64,
    pub(crate) max_cq: u64,
    pub(crate) max_cqe: u64,
    pub(crate) max_mr: u64,
    pub(crate) max_mr_size: u64,
    pub(crate) max_pd: u64,
    pub(crate) max_qp_rd_atom: u64,
    pub(crate) max_qp_init_rd_atom: u64,
    pub(crate) max_mw: u64,
    pub(crate) max_srq: u64,
    pub(crate) max_srq_wr: u64,
    pub(crate) max_srq_sge: u64,
    pub(crate) max_inline_data: u64,
}

const LIMITS: Limits = Limits {
    max_qp: 1024,
    max_qp_wr: 16384,
    max_sge: 16,
    max_cq: 1024,
    max_cqe: 1 << 20,
    max_mr: 1 << 16,
    max_mr_size: u64::MAX,
    max_pd: 256,
    max_qp_rd_atom: 16,
    max_qp_init_rd_atom: 16,
    max_mw: 1 << 16,
    max_srq: 256,
    max_srq_wr: 16384,
    max_srq_sge: 16,
    max_inline_data: 256,
};

/// A device.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) structure: *mut ibv_device,
    /// In the order of the host.
    pub(crate) guid: u64,
    pub(crate) limits: Limits,
    pub(crate) windows: Windows,
    /// An access through a window is checked against its range; as rxe does not.
    pub(crate) checks_window_range: bool,
    /// An access through a window is checked against the queue pair to which the window is bound.
    pub(crate) checks_window_qp: bool,
    /// A window for reads refuses writes, and the other way round.
    pub(crate) checks_window_rights: bool,
    /// An invalidation takes effect.
    pub(crate) invalidates: bool,
    /// The end of a window takes effect.
    pub(crate) frees_windows: bool,
    /// `ibv_reg_dmabuf_mr` maps the descriptor and registers it.
    pub(crate) has_dmabuf: bool,
    /// A fatal event was raised.
    pub(crate) is_dead: bool,
    pub(crate) ports: Vec<Port>,
    pub(crate) next_qp: u32,
}

impl Device {
    pub(crate) fn new(device: usize) -> Self {
        let structure = Box::leak(Box::new(ibv_device {
            _ops: _ibv_device_ops {
                _dummy1: core::ptr::null_mut(),
                _dummy2: core::ptr::null_mut(),
            },
            node_type: IBV_NODE_CA,
            transport_type: IBV_TRANSPORT_IB,
            name: chars(&format!("fake_{device}")),
            dev_name: chars(&format!("uverbs{device}")),
            dev_path: chars(&format!("/dev/infiniband/uverbs{device}")),
            ibdev_path: chars(&format!("/sys/class/infiniband/fake_{device}")),
        }));
        let guid = 0x0200_00FF_FE00_0000 | u64::from(low_byte(device)) << 8;
        Self::initial(device, structure, guid)
    }

    fn initial(device: usize, structure: *mut ibv_device, guid: u64) -> Self {
        Self {
            structure,
            guid,
            limits: LIMITS,
            windows: Windows::Full,
            checks_window_range: true,
            checks_window_qp: true,
            checks_window_rights: true,
            invalidates: true,
            frees_windows: true,
            has_dmabuf: false,
            is_dead: false,
            ports: vec![Port::new(device, 1, IBV_LINK_LAYER_ETHERNET)],
            next_qp: FIRST_QP,
        }
    }

    /// Sets everything to what it was at first.
    pub(crate) fn restart(&mut self, device: usize) {
        *self = Self::initial(device, self.structure, self.guid);
    }

    pub(crate) fn port(&self, number: u32) -> Option<&Port> {
        self.ports.get(usize::try_from(number).ok()?.checked_sub(1)?)
    }

    /// Sets a number of a port, which counts from 1. `None`: there is no such port or number.
    pub(crate) fn set_port(
        &mut self,
        device: usize,
        port: u32,
        name: &str,
        value: u64,
    ) -> Option<()> {
        let at = usize::try_from(port).ok()?.checked_sub(1)?;
        let slot = self.ports.get_mut(at)?;
        match (name, u8::try_from(value)) {
            ("link_layer", Ok(layer @ (IBV_LINK_LAYER_INFINIBAND | IBV_LINK_LAYER_ETHERNET))) => {
                *slot = Port::new(device, at + 1, layer);
                Some(())
            }
            _ => slot.set(name, value),
        }
    }

    /// Sets a number. `None`: there is none of that name, or it is out of range.
    pub(crate) fn set(&mut self, device: usize, name: &str, value: u64) -> Option<()> {
        let l = &mut self.limits;
        match name {
            "ports" if (1..=2).contains(&value) => {
                let ports = usize::try_from(value).ok()?;
                self.ports = (1..=ports)
                    .map(|port| Port::new(device, port, IBV_LINK_LAYER_ETHERNET))
                    .collect();
            }
            "windows" => {
                self.windows = match value {
                    0 => Windows::None,
                    1 => Windows::Full,
                    2 => Windows::NoCall,
                    3 => Windows::NoAlloc,
                    4 => Windows::NoBind,
                    _ => return None,
                }
            }
            "window_range" => self.checks_window_range = value != 0,
            "window_qp" => self.checks_window_qp = value != 0,
            "window_rights" => self.checks_window_rights = value != 0,
            "invalidation" => self.invalidates = value != 0,
            "window_end" => self.frees_windows = value != 0,
            "dmabuf" => self.has_dmabuf = value != 0,
            "max_qp" => l.max_qp = value,
            "max_qp_wr" => l.max_qp_wr = value,
            "max_sge" => l.max_sge = value,
            "max_cq" => l.max_cq = value,
            "max_cqe" => l.max_cqe = value,
            "max_mr" => l.max_mr = value,
            "max_mr_size" => l.max_mr_size = value,
            "max_pd" => l.max_pd = value,
            "max_qp_rd_atom" => l.max_qp_rd_atom = value,
            "max_qp_init_rd_atom" => l.max_qp_init_rd_atom = value,
            "max_mw" => l.max_mw = value,
            "max_srq" => l.max_srq = value,
            "max_srq_wr" => l.max_srq_wr = value,
            "max_srq_sge" => l.max_srq_sge = value,
            "max_inline_data" => l.max_inline_data = value,
            _ => return None,
        }
        Some(())
    }
}

/// Copies a text into an array of C's characters, with a zero at its end.
pub(crate) fn chars<const N: usize>(text: &str) -> [core::ffi::c_char; N] {
    let mut out = [0; N];
    for (to, byte) in out.iter_mut().zip(text.bytes()) {
        *to = byte as core::ffi::c_char;
    }
    out
}
