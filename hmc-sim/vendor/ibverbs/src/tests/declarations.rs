//! The declarations have the sizes and offsets of libibverbs' headers, 44.0 to 65.0.

use core::mem::offset_of;

use crate::abi::*;
use crate::api::SIGNATURES;

#[test]
fn structures_have_the_sizes_of_the_headers() {
    let sizes = [
        (size_of::<ibv_sge>(), 16),
        (size_of::<ibv_send_wr>(), 128),
        (size_of::<ibv_recv_wr>(), 32),
        (size_of::<ibv_wc>(), 48),
        (size_of::<ibv_qp_attr>(), 144),
        (size_of::<ibv_qp_cap>(), 20),
        (size_of::<ibv_qp_init_attr>(), 64),
        (size_of::<ibv_ah_attr>(), 32),
        (size_of::<ibv_global_route>(), 24),
        (size_of::<ibv_gid>(), 16),
        (size_of::<ibv_mr>(), 48),
        (size_of::<ibv_pd>(), 16),
        (size_of::<ibv_mw>(), 32),
        (size_of::<ibv_mw_bind_info>(), 32),
        (size_of::<ibv_mw_bind>(), 48),
        (size_of::<ibv_device>(), 664),
        (size_of::<ibv_comp_channel>(), 16),
        (size_of::<ibv_port_attr>(), 52),
        (size_of::<_compat_ibv_port_attr>(), 48),
        (size_of::<ibv_device_attr>(), 232),
        (size_of::<ibv_async_event>(), 16),
        (size_of::<ibv_gid_entry>(), 32),
        (size_of::<ibv_context_ops>(), 256),
        (size_of::<ibv_srq_init_attr>(), 24),
        (size_of::<ibv_srq_attr>(), 12),
    ];
    for (at, (own, header)) in sizes.iter().enumerate() {
        assert_eq!(own, header, "{at}");
    }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn structures_with_a_mutex_have_the_sizes_of_the_headers() {
    assert_eq!(
        [
            size_of::<ibv_cq>(),
            size_of::<ibv_qp>(),
            size_of::<ibv_srq>(),
            size_of::<ibv_context>(),
            offset_of!(ibv_cq, comp_events_completed),
            offset_of!(ibv_qp, events_completed),
            offset_of!(ibv_srq, events_completed),
            offset_of!(ibv_context, abi_compat),
        ],
        [128, 160, 128, 328, 120, 152, 120, 320]
    );
}

#[test]
fn members_have_the_offsets_of_the_headers() {
    let ops = offset_of!(ibv_context, ops);
    let offsets = [
        (offset_of!(ibv_send_wr, opcode), 28),
        (offset_of!(ibv_send_wr, imm), 36),
        (offset_of!(ibv_send_wr, wr), 40),
        (offset_of!(ibv_send_wr_atomic, rkey), 24),
        (offset_of!(ibv_send_wr, qp_type), 72),
        (offset_of!(ibv_send_wr, bind), 80),
        (offset_of!(ibv_send_wr_bind, bind_info), 16),
        (offset_of!(ibv_wc, imm), 24),
        (offset_of!(ibv_wc, wc_flags), 36),
        (offset_of!(ibv_wc, dlid_path_bits), 45),
        (offset_of!(ibv_qp_attr, ah_attr), 56),
        (offset_of!(ibv_qp_attr, pkey_index), 120),
        (offset_of!(ibv_qp_attr, max_rd_atomic), 126),
        (offset_of!(ibv_qp_attr, rate_limit), 136),
        (offset_of!(ibv_qp_init_attr, sq_sig_all), 56),
        (offset_of!(ibv_ah_attr, port_num), 30),
        (offset_of!(ibv_mr, rkey), 40),
        (offset_of!(ibv_mw, r#type), 24),
        (offset_of!(ibv_qp, qp_num), 52),
        (offset_of!(ibv_qp, mutex), 64),
        (offset_of!(ibv_device, ibdev_path), 408),
        (offset_of!(ibv_port_attr, link_layer), 46),
        (offset_of!(ibv_device_attr, device_cap_flags), 116),
        (offset_of!(ibv_device_attr, max_qp_init_rd_atom), 156),
        (offset_of!(ibv_device_attr, max_mw), 176),
        (offset_of!(ibv_device_attr, max_srq), 212),
        (offset_of!(ibv_device_attr, phys_port_cnt), 227),
        (ops + offset_of!(ibv_context_ops, alloc_mw), 64),
        (ops + offset_of!(ibv_context_ops, bind_mw), 72),
        (ops + offset_of!(ibv_context_ops, dealloc_mw), 80),
        (ops + offset_of!(ibv_context_ops, poll_cq), 96),
        (ops + offset_of!(ibv_context_ops, req_notify_cq), 104),
        (ops + offset_of!(ibv_context_ops, post_srq_recv), 168),
        (ops + offset_of!(ibv_context_ops, post_send), 208),
        (ops + offset_of!(ibv_context_ops, post_recv), 216),
        (ops + offset_of!(ibv_context_ops, _compat_create_ah), 224),
        (offset_of!(ibv_context, cmd_fd), 264),
        (offset_of!(ibv_context, async_fd), 268),
    ];
    for (at, (own, header)) in offsets.iter().enumerate() {
        assert_eq!(own, header, "{at}");
    }
}

#[test]
fn each_function_has_a_signature() {
    let create = SIGNATURES.iter().find(|s| s.0 == "ibv_create_qp");
    assert_eq!(
        create,
        Some(&("ibv_create_qp", &["*mut ibv_pd", "*mut ibv_qp_init_attr"][..], "*mut ibv_qp"))
    );
    let ack = SIGNATURES.iter().find(|s| s.0 == "ibv_ack_cq_events");
    assert_eq!(ack.map(|s| s.2), Some("()"));
    assert_eq!(SIGNATURES.len(), 40);
}
