//! Compares `sys` with the output of a C compiler for UCX's own headers, of two versions.
//!
//! Everything must equal the version that is declared. The older version may lack fields, constants and the tails
//! of structures. Its fields must have the same offsets; otherwise a zeroed structure of HMC would have another
//! meaning for it. `cargo xtask bindings` writes the texts.

use super::sys::*;
use core::mem::{offset_of, size_of};
use std::collections::BTreeMap;

const NEWEST: &str = include_str!("layout-1.22.0.txt");
const OLDEST: &str = include_str!("layout-1.13.1.txt");
const DECLARED: &str = include_str!("sys/constants.rs");

/// `type NAME`, `struct NAME` and so on, each with its figures.
type Layout = BTreeMap<String, Vec<String>>;

fn put(layout: &mut Layout, key: String, figures: Vec<String>) {
    assert!(layout.insert(key.clone(), figures).is_none(), "{key} stands there twice");
}

/// The lines of a committed text.
fn read(text: &str) -> Layout {
    let mut out = Layout::new();
    for line in text.lines().filter(|l| !l.starts_with('#')) {
        let mut words = line.split(' ');
        let key = [words.next().unwrap(), words.next().unwrap()].join(" ");
        put(&mut out, key, words.map(str::to_owned).collect());
    }
    out
}

/// The size of a structure's field.
fn field_size<S, F>(_: fn(&S) -> &F) -> usize {
    size_of::<F>()
}

/// The size of a union's field: of what it can be made from.
fn variant_size<U, F>(_: fn(F) -> U) -> usize {
    size_of::<F>()
}

macro_rules! integers {
    ($out:ident: $($name:ident)*) => { $(
        #[allow(unused_comparisons, reason = "some have no sign")]
        let sign = if $name::MIN < 0 { "signed" } else { "unsigned" };
        let figures = vec![size_of::<$name>().to_string(), sign.to_owned()];
        put(&mut $out, format!("type {}", stringify!($name)), figures);
    )* };
}

macro_rules! structures {
    ($out:ident: $($name:ident { $($field:ident)* })*) => { $(
        // A field that is not listed does not compile.
        let _ = |whole: $name| {
            let $name { $($field: _),* } = whole;
        };
        let figures = vec![size_of::<$name>().to_string()];
        put(&mut $out, format!("struct {}", stringify!($name)), figures);
        $(
            let size = field_size(|whole: &$name| &whole.$field);
            let figures = vec![offset_of!($name, $field).to_string(), size.to_string()];
            put(&mut $out, format!("field {}.{}", stringify!($name), stringify!($field)), figures);
        )*
    )* };
}

macro_rules! unions {
    ($out:ident: $($name:ident { $($field:ident)* })*) => { $(
        let figures = vec![size_of::<$name>().to_string()];
        put(&mut $out, format!("union {}", stringify!($name)), figures);
        $(
            let size = variant_size(|$field| $name { $field });
            let figures = vec![offset_of!($name, $field).to_string(), size.to_string()];
            put(&mut $out, format!("field {}.{}", stringify!($name), stringify!($field)), figures);
        )*
    )* };
}

/// What `sys` declares, as this compiler lays it out.
fn declared() -> Layout {
    let mut out = Layout::new();
    integers! { out:
        ucs_memory_type_t ucs_status_t ucs_thread_mode_t ucs_cpu_mask_t ucp_err_handling_mode_t
        ucp_tag_t ucp_datatype_t socklen_t sa_family_t
    }
    structures! { out:
        sockaddr { sa_family sa_data }
        sockaddr_storage { ss_family __ss_padding __ss_align }
        ucs_sock_addr_t { addr addrlen }
        ucs_cpu_set_t { ucs_bits }
        ucp_params_t {
            field_mask features request_size request_init request_cleanup tag_sender_mask
            mt_workers_shared estimated_num_eps estimated_num_ppn name node_local_id
        }
        ucp_lib_attr_t { field_mask max_thread_level }
        ucp_context_attr_t {
            field_mask request_size thread_mode memory_types name device_counter_size
        }
        ucp_worker_params_t {
            field_mask thread_mode cpu_mask events user_data event_fd flags name am_alignment client_id
        }
        ucp_worker_attr_t {
            field_mask thread_mode address_flags address address_length max_am_header name
            max_debug_string
        }
        ucp_ep_params_t {
            field_mask address err_mode err_handler user_data flags sockaddr conn_request name
            local_sockaddr
        }
        ucp_err_handler_t { cb arg }
        ucp_ep_attr_t { field_mask name local_sockaddr remote_sockaddr transports user_data }
        ucp_transports_t { entries num_entries entry_size }
        ucp_transport_entry_t { transport_name device_name }
        ucp_mem_map_params_t {
            field_mask address length flags prot memory_type exported_memh_buffer
        }
        ucp_mem_attr_t { field_mask address length mem_type }
        ucp_request_param_t {
            op_attr_mask flags request cb datatype user_data reply_buffer memory_type recv_info memh
            remote_datatype remote remote_count
        }
        ucp_tag_recv_info_t { sender_tag length }
        ucp_am_handler_param_t { field_mask id flags cb arg }
        ucp_am_recv_param_t { recv_attr reply_ep }
    }
    unions! { out:
        ucp_request_param_cb { send recv recv_stream recv_am }
        ucp_request_param_recv_info { length tag_info }
    }
    // Nothing lists the constants of a module: they are read from its text.
    for line in DECLARED.lines() {
        let Some(constant) = line.strip_prefix("pub(crate) const ") else { continue };
        let (name, rest) = constant.split_once(": ").unwrap();
        let (_, value) = rest.trim_end_matches(';').split_once(" = ").unwrap();
        put(&mut out, format!("const {name}"), vec![value.to_owned()]);
    }
    out
}

/// What of the headers is not declared as it is there.
fn misfits(declared: &Layout, headers: &Layout, older: bool) -> Vec<String> {
    let mut out = Vec::new();
    for (key, theirs) in headers {
        let size = |figures: &[String]| figures[0].parse::<usize>().unwrap();
        let fits = match declared.get(key) {
            None => false,
            Some(ours) if older && key.starts_with("struct ") => size(theirs) <= size(ours),
            Some(ours) => ours == theirs,
        };
        if !fits {
            out.push(format!("{key}: {theirs:?}, declared {:?}", declared.get(key)));
        }
    }
    out
}

#[test]
fn everything_is_as_in_the_headers_that_are_declared() {
    let (ours, theirs) = (declared(), read(NEWEST));
    let none: [String; 0] = [];
    assert_eq!(misfits(&ours, &theirs, false), none);
    // And nothing is declared that the headers do not have.
    assert_eq!(misfits(&theirs, &ours, false), none);
}

#[test]
fn an_older_library_finds_every_field_where_it_looks_for_it() {
    let none: [String; 0] = [];
    assert_eq!(misfits(&declared(), &read(OLDEST), true), none);
}

#[test]
fn a_planted_misfit_is_found() {
    let ours = read("struct s 16\nfield s.a 0 8\nfield s.b 8 8\nconst C 1\ntype t 1 signed\n");
    let misfits = |theirs: &str, older| misfits(&ours, &read(theirs), older).len();
    assert_eq!(misfits("# a comment\nstruct s 16\nfield s.b 8 8\nconst C 1\n", false), 0);
    assert_eq!(misfits("struct s 8\nfield s.a 0 8\n", true), 0);
    for (theirs, older) in [
        ("struct s 8\n", false),
        ("struct s 24\n", true),
        ("field s.a 0 4\n", true),
        ("field s.b 12 8\n", true),
        ("field s.c 8 8\n", true),
        ("const C 2\n", true),
        ("const D 1\n", true),
        ("type t 1 unsigned\n", true),
        ("type t 4 signed\n", true),
    ] {
        assert_eq!(misfits(theirs, older), 1, "{theirs}");
    }
}
