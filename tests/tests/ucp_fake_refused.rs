//! A libucp that cannot be used is an answer that says why, and is not remembered. One test only: the first library that
//! can be used stays for the process.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::path::{Path, PathBuf};

use hmc_hw::ucx::library::{Library, LoadError, Search, Version};
use hmc_sim::vendor::library::without;
use hmc_tests::env::TempDir;
use hmc_tests::fake_ucp::{file, set_in};

fn load(named: &Path) -> Result<&'static Library, LoadError> {
    Library::load(&Search { named: Some(named.to_owned()), ..Search::default() })
}

/// A copy of the fake libucp in a folder of its own, without some symbols.
fn copy(dir: &TempDir, name: &str, lacking: &[&str]) -> PathBuf {
    let folder = dir.path().join(name);
    std::fs::create_dir(&folder).unwrap();
    without(&file(), lacking, &folder).unwrap()
}

#[test]
fn a_library_that_cannot_be_used_is_refused_with_its_reason() {
    let dir = TempDir::new();
    let nowhere = dir.path().join("libucp.so.0");
    let Err(LoadError::NotFound { tried }) = load(&nowhere) else { panic!("there is none") };
    assert_eq!(tried.first().unwrap().0, nowhere);

    let lacking = ["ucp_worker_progress", "ucp_ep_flush_nbx", "ucp_put_nbx"];
    let older = copy(&dir, "lacking", &lacking);
    let e = load(&older).expect_err("calls are missing");
    // All of them, in the order of the table.
    assert_eq!(e, LoadError::Incomplete { path: older, missing: lacking.to_vec() });
    let text = e.to_string();
    assert!(text.contains("no ucp_worker_progress, ucp_ep_flush_nbx, ucp_put_nbx;"), "{text}");
    assert!(text.contains("install UCX 1.10.0 or later"), "{text}");

    for (name, [major, minor, release]) in [("old", [1, 9, 2]), ("new", [2, 0, 0])] {
        let other = copy(&dir, name, &[]);
        let number = |n: u32| u64::from(n);
        let numbers = [
            ("version_major", number(major)),
            ("version_minor", number(minor)),
            ("version_release", number(release)),
        ];
        set_in(&other, &numbers);
        let e = load(&other).expect_err("another version");
        let found = Version { major, minor, release };
        assert_eq!(e, LoadError::Version { path: other, found });
        assert!(e.to_string().contains(&format!("is UCX {found}, and 1.10.0")), "{e}");
    }

    // The oldest that will do, without what only some releases have; none of the failures is remembered.
    let optional = ["ucp_ep_print_info", "ucp_ep_query", "ucp_lib_query", "ucp_rkey_ptr"];
    let oldest = copy(&dir, "oldest", &optional);
    set_in(&oldest, &[("version_minor", 10), ("version_release", 0)]);
    let library = load(&oldest).unwrap();
    assert_eq!(library.version(), Version { major: 1, minor: 10, release: 0 });
    assert_eq!(library.path(), oldest);
    // And it stays.
    assert_eq!(load(&nowhere).unwrap().path(), oldest);
}
