//! Compares `sys` with what a C compiler makes of `infiniband/verbs.h`.
//!
//! `layout-44.0.txt` is what [`program`] printed with the header of libibverbs 44.0 on x86-64; those of 56.1 and 65.0
//! give the same, but for the end of `ibv_port_attr`. Where a C compiler and the header are installed (libibverbs-dev),
//! the program is run again.

mod declared;

use self::declared::both;
use super::sys::*;
use core::mem::{offset_of, size_of};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::Command;

const COMMITTED: &str = include_str!("layout-44.0.txt");

/// `type NAME`, `struct NAME`, `field STRUCT.FIELD`, `const NAME`, each with its figures.
type Layout = BTreeMap<String, Vec<String>>;

fn put(layout: &mut Layout, key: String, figures: Vec<String>) {
    assert!(layout.insert(key.clone(), figures).is_none(), "{key} is there twice");
}

/// Reads the lines of a text.
fn read(text: &str) -> Layout {
    let mut out = Layout::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split(' ');
        let key = [words.next().unwrap(), words.next().unwrap()].join(" ");
        put(&mut out, key, words.map(str::to_owned).collect());
    }
    out
}

/// Returns the C program that prints the layout of the installed header.
fn program(body: &str) -> String {
    format!(
        "#include <stdio.h>\n#include <stddef.h>\n#include <infiniband/verbs.h>\nint main(void) {{\n{body}return 0;\n}}\n"
    )
}

/// Returns what is declared and not as a C compiler has it. Later headers may have a longer `ibv_port_attr`.
fn misfits(declared: &Layout, header: &Layout) -> Vec<String> {
    let may_grow = |key: &str| key == "struct ibv_port_attr";
    let number = |figures: &[String]| figures[0].parse::<usize>().unwrap();
    let mut out = Vec::new();
    for (key, ours) in declared {
        let fits = match header.get(key) {
            Some(theirs) if may_grow(key) => number(theirs) >= number(ours),
            theirs => theirs == Some(ours),
        };
        if !fits {
            out.push(format!("{key}: declared {ours:?}, in C {:?}", header.get(key)));
        }
    }
    out
}

/// Mutexes have another size on other processors: the committed figures are those of x86-64.
#[cfg(target_arch = "x86_64")]
#[test]
fn everything_is_as_in_the_header_of_44_0() {
    let (ours, theirs) = (both().declared, read(COMMITTED));
    let none: [String; 0] = [];
    assert_eq!(misfits(&ours, &theirs), none);
    assert_eq!(ours.keys().collect::<Vec<_>>(), theirs.keys().collect::<Vec<_>>());
}

/// Offsets that other code was seen to depend on (data of three releases of the header), through all structures.
#[cfg(target_arch = "x86_64")]
#[test]
fn nested_fields_are_where_a_provider_looks_for_them() {
    let offsets = [
        (offset_of!(ibv_context, ops.alloc_mw), 64),
        (offset_of!(ibv_context, ops.bind_mw), 72),
        (offset_of!(ibv_context, ops.dealloc_mw), 80),
        (offset_of!(ibv_context, ops.poll_cq), 96),
        (offset_of!(ibv_context, ops.req_notify_cq), 104),
        (offset_of!(ibv_context, ops.post_srq_recv), 168),
        (offset_of!(ibv_context, ops.post_send), 208),
        (offset_of!(ibv_context, ops.post_recv), 216),
        (offset_of!(ibv_context, abi_compat), 320),
        (offset_of!(ibv_send_wr, wr.rdma.remote_addr), 40),
        (offset_of!(ibv_send_wr, wr.rdma.rkey), 48),
        (offset_of!(ibv_send_wr, wr.atomic.compare_add), 48),
        (offset_of!(ibv_send_wr, wr.atomic.swap), 56),
        (offset_of!(ibv_send_wr, wr.atomic.rkey), 64),
        (offset_of!(ibv_send_wr, bind_mw.rkey), 88),
        (offset_of!(ibv_send_wr, bind_mw.bind_info.mr), 96),
        (offset_of!(ibv_send_wr, bind_mw.bind_info.addr), 104),
        (offset_of!(ibv_send_wr, bind_mw.bind_info.length), 112),
        (offset_of!(ibv_send_wr, bind_mw.bind_info.mw_access_flags), 120),
        (offset_of!(ibv_qp_attr, ah_attr.grh.sgid_index), 76),
        (offset_of!(ibv_qp_attr, ah_attr.dlid), 80),
        (offset_of!(ibv_qp_attr, ah_attr.port_num), 86),
        (size_of::<ibv_context>(), 328),
        (size_of::<ibv_qp>(), 160),
        (size_of::<ibv_cq>(), 128),
        (size_of::<ibv_srq>(), 128),
        (size_of::<ibv_send_wr>(), 128),
        (size_of::<ibv_wc>(), 48),
    ];
    for (n, (ours, known)) in offsets.into_iter().enumerate() {
        assert_eq!(ours, known, "{n}");
    }
}

#[test]
fn everything_is_as_in_the_installed_header() {
    let both = both();
    let folder = std::env::temp_dir().join(format!("hmc-verbs-layout-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (source, binary) = (folder.join("layout.c"), folder.join("layout"));
    std::fs::write(&source, program(&both.program)).unwrap();
    let compiled = Command::new("cc").arg("-w").arg(&source).arg("-o").arg(&binary).output();
    let skipped = match &compiled {
        Err(e) => Some(format!("no C compiler (cc: {e})")),
        Ok(output) if !output.status.success() => {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let is_missing = said.contains("infiniband/verbs.h: No such file");
            assert!(is_missing, "the program does not compile: {said}");
            Some("infiniband/verbs.h is not installed (apt install libibverbs-dev)".to_owned())
        }
        Ok(_) => None,
    };
    let printed = skipped.is_none().then(|| Command::new(&binary).output().unwrap());
    std::fs::remove_dir_all(&folder).unwrap();
    let Some(printed) = printed else {
        // The way of `hmc_tests::env::skipped`: a line that people and scripts see.
        let line = format!("\nSKIPPED: {}\n", skipped.unwrap_or_default());
        return std::io::stdout().write_all(line.as_bytes()).unwrap();
    };
    let printed = String::from_utf8(printed.stdout).unwrap();
    let none: [String; 0] = [];
    assert_eq!(misfits(&both.declared, &read(&printed)), none, "{printed}");
}

#[test]
fn a_planted_misfit_is_found() {
    let ours =
        read("struct s 16\nfield s.a 0 8\nconst C 1\ntype t 4 signed\nstruct ibv_port_attr 52\n");
    let rest = "const C 1\ntype t 4 signed\n";
    for (theirs, found) in [
        ("struct s 16\nfield s.a 0 8\nstruct ibv_port_attr 52\nfield s.b 8 8\n", 0),
        ("struct s 16\nfield s.a 0 8\nstruct ibv_port_attr 56\n", 0),
        ("struct s 16\nfield s.a 0 8\nstruct ibv_port_attr 48\n", 1),
        ("struct s 24\nfield s.a 0 8\nstruct ibv_port_attr 52\n", 1),
        ("struct s 16\nfield s.a 0 4\nstruct ibv_port_attr 52\n", 1),
        ("struct s 16\nfield s.a 4 8\nstruct ibv_port_attr 52\n", 1),
        ("struct s 16\nstruct ibv_port_attr 52\n", 1),
    ] {
        assert_eq!(misfits(&ours, &read(&format!("{rest}{theirs}"))).len(), found, "{theirs}");
    }
}
