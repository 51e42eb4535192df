//! What `sys` declares, field by field, and the C program that prints the same of a header.

use super::{Layout, put};
use crate::verbs::sys::*;
use core::mem::{offset_of, size_of};
use std::fmt::Write as _;

const DECLARED: &str = include_str!("../sys/constants.rs");

/// Returns the size of a structure's field.
fn field_size<S, F>(_: fn(&S) -> &F) -> usize {
    size_of::<F>()
}

/// Returns the size of a union's field: of what it can be made from.
fn variant_size<U, F>(_: fn(F) -> U) -> usize {
    size_of::<F>()
}

/// What is declared, and the C program that prints the same of the header.
#[derive(Default)]
pub(super) struct Both {
    pub(super) declared: Layout,
    pub(super) program: String,
}

impl Both {
    fn integer(&mut self, name: &str, size: usize, is_signed: bool) {
        let sign = if is_signed { "signed" } else { "unsigned" };
        put(&mut self.declared, format!("type {name}"), vec![size.to_string(), sign.to_owned()]);
        writeln!(
            self.program,
            "printf(\"type {name} %zu %s\\n\", sizeof(enum {name}), ((enum {name})-1 < 0) ? \"signed\" : \"unsigned\");"
        )
        .unwrap();
    }

    fn structure(&mut self, name: &str, c: &str, size: usize) {
        put(&mut self.declared, format!("struct {name}"), vec![size.to_string()]);
        writeln!(self.program, "printf(\"struct {name} %zu\\n\", sizeof({c}));").unwrap();
    }

    fn field(&mut self, name: &str, c: &str, field: &str, offset: usize, size: usize) {
        let field = field.trim_start_matches("r#");
        let figures = vec![offset.to_string(), size.to_string()];
        put(&mut self.declared, format!("field {name}.{field}"), figures);
        writeln!(
            self.program,
            "printf(\"field {name}.{field} %zu %zu\\n\", offsetof({c}, {field}), sizeof((({c} *)0)->{field}));"
        )
        .unwrap();
    }

    fn constant(&mut self, name: &str, value: &str) {
        // `1 << 17` or a number.
        let number: i64 = match value.split_once(" << ") {
            Some((one, bits)) => one.parse::<i64>().unwrap() << bits.parse::<u32>().unwrap(),
            None => value.parse().unwrap(),
        };
        put(&mut self.declared, format!("const {name}"), vec![number.to_string()]);
        writeln!(self.program, "printf(\"const {name} %lld\\n\", (long long){name});").unwrap();
    }
}

macro_rules! integers {
    ($out:ident: $($name:ident)*) => { $(
        #[allow(unused_comparisons, reason = "some have no sign")]
        $out.integer(stringify!($name), size_of::<$name>(), $name::MIN < 0);
    )* };
}

macro_rules! structures {
    ($out:ident: $($name:ident = $c:literal { $($field:ident)* })*) => { $(
        // A field that is not listed does not compile.
        let _ = |whole: $name| {
            let $name { $($field: _),* } = whole;
        };
        $out.structure(stringify!($name), $c, size_of::<$name>());
        $(
            let size = field_size(|whole: &$name| &whole.$field);
            $out.field(stringify!($name), $c, stringify!($field), offset_of!($name, $field), size);
        )*
    )* };
}

macro_rules! unions {
    ($out:ident: $($name:ident = $c:literal { $($field:ident)* })*) => { $(
        $out.structure(stringify!($name), $c, size_of::<$name>());
        $(
            let size = variant_size(|$field| $name { $field });
            $out.field(stringify!($name), $c, stringify!($field), offset_of!($name, $field), size);
        )*
    )* };
}

/// Returns what `sys` declares, as this compiler lays it out, and the program.
pub(super) fn both() -> Both {
    let mut out = Both::default();
    integers! { out:
        ibv_node_type ibv_transport_type ibv_gid_type ibv_fork_status ibv_atomic_cap ibv_mtu
        ibv_port_state ibv_event_type ibv_wc_status ibv_wc_opcode ibv_mw_type ibv_qp_type
        ibv_qp_state ibv_mig_state ibv_wr_opcode
    }
    structures! { out:
        ibv_gid = "union ibv_gid" { raw }
        ibv_gid_entry = "struct ibv_gid_entry" { gid gid_index port_num gid_type ndev_ifindex }
        ibv_device = "struct ibv_device" {
            _ops node_type transport_type name dev_name dev_path ibdev_path
        }
        ibv_context_ops = "struct ibv_context_ops" {
            _compat_query_device _compat_query_port _compat_alloc_pd _compat_dealloc_pd
            _compat_reg_mr _compat_rereg_mr _compat_dereg_mr alloc_mw bind_mw dealloc_mw
            _compat_create_cq poll_cq req_notify_cq _compat_cq_event _compat_resize_cq
            _compat_destroy_cq _compat_create_srq _compat_modify_srq _compat_query_srq
            _compat_destroy_srq post_srq_recv _compat_create_qp _compat_query_qp
            _compat_modify_qp _compat_destroy_qp post_send post_recv _compat_create_ah
            _compat_destroy_ah _compat_attach_mcast _compat_detach_mcast _compat_async_event
        }
        ibv_context = "struct ibv_context" {
            device ops cmd_fd async_fd num_comp_vectors mutex abi_compat
        }
        ibv_device_attr = "struct ibv_device_attr" {
            fw_ver node_guid sys_image_guid max_mr_size page_size_cap vendor_id vendor_part_id
            hw_ver max_qp max_qp_wr device_cap_flags max_sge max_sge_rd max_cq max_cqe max_mr
            max_pd max_qp_rd_atom max_ee_rd_atom max_res_rd_atom max_qp_init_rd_atom
            max_ee_init_rd_atom atomic_cap max_ee max_rdd max_mw max_raw_ipv6_qp max_raw_ethy_qp
            max_mcast_grp max_mcast_qp_attach max_total_mcast_qp_attach max_ah max_fmr
            max_map_per_fmr max_srq max_srq_wr max_srq_sge max_pkeys local_ca_ack_delay
            phys_port_cnt
        }
        ibv_port_attr = "struct ibv_port_attr" {
            state max_mtu active_mtu gid_tbl_len port_cap_flags max_msg_sz bad_pkey_cntr
            qkey_viol_cntr pkey_tbl_len lid sm_lid lmc max_vl_num sm_sl subnet_timeout
            init_type_reply active_width active_speed phys_state link_layer flags port_cap_flags2
        }
        ibv_async_event = "struct ibv_async_event" { element event_type }
        ibv_pd = "struct ibv_pd" { context handle }
        ibv_mr = "struct ibv_mr" { context pd addr length handle lkey rkey }
        ibv_mw = "struct ibv_mw" { context pd rkey handle r#type }
        ibv_mw_bind_info = "struct ibv_mw_bind_info" { mr addr length mw_access_flags }
        ibv_mw_bind = "struct ibv_mw_bind" { wr_id send_flags bind_info }
        ibv_comp_channel = "struct ibv_comp_channel" { context fd refcnt }
        ibv_cq = "struct ibv_cq" {
            context channel cq_context handle cqe mutex cond comp_events_completed
            async_events_completed
        }
        ibv_wc = "struct ibv_wc" {
            wr_id status opcode vendor_err byte_len imm_data qp_num src_qp wc_flags pkey_index slid
            sl dlid_path_bits
        }
        ibv_srq_attr = "struct ibv_srq_attr" { max_wr max_sge srq_limit }
        ibv_srq_init_attr = "struct ibv_srq_init_attr" { srq_context attr }
        ibv_srq = "struct ibv_srq" { context srq_context pd handle mutex cond events_completed }
        ibv_global_route = "struct ibv_global_route" {
            dgid flow_label sgid_index hop_limit traffic_class
        }
        ibv_ah_attr = "struct ibv_ah_attr" {
            grh dlid sl src_path_bits static_rate is_global port_num
        }
        ibv_qp_cap = "struct ibv_qp_cap" {
            max_send_wr max_recv_wr max_send_sge max_recv_sge max_inline_data
        }
        ibv_qp_init_attr = "struct ibv_qp_init_attr" {
            qp_context send_cq recv_cq srq cap qp_type sq_sig_all
        }
        ibv_qp_attr = "struct ibv_qp_attr" {
            qp_state cur_qp_state path_mtu path_mig_state qkey rq_psn sq_psn dest_qp_num
            qp_access_flags cap ah_attr alt_ah_attr pkey_index alt_pkey_index en_sqd_async_notify
            sq_draining max_rd_atomic max_dest_rd_atomic min_rnr_timer port_num timeout retry_cnt
            rnr_retry alt_port_num alt_timeout rate_limit
        }
        ibv_qp = "struct ibv_qp" {
            context qp_context pd send_cq recv_cq srq handle qp_num state qp_type mutex cond
            events_completed
        }
        ibv_sge = "struct ibv_sge" { addr length lkey }
        ibv_send_wr_rdma = "__typeof__(((struct ibv_send_wr *)0)->wr.rdma)" { remote_addr rkey }
        ibv_send_wr_atomic = "__typeof__(((struct ibv_send_wr *)0)->wr.atomic)" {
            remote_addr compare_add swap rkey
        }
        ibv_send_wr_bind_mw = "__typeof__(((struct ibv_send_wr *)0)->bind_mw)" {
            mw rkey bind_info
        }
        ibv_send_wr = "struct ibv_send_wr" {
            wr_id next sg_list num_sge opcode send_flags imm_data wr qp_type bind_mw
        }
        ibv_recv_wr = "struct ibv_recv_wr" { wr_id next sg_list num_sge }
    }
    unions! { out:
        ibv_async_event_element = "__typeof__(((struct ibv_async_event *)0)->element)" {
            cq qp srq port_num
        }
        ibv_send_wr_wr = "__typeof__(((struct ibv_send_wr *)0)->wr)" { rdma atomic }
    }
    // Nothing lists the constants of a module: they are read from its text.
    for line in DECLARED.lines() {
        let Some(constant) = line.strip_prefix("pub(crate) const ") else { continue };
        let (name, rest) = constant.split_once(": ").unwrap();
        let (_, value) = rest.trim_end_matches(';').split_once(" = ").unwrap();
        out.constant(name, value);
    }
    out
}
