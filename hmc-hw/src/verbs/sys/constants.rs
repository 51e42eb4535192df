//! The constants of `infiniband/verbs.h`, libibverbs 44.0 (rdma-core), as far as they are wanted.
//!
//! - Constants of a mask have the type of the field or argument that takes them. `ibv_reg_mr` alone takes the access
//!   flags as a signed number.
//! - The device's flags are those that a mask of 32 bits (`ibv_device_attr`) can have.
//! - `../tests.rs` reads this text: one constant a line, a number or `1 << number`.
#![allow(dead_code, reason = "declared as a whole, whether used or not")]

use super::types::{
    ibv_atomic_cap, ibv_event_type, ibv_fork_status, ibv_gid_type, ibv_mig_state, ibv_mtu,
    ibv_mw_type, ibv_node_type, ibv_port_state, ibv_qp_state, ibv_qp_type, ibv_transport_type,
    ibv_wc_opcode, ibv_wc_status, ibv_wr_opcode,
};
use core::ffi::{c_int, c_uint};

pub(crate) const IBV_GID_TYPE_IB: ibv_gid_type = 0;
pub(crate) const IBV_GID_TYPE_ROCE_V1: ibv_gid_type = 1;
pub(crate) const IBV_GID_TYPE_ROCE_V2: ibv_gid_type = 2;

pub(crate) const IBV_NODE_UNKNOWN: ibv_node_type = -1;
pub(crate) const IBV_NODE_CA: ibv_node_type = 1;
pub(crate) const IBV_NODE_SWITCH: ibv_node_type = 2;
pub(crate) const IBV_NODE_ROUTER: ibv_node_type = 3;
pub(crate) const IBV_NODE_RNIC: ibv_node_type = 4;
pub(crate) const IBV_NODE_USNIC: ibv_node_type = 5;
pub(crate) const IBV_NODE_USNIC_UDP: ibv_node_type = 6;
pub(crate) const IBV_NODE_UNSPECIFIED: ibv_node_type = 7;

pub(crate) const IBV_TRANSPORT_UNKNOWN: ibv_transport_type = -1;
pub(crate) const IBV_TRANSPORT_IB: ibv_transport_type = 0;
pub(crate) const IBV_TRANSPORT_IWARP: ibv_transport_type = 1;
pub(crate) const IBV_TRANSPORT_USNIC: ibv_transport_type = 2;
pub(crate) const IBV_TRANSPORT_USNIC_UDP: ibv_transport_type = 3;
pub(crate) const IBV_TRANSPORT_UNSPECIFIED: ibv_transport_type = 4;

pub(crate) const IBV_DEVICE_MEM_WINDOW: c_uint = 1 << 17;
pub(crate) const IBV_DEVICE_MEM_MGT_EXTENSIONS: c_uint = 1 << 21;
pub(crate) const IBV_DEVICE_MEM_WINDOW_TYPE_2A: c_uint = 1 << 23;
pub(crate) const IBV_DEVICE_MEM_WINDOW_TYPE_2B: c_uint = 1 << 24;

pub(crate) const IBV_FORK_DISABLED: ibv_fork_status = 0;
pub(crate) const IBV_FORK_ENABLED: ibv_fork_status = 1;
pub(crate) const IBV_FORK_UNNEEDED: ibv_fork_status = 2;

pub(crate) const IBV_ATOMIC_NONE: ibv_atomic_cap = 0;
pub(crate) const IBV_ATOMIC_HCA: ibv_atomic_cap = 1;
pub(crate) const IBV_ATOMIC_GLOB: ibv_atomic_cap = 2;

pub(crate) const IBV_MTU_256: ibv_mtu = 1;
pub(crate) const IBV_MTU_512: ibv_mtu = 2;
pub(crate) const IBV_MTU_1024: ibv_mtu = 3;
pub(crate) const IBV_MTU_2048: ibv_mtu = 4;
pub(crate) const IBV_MTU_4096: ibv_mtu = 5;

pub(crate) const IBV_PORT_NOP: ibv_port_state = 0;
pub(crate) const IBV_PORT_DOWN: ibv_port_state = 1;
pub(crate) const IBV_PORT_INIT: ibv_port_state = 2;
pub(crate) const IBV_PORT_ARMED: ibv_port_state = 3;
pub(crate) const IBV_PORT_ACTIVE: ibv_port_state = 4;
pub(crate) const IBV_PORT_ACTIVE_DEFER: ibv_port_state = 5;

pub(crate) const IBV_LINK_LAYER_UNSPECIFIED: u8 = 0;
pub(crate) const IBV_LINK_LAYER_INFINIBAND: u8 = 1;
pub(crate) const IBV_LINK_LAYER_ETHERNET: u8 = 2;

pub(crate) const IBV_EVENT_CQ_ERR: ibv_event_type = 0;
pub(crate) const IBV_EVENT_QP_FATAL: ibv_event_type = 1;
pub(crate) const IBV_EVENT_QP_REQ_ERR: ibv_event_type = 2;
pub(crate) const IBV_EVENT_QP_ACCESS_ERR: ibv_event_type = 3;
pub(crate) const IBV_EVENT_COMM_EST: ibv_event_type = 4;
pub(crate) const IBV_EVENT_SQ_DRAINED: ibv_event_type = 5;
pub(crate) const IBV_EVENT_PATH_MIG: ibv_event_type = 6;
pub(crate) const IBV_EVENT_PATH_MIG_ERR: ibv_event_type = 7;
pub(crate) const IBV_EVENT_DEVICE_FATAL: ibv_event_type = 8;
pub(crate) const IBV_EVENT_PORT_ACTIVE: ibv_event_type = 9;
pub(crate) const IBV_EVENT_PORT_ERR: ibv_event_type = 10;
pub(crate) const IBV_EVENT_LID_CHANGE: ibv_event_type = 11;
pub(crate) const IBV_EVENT_PKEY_CHANGE: ibv_event_type = 12;
pub(crate) const IBV_EVENT_SM_CHANGE: ibv_event_type = 13;
pub(crate) const IBV_EVENT_SRQ_ERR: ibv_event_type = 14;
pub(crate) const IBV_EVENT_SRQ_LIMIT_REACHED: ibv_event_type = 15;
pub(crate) const IBV_EVENT_QP_LAST_WQE_REACHED: ibv_event_type = 16;
pub(crate) const IBV_EVENT_CLIENT_REREGISTER: ibv_event_type = 17;
pub(crate) const IBV_EVENT_GID_CHANGE: ibv_event_type = 18;
pub(crate) const IBV_EVENT_WQ_FATAL: ibv_event_type = 19;

pub(crate) const IBV_WC_SUCCESS: ibv_wc_status = 0;
pub(crate) const IBV_WC_LOC_LEN_ERR: ibv_wc_status = 1;
pub(crate) const IBV_WC_LOC_QP_OP_ERR: ibv_wc_status = 2;
pub(crate) const IBV_WC_LOC_EEC_OP_ERR: ibv_wc_status = 3;
pub(crate) const IBV_WC_LOC_PROT_ERR: ibv_wc_status = 4;
pub(crate) const IBV_WC_WR_FLUSH_ERR: ibv_wc_status = 5;
pub(crate) const IBV_WC_MW_BIND_ERR: ibv_wc_status = 6;
pub(crate) const IBV_WC_BAD_RESP_ERR: ibv_wc_status = 7;
pub(crate) const IBV_WC_LOC_ACCESS_ERR: ibv_wc_status = 8;
pub(crate) const IBV_WC_REM_INV_REQ_ERR: ibv_wc_status = 9;
pub(crate) const IBV_WC_REM_ACCESS_ERR: ibv_wc_status = 10;
pub(crate) const IBV_WC_REM_OP_ERR: ibv_wc_status = 11;
pub(crate) const IBV_WC_RETRY_EXC_ERR: ibv_wc_status = 12;
pub(crate) const IBV_WC_RNR_RETRY_EXC_ERR: ibv_wc_status = 13;
pub(crate) const IBV_WC_LOC_RDD_VIOL_ERR: ibv_wc_status = 14;
pub(crate) const IBV_WC_REM_INV_RD_REQ_ERR: ibv_wc_status = 15;
pub(crate) const IBV_WC_REM_ABORT_ERR: ibv_wc_status = 16;
pub(crate) const IBV_WC_INV_EECN_ERR: ibv_wc_status = 17;
pub(crate) const IBV_WC_INV_EEC_STATE_ERR: ibv_wc_status = 18;
pub(crate) const IBV_WC_FATAL_ERR: ibv_wc_status = 19;
pub(crate) const IBV_WC_RESP_TIMEOUT_ERR: ibv_wc_status = 20;
pub(crate) const IBV_WC_GENERAL_ERR: ibv_wc_status = 21;
pub(crate) const IBV_WC_TM_ERR: ibv_wc_status = 22;
pub(crate) const IBV_WC_TM_RNDV_INCOMPLETE: ibv_wc_status = 23;

pub(crate) const IBV_WC_SEND: ibv_wc_opcode = 0;
pub(crate) const IBV_WC_RDMA_WRITE: ibv_wc_opcode = 1;
pub(crate) const IBV_WC_RDMA_READ: ibv_wc_opcode = 2;
pub(crate) const IBV_WC_COMP_SWAP: ibv_wc_opcode = 3;
pub(crate) const IBV_WC_FETCH_ADD: ibv_wc_opcode = 4;
pub(crate) const IBV_WC_BIND_MW: ibv_wc_opcode = 5;
pub(crate) const IBV_WC_LOCAL_INV: ibv_wc_opcode = 6;
pub(crate) const IBV_WC_RECV: ibv_wc_opcode = 128;
pub(crate) const IBV_WC_RECV_RDMA_WITH_IMM: ibv_wc_opcode = 129;

pub(crate) const IBV_WC_GRH: c_uint = 1 << 0;
pub(crate) const IBV_WC_WITH_IMM: c_uint = 1 << 1;
pub(crate) const IBV_WC_WITH_INV: c_uint = 1 << 3;

pub(crate) const IBV_ACCESS_LOCAL_WRITE: c_uint = 1 << 0;
pub(crate) const IBV_ACCESS_REMOTE_WRITE: c_uint = 1 << 1;
pub(crate) const IBV_ACCESS_REMOTE_READ: c_uint = 1 << 2;
pub(crate) const IBV_ACCESS_REMOTE_ATOMIC: c_uint = 1 << 3;
pub(crate) const IBV_ACCESS_MW_BIND: c_uint = 1 << 4;
pub(crate) const IBV_ACCESS_ZERO_BASED: c_uint = 1 << 5;
pub(crate) const IBV_ACCESS_ON_DEMAND: c_uint = 1 << 6;
pub(crate) const IBV_ACCESS_HUGETLB: c_uint = 1 << 7;
pub(crate) const IBV_ACCESS_RELAXED_ORDERING: c_uint = 1 << 20;

pub(crate) const IBV_MW_TYPE_1: ibv_mw_type = 1;
pub(crate) const IBV_MW_TYPE_2: ibv_mw_type = 2;

pub(crate) const IBV_SRQ_MAX_WR: c_int = 1 << 0;
pub(crate) const IBV_SRQ_LIMIT: c_int = 1 << 1;

pub(crate) const IBV_QPT_RC: ibv_qp_type = 2;
pub(crate) const IBV_QPT_UC: ibv_qp_type = 3;
pub(crate) const IBV_QPT_UD: ibv_qp_type = 4;

pub(crate) const IBV_QP_STATE: c_int = 1 << 0;
pub(crate) const IBV_QP_CUR_STATE: c_int = 1 << 1;
pub(crate) const IBV_QP_EN_SQD_ASYNC_NOTIFY: c_int = 1 << 2;
pub(crate) const IBV_QP_ACCESS_FLAGS: c_int = 1 << 3;
pub(crate) const IBV_QP_PKEY_INDEX: c_int = 1 << 4;
pub(crate) const IBV_QP_PORT: c_int = 1 << 5;
pub(crate) const IBV_QP_QKEY: c_int = 1 << 6;
pub(crate) const IBV_QP_AV: c_int = 1 << 7;
pub(crate) const IBV_QP_PATH_MTU: c_int = 1 << 8;
pub(crate) const IBV_QP_TIMEOUT: c_int = 1 << 9;
pub(crate) const IBV_QP_RETRY_CNT: c_int = 1 << 10;
pub(crate) const IBV_QP_RNR_RETRY: c_int = 1 << 11;
pub(crate) const IBV_QP_RQ_PSN: c_int = 1 << 12;
pub(crate) const IBV_QP_MAX_QP_RD_ATOMIC: c_int = 1 << 13;
pub(crate) const IBV_QP_ALT_PATH: c_int = 1 << 14;
pub(crate) const IBV_QP_MIN_RNR_TIMER: c_int = 1 << 15;
pub(crate) const IBV_QP_SQ_PSN: c_int = 1 << 16;
pub(crate) const IBV_QP_MAX_DEST_RD_ATOMIC: c_int = 1 << 17;
pub(crate) const IBV_QP_PATH_MIG_STATE: c_int = 1 << 18;
pub(crate) const IBV_QP_CAP: c_int = 1 << 19;
pub(crate) const IBV_QP_DEST_QPN: c_int = 1 << 20;
pub(crate) const IBV_QP_RATE_LIMIT: c_int = 1 << 25;

pub(crate) const IBV_QPS_RESET: ibv_qp_state = 0;
pub(crate) const IBV_QPS_INIT: ibv_qp_state = 1;
pub(crate) const IBV_QPS_RTR: ibv_qp_state = 2;
pub(crate) const IBV_QPS_RTS: ibv_qp_state = 3;
pub(crate) const IBV_QPS_SQD: ibv_qp_state = 4;
pub(crate) const IBV_QPS_SQE: ibv_qp_state = 5;
pub(crate) const IBV_QPS_ERR: ibv_qp_state = 6;
pub(crate) const IBV_QPS_UNKNOWN: ibv_qp_state = 7;

pub(crate) const IBV_MIG_MIGRATED: ibv_mig_state = 0;
pub(crate) const IBV_MIG_REARM: ibv_mig_state = 1;
pub(crate) const IBV_MIG_ARMED: ibv_mig_state = 2;

pub(crate) const IBV_WR_RDMA_WRITE: ibv_wr_opcode = 0;
pub(crate) const IBV_WR_RDMA_WRITE_WITH_IMM: ibv_wr_opcode = 1;
pub(crate) const IBV_WR_SEND: ibv_wr_opcode = 2;
pub(crate) const IBV_WR_SEND_WITH_IMM: ibv_wr_opcode = 3;
pub(crate) const IBV_WR_RDMA_READ: ibv_wr_opcode = 4;
pub(crate) const IBV_WR_ATOMIC_CMP_AND_SWP: ibv_wr_opcode = 5;
pub(crate) const IBV_WR_ATOMIC_FETCH_AND_ADD: ibv_wr_opcode = 6;
pub(crate) const IBV_WR_LOCAL_INV: ibv_wr_opcode = 7;
pub(crate) const IBV_WR_BIND_MW: ibv_wr_opcode = 8;
pub(crate) const IBV_WR_SEND_WITH_INV: ibv_wr_opcode = 9;

pub(crate) const IBV_SEND_FENCE: c_uint = 1 << 0;
pub(crate) const IBV_SEND_SIGNALED: c_uint = 1 << 1;
pub(crate) const IBV_SEND_SOLICITED: c_uint = 1 << 2;
pub(crate) const IBV_SEND_INLINE: c_uint = 1 << 3;
