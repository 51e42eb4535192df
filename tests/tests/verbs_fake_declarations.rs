//! What hmc-hw declares of libibverbs is what the fake libibverbs, which was written from the manual by itself, has: sizes, offsets,
//! constants and signatures.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::collections::BTreeMap;
use std::mem::{align_of, offset_of, size_of};

use hmc_vendor_ibverbs::abi;
use hmc_vendor_ibverbs::api::SIGNATURES;

#[allow(missing_debug_implementations, unreachable_pub, reason = "they are hmc-hw's own")]
#[path = "../../hmc-hw/src/verbs/sys/mod.rs"]
mod sys;

const FUNCTIONS: &str = include_str!("../../hmc-hw/src/verbs/functions.rs");
const OURS: [&str; 2] = [
    include_str!("../../hmc-hw/src/verbs/sys/types.rs"),
    include_str!("../../hmc-hw/src/verbs/sys/constants.rs"),
];
const THEIRS: [&str; 1] = [include_str!("../../hmc-sim/vendor/ibverbs/src/abi/constants.rs")];

/// The size of a structure's field.
fn field_size<S, F>(_: fn(&S) -> &F) -> usize {
    size_of::<F>()
}

/// The same structures: one whose field is left out here does not compile.
macro_rules! same {
    ($($name:ident { $($field:ident)* })*) => { $(
        let _ = |whole: sys::$name| { let sys::$name { $($field: _),* } = whole; };
        let _ = |whole: abi::$name| { let abi::$name { $($field: _),* } = whole; };
        let name = stringify!($name);
        assert_eq!(size_of::<sys::$name>(), size_of::<abi::$name>(), "{name}");
        assert_eq!(align_of::<sys::$name>(), align_of::<abi::$name>(), "{name}");
        $(
            let field = concat!(stringify!($name), ".", stringify!($field));
            assert_eq!(offset_of!(sys::$name, $field), offset_of!(abi::$name, $field), "{field}");
            assert_eq!(
                field_size(|whole: &sys::$name| &whole.$field),
                field_size(|whole: &abi::$name| &whole.$field),
                "{field}"
            );
        )*
    )* };
}

#[test]
fn structures_are_the_same() {
    same! {
        ibv_gid_entry { gid gid_index port_num gid_type ndev_ifindex }
        ibv_device { _ops node_type transport_type name dev_name dev_path ibdev_path }
        ibv_context_ops {
            _compat_query_device _compat_query_port _compat_alloc_pd _compat_dealloc_pd
            _compat_reg_mr _compat_rereg_mr _compat_dereg_mr alloc_mw bind_mw dealloc_mw
            _compat_create_cq poll_cq req_notify_cq _compat_cq_event _compat_resize_cq
            _compat_destroy_cq _compat_create_srq _compat_modify_srq _compat_query_srq
            _compat_destroy_srq post_srq_recv _compat_create_qp _compat_query_qp
            _compat_modify_qp _compat_destroy_qp post_send post_recv _compat_create_ah
            _compat_destroy_ah _compat_attach_mcast _compat_detach_mcast _compat_async_event
        }
        ibv_context { device ops cmd_fd async_fd num_comp_vectors mutex abi_compat }
        ibv_async_event { element event_type }
        ibv_device_attr {
            fw_ver node_guid sys_image_guid max_mr_size page_size_cap vendor_id vendor_part_id
            hw_ver max_qp max_qp_wr device_cap_flags max_sge max_sge_rd max_cq max_cqe max_mr
            max_pd max_qp_rd_atom max_ee_rd_atom max_res_rd_atom max_qp_init_rd_atom
            max_ee_init_rd_atom atomic_cap max_ee max_rdd max_mw max_raw_ipv6_qp max_raw_ethy_qp
            max_mcast_grp max_mcast_qp_attach max_total_mcast_qp_attach max_ah max_fmr
            max_map_per_fmr max_srq max_srq_wr max_srq_sge max_pkeys local_ca_ack_delay
            phys_port_cnt
        }
        ibv_port_attr {
            state max_mtu active_mtu gid_tbl_len port_cap_flags max_msg_sz bad_pkey_cntr
            qkey_viol_cntr pkey_tbl_len lid sm_lid lmc max_vl_num sm_sl subnet_timeout
            init_type_reply active_width active_speed phys_state link_layer flags port_cap_flags2
        }
        ibv_pd { context handle }
        ibv_mr { context pd addr length handle lkey rkey }
        ibv_mw { context pd rkey handle r#type }
        ibv_mw_bind_info { mr addr length mw_access_flags }
        ibv_mw_bind { wr_id send_flags bind_info }
        ibv_comp_channel { context fd refcnt }
        ibv_cq {
            context channel cq_context handle cqe mutex cond comp_events_completed
            async_events_completed
        }
        ibv_srq { context srq_context pd handle mutex cond events_completed }
        ibv_srq_init_attr { srq_context attr }
        ibv_srq_attr { max_wr max_sge srq_limit }
        ibv_qp {
            context qp_context pd send_cq recv_cq srq handle qp_num state qp_type mutex cond
            events_completed
        }
        ibv_qp_cap { max_send_wr max_recv_wr max_send_sge max_recv_sge max_inline_data }
        ibv_qp_init_attr { qp_context send_cq recv_cq srq cap qp_type sq_sig_all }
        ibv_global_route { dgid flow_label sgid_index hop_limit traffic_class }
        ibv_ah_attr { grh dlid sl src_path_bits static_rate is_global port_num }
        ibv_qp_attr {
            qp_state cur_qp_state path_mtu path_mig_state qkey rq_psn sq_psn dest_qp_num
            qp_access_flags cap ah_attr alt_ah_attr pkey_index alt_pkey_index en_sqd_async_notify
            sq_draining max_rd_atomic max_dest_rd_atomic min_rnr_timer port_num timeout retry_cnt
            rnr_retry alt_port_num alt_timeout rate_limit
        }
        ibv_sge { addr length lkey }
        ibv_send_wr_rdma { remote_addr rkey }
        ibv_send_wr_atomic { remote_addr compare_add swap rkey }
        ibv_recv_wr { wr_id next sg_list num_sge }
    }
}

/// Two members of one type in a C union are one field in hmc-hw.
#[test]
fn unions_are_the_same() {
    macro_rules! at {
        ($ours:ident.$field:ident, $theirs:ident.$other:ident) => {
            assert_eq!(
                offset_of!(sys::$ours, $field),
                offset_of!(abi::$theirs, $other),
                concat!(stringify!($ours), ".", stringify!($field))
            );
        };
    }
    at!(ibv_wc.wr_id, ibv_wc.wr_id);
    at!(ibv_wc.status, ibv_wc.status);
    at!(ibv_wc.opcode, ibv_wc.opcode);
    at!(ibv_wc.vendor_err, ibv_wc.vendor_err);
    at!(ibv_wc.byte_len, ibv_wc.byte_len);
    at!(ibv_wc.imm_data, ibv_wc.imm);
    at!(ibv_wc.qp_num, ibv_wc.qp_num);
    at!(ibv_wc.src_qp, ibv_wc.src_qp);
    at!(ibv_wc.wc_flags, ibv_wc.wc_flags);
    at!(ibv_wc.pkey_index, ibv_wc.pkey_index);
    at!(ibv_wc.slid, ibv_wc.slid);
    at!(ibv_wc.sl, ibv_wc.sl);
    at!(ibv_wc.dlid_path_bits, ibv_wc.dlid_path_bits);
    at!(ibv_send_wr.wr_id, ibv_send_wr.wr_id);
    at!(ibv_send_wr.next, ibv_send_wr.next);
    at!(ibv_send_wr.sg_list, ibv_send_wr.sg_list);
    at!(ibv_send_wr.num_sge, ibv_send_wr.num_sge);
    at!(ibv_send_wr.opcode, ibv_send_wr.opcode);
    at!(ibv_send_wr.send_flags, ibv_send_wr.send_flags);
    at!(ibv_send_wr.imm_data, ibv_send_wr.imm);
    at!(ibv_send_wr.wr, ibv_send_wr.wr);
    at!(ibv_send_wr.qp_type, ibv_send_wr.qp_type);
    at!(ibv_send_wr.bind_mw, ibv_send_wr.bind);
    at!(ibv_send_wr_bind_mw.mw, ibv_send_wr_bind.mw);
    at!(ibv_send_wr_bind_mw.rkey, ibv_send_wr_bind.rkey);
    at!(ibv_send_wr_bind_mw.bind_info, ibv_send_wr_bind.bind_info);
    let sizes = [
        (size_of::<sys::ibv_wc>(), size_of::<abi::ibv_wc>()),
        (size_of::<sys::ibv_send_wr>(), size_of::<abi::ibv_send_wr>()),
        (size_of::<sys::ibv_send_wr_bind_mw>(), size_of::<abi::ibv_send_wr_bind_mw>()),
        (size_of::<sys::ibv_gid>(), size_of::<abi::ibv_gid>()),
        (align_of::<sys::ibv_gid>(), align_of::<abi::ibv_gid>()),
        (size_of::<sys::ibv_async_event_element>(), size_of::<abi::ibv_async_event_element>()),
    ];
    for (n, (ours, theirs)) in sizes.into_iter().enumerate() {
        assert_eq!(ours, theirs, "{n}");
    }
}

/// Constants and names of types: `NAME` or `type NAME`, with type and value.
fn declared(texts: &[&str]) -> BTreeMap<String, String> {
    let mut out = BTreeMap::new();
    for line in texts.iter().flat_map(|text| text.lines()) {
        let line = line.trim_start_matches("pub(crate) ").trim_start_matches("pub ");
        let Some((left, value)) = line.strip_suffix(';').and_then(|l| l.split_once(" = ")) else {
            continue;
        };
        if let Some((name, kind)) = left.strip_prefix("const ").and_then(|l| l.split_once(": ")) {
            out.insert(name.to_owned(), format!("{kind} {}", number(value)));
        } else if left.starts_with("type ") {
            out.insert(left.to_owned(), value.to_owned());
        }
    }
    out
}

/// `1 << 17`, `0x3FF0_0000`, or a number.
fn number(text: &str) -> i64 {
    let plain = text.replace('_', "");
    if let Some((one, bits)) = plain.split_once(" << ") {
        return one.parse::<i64>().unwrap() << bits.parse::<u32>().unwrap();
    }
    match plain.strip_prefix("0x") {
        Some(digits) => i64::from_str_radix(digits, 16).unwrap(),
        None => plain.parse().unwrap(),
    }
}

#[test]
fn constants_are_the_same() {
    let (ours, theirs) = (declared(&OURS), declared(&THEIRS));
    let mut common = 0;
    for (name, value) in &ours {
        let Some(other) = theirs.get(name) else { continue };
        // A GID's type is an enumeration in one structure, and a number of 32 bits in the other.
        let fits = value == other
            || name.starts_with("IBV_GID_TYPE_")
                && value.split(' ').nth(1) == other.split(' ').nth(1);
        assert!(fits, "{name}: {value}, and {other}");
        common += 1;
    }
    assert!(common >= 150, "{common} of {} and {}", ours.len(), theirs.len());
    // What the fake needs beside that no code of hmc-hw names.
    let unknown: Vec<_> = theirs.keys().filter(|name| !ours.contains_key(*name)).collect();
    let foreign = [
        "IBV_ACCESS_FLUSH_GLOBAL",
        "IBV_ACCESS_FLUSH_PERSISTENT",
        "IBV_ACCESS_OPTIONAL_RANGE",
        "IBV_EVENT_DEVICE_SPEED_CHANGE",
        "IBV_WC_ATOMIC_WRITE",
        "IBV_WC_FLUSH",
        "IBV_WC_IP_CSUM_OK",
        "IBV_WC_TSO",
        "IBV_WR_ATOMIC_WRITE",
        "IBV_WR_DRIVER1",
        "IBV_WR_FLUSH",
        "IBV_WR_TSO",
    ];
    assert_eq!(unknown, foreign);
}

/// Functions of a text: their names, with the types of their arguments and of their result.
fn functions(text: &str) -> BTreeMap<String, (Vec<String>, String)> {
    let flat = text.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    let mut out = BTreeMap::new();
    for part in flat.split("; ").filter_map(|part| part.rsplit_once("fn ")).map(|(_, part)| part) {
        let Some((name, rest)) = part.split_once('(') else { continue };
        let Some((arguments, result)) = rest.split_once(')') else { continue };
        let types = arguments.split(", ").filter_map(|a| a.split_once(": "));
        let types = types.map(|(_, kind)| kind.trim_end_matches(',').trim().to_owned()).collect();
        let result = result.trim().trim_start_matches("-> ").trim_end_matches(';');
        let result = if result.is_empty() { "()" } else { result };
        out.insert(name.to_owned(), (types, result.to_owned()));
    }
    out
}

#[test]
fn signatures_are_the_same() {
    let ours = functions(FUNCTIONS);
    let mut common = 0;
    for (name, arguments, result) in SIGNATURES {
        let Some((types, returned)) = ours.get(*name) else { continue };
        // It is exported for the older structure, which is the beginning of the other.
        let types = types.iter().map(|kind| match (*name, kind.as_str()) {
            ("ibv_query_port", "*mut ibv_port_attr") => "*mut _compat_ibv_port_attr",
            (_, kind) => kind,
        });
        let types: Vec<_> = types.collect();
        assert_eq!((types.as_slice(), returned.as_str()), (*arguments, *result), "{name}");
        common += 1;
    }
    assert_eq!(size_of::<abi::_compat_ibv_port_attr>(), 48);
    // `ibv_reg_mr_iova` is what libraries before 28 have in its place.
    let unknown: Vec<_> =
        ours.keys().filter(|name| !SIGNATURES.iter().any(|(own, ..)| own == name)).collect();
    assert_eq!(unknown, ["ibv_reg_mr_iova"]);
    assert_eq!(common + 1, ours.len());
}
