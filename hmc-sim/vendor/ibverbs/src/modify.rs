//! The change of a queue pair's state and attributes.

use core::ffi::c_int;

use crate::abi::{
    IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_READ,
    IBV_ACCESS_REMOTE_WRITE, IBV_LINK_LAYER_ETHERNET, IBV_QP_ACCESS_FLAGS, IBV_QP_ALT_PATH,
    IBV_QP_AV, IBV_QP_CUR_STATE, IBV_QP_DEST_QPN, IBV_QP_MAX_DEST_RD_ATOMIC,
    IBV_QP_MAX_QP_RD_ATOMIC, IBV_QP_MIN_RNR_TIMER, IBV_QP_PATH_MIG_STATE, IBV_QP_PATH_MTU,
    IBV_QP_PKEY_INDEX, IBV_QP_PORT, IBV_QP_RETRY_CNT, IBV_QP_RNR_RETRY, IBV_QP_RQ_PSN,
    IBV_QP_SQ_PSN, IBV_QP_STATE, IBV_QP_TIMEOUT, IBV_QPS_ERR, IBV_QPS_INIT, IBV_QPS_RESET,
    IBV_QPS_RTR, IBV_QPS_RTS, ibv_qp, ibv_qp_attr, ibv_qp_state,
};
use crate::device::Device;
use crate::faults::Call;
use crate::queue_pair::Qp;
use crate::state::{FakeIbv, state};
use crate::table::Id;

/// The largest number of 24 bits.
const MAX_PSN: u32 = 0x00FF_FFFF;
const RIGHTS: u32 = IBV_ACCESS_LOCAL_WRITE
    | IBV_ACCESS_REMOTE_WRITE
    | IBV_ACCESS_REMOTE_READ
    | IBV_ACCESS_REMOTE_ATOMIC;

/// The attributes that a change of state needs, and those that it may have besides. `None`: there is no such change.
const fn masks(from: ibv_qp_state, to: ibv_qp_state) -> Option<(c_int, c_int)> {
    Some(match (from, to) {
        (_, IBV_QPS_RESET | IBV_QPS_ERR) => (IBV_QP_STATE, IBV_QP_CUR_STATE),
        (IBV_QPS_RESET, IBV_QPS_INIT) => {
            (IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0)
        }
        (IBV_QPS_INIT, IBV_QPS_INIT) => {
            (0, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
        }
        (IBV_QPS_INIT, IBV_QPS_RTR) => (
            IBV_QP_STATE
                | IBV_QP_AV
                | IBV_QP_PATH_MTU
                | IBV_QP_DEST_QPN
                | IBV_QP_RQ_PSN
                | IBV_QP_MAX_DEST_RD_ATOMIC
                | IBV_QP_MIN_RNR_TIMER,
            IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX,
        ),
        (IBV_QPS_RTR, IBV_QPS_RTS) => (
            IBV_QP_STATE
                | IBV_QP_TIMEOUT
                | IBV_QP_RETRY_CNT
                | IBV_QP_RNR_RETRY
                | IBV_QP_SQ_PSN
                | IBV_QP_MAX_QP_RD_ATOMIC,
            IBV_QP_CUR_STATE
                | IBV_QP_ALT_PATH
                | IBV_QP_ACCESS_FLAGS
                | IBV_QP_MIN_RNR_TIMER
                | IBV_QP_PATH_MIG_STATE,
        ),
        (IBV_QPS_RTS, IBV_QPS_RTS) => (
            0,
            IBV_QP_STATE
                | IBV_QP_CUR_STATE
                | IBV_QP_ACCESS_FLAGS
                | IBV_QP_ALT_PATH
                | IBV_QP_MIN_RNR_TIMER
                | IBV_QP_PATH_MIG_STATE,
        ),
        _ => return None,
    })
}

/// Returns `true` if an address vector can be used by a port.
fn is_address(device: &Device, port: u8, attr: &ibv_qp_attr) -> bool {
    let ah = &attr.ah_attr;
    let Some(own) = device.port(port.into()) else { return false };
    let is_global = ah.is_global != 0;
    let sgid = own.gid(ah.grh.sgid_index);
    ah.port_num == port
        && (!is_global || sgid.is_some() && ah.grh.hop_limit != 0)
        && (own.link_layer != IBV_LINK_LAYER_ETHERNET || is_global)
}

/// Returns `true` if the attributes that are set have values that the device allows.
fn are_valid(device: &Device, qp: &Qp, attr: &ibv_qp_attr, mask: c_int) -> bool {
    let has = |bit| mask & bit != 0;
    let limits = device.limits;
    let port = if has(IBV_QP_PORT) { attr.port_num } else { qp.attr.port_num };
    let mtu = device.port(port.into()).map_or(0, |p| p.active_mtu);
    (!has(IBV_QP_CUR_STATE) || attr.cur_qp_state == qp.state)
        && (!has(IBV_QP_PKEY_INDEX) || attr.pkey_index == 0)
        && (!has(IBV_QP_PORT) || device.port(port.into()).is_some())
        && (!has(IBV_QP_ACCESS_FLAGS) || attr.qp_access_flags & !RIGHTS == 0)
        && (!has(IBV_QP_AV) || is_address(device, port, attr))
        && (!has(IBV_QP_PATH_MTU) || (1..=mtu).contains(&attr.path_mtu))
        && (!has(IBV_QP_DEST_QPN) || attr.dest_qp_num <= MAX_PSN)
        && (!has(IBV_QP_RQ_PSN) || attr.rq_psn <= MAX_PSN)
        && (!has(IBV_QP_SQ_PSN) || attr.sq_psn <= MAX_PSN)
        && (!has(IBV_QP_MAX_DEST_RD_ATOMIC)
            || u64::from(attr.max_dest_rd_atomic) <= limits.max_qp_rd_atom)
        && (!has(IBV_QP_MAX_QP_RD_ATOMIC)
            || u64::from(attr.max_rd_atomic) <= limits.max_qp_init_rd_atom)
        && (!has(IBV_QP_MIN_RNR_TIMER) || attr.min_rnr_timer < 32)
        && (!has(IBV_QP_TIMEOUT) || attr.timeout < 32)
        && (!has(IBV_QP_RETRY_CNT) || attr.retry_cnt < 8)
        && (!has(IBV_QP_RNR_RETRY) || attr.rnr_retry < 8)
}

/// Copies the attributes that are set.
fn set(qp: &mut Qp, attr: &ibv_qp_attr, mask: c_int) {
    let has = |bit| mask & bit != 0;
    let own = &mut qp.attr;
    if has(IBV_QP_ACCESS_FLAGS) {
        own.qp_access_flags = attr.qp_access_flags;
    }
    if has(IBV_QP_PKEY_INDEX) {
        own.pkey_index = attr.pkey_index;
    }
    if has(IBV_QP_PORT) {
        own.port_num = attr.port_num;
    }
    if has(IBV_QP_AV) {
        own.ah_attr = attr.ah_attr;
    }
    if has(IBV_QP_PATH_MTU) {
        own.path_mtu = attr.path_mtu;
    }
    if has(IBV_QP_TIMEOUT) {
        own.timeout = attr.timeout;
    }
    if has(IBV_QP_RETRY_CNT) {
        own.retry_cnt = attr.retry_cnt;
    }
    if has(IBV_QP_RNR_RETRY) {
        own.rnr_retry = attr.rnr_retry;
    }
    if has(IBV_QP_RQ_PSN) {
        own.rq_psn = attr.rq_psn;
        qp.rq_psn = attr.rq_psn;
    }
    if has(IBV_QP_SQ_PSN) {
        own.sq_psn = attr.sq_psn;
        qp.sq_psn = attr.sq_psn;
    }
    if has(IBV_QP_MAX_QP_RD_ATOMIC) {
        own.max_rd_atomic = attr.max_rd_atomic;
    }
    if has(IBV_QP_MAX_DEST_RD_ATOMIC) {
        own.max_dest_rd_atomic = attr.max_dest_rd_atomic;
    }
    if has(IBV_QP_MIN_RNR_TIMER) {
        own.min_rnr_timer = attr.min_rnr_timer;
    }
    if has(IBV_QP_DEST_QPN) {
        own.dest_qp_num = attr.dest_qp_num;
    }
}

impl FakeIbv {
    fn modify(&mut self, id: Id, attr: &ibv_qp_attr, mask: c_int) -> Result<(), c_int> {
        let Some(qp) = self.qps.get_mut(id) else { return Err(libc::EINVAL) };
        let to = if mask & IBV_QP_STATE != 0 { attr.qp_state } else { qp.state };
        let (needed, optional) = masks(qp.state, to).ok_or(libc::EINVAL)?;
        if mask & needed != needed || mask & !(needed | optional) != 0 {
            return Err(libc::EINVAL);
        }
        if !are_valid(&self.devices[qp.device], qp, attr, mask) {
            return Err(libc::EINVAL);
        }
        set(qp, attr, mask);
        match to {
            IBV_QPS_ERR => self.enter_error(id),
            IBV_QPS_RESET => {
                qp.state = to;
                qp.retries = 0;
                self.drop_work(id);
            }
            _ => qp.state = to,
        }
        Ok(())
    }
}

// SAFETY: the name is libibverbs' own, and a process has one. The pointers are valid, as libibverbs asks.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_modify_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    attr_mask: c_int,
) -> c_int {
    let mut w = state();
    let call = Call::ModifyQp;
    let Some(id) = w.known(call, |w| &w.qps, qp) else { return libc::EINVAL };
    let device = w.qps.get(id).map_or(0, |q| q.device);
    // SAFETY: the caller's, to be read.
    let wanted = unsafe { attr.read() };
    let is_end = matches!(wanted.qp_state, IBV_QPS_ERR | IBV_QPS_RESET);
    // A queue pair of a dead device can still be taken out of use.
    let device = (attr_mask & IBV_QP_STATE == 0 || !is_end).then_some(device);
    if let Some(errno) = w.set_up(call, device) {
        return errno;
    }
    if let Err(errno) = w.modify(id, &wanted, attr_mask) {
        return errno;
    }
    if attr_mask & IBV_QP_STATE != 0 {
        // SAFETY: the structure of a queue pair that is alive.
        unsafe { (*qp).state = wanted.qp_state };
    }
    0
}
