//! A libucp that cannot be used is an answer that says why, and is not remembered. One test only: the first library that
//! can be used stays for the process.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::path::{Path, PathBuf};

use hmc_hw::ucx::context::Context;
use hmc_hw::ucx::library::{Library, LoadError, Search, Version};
use hmc_hw::ucx::settings::Settings;
use hmc_sim::vendor::library::without;
use hmc_tests::env::TempDir;
use hmc_tests::fake_ucp::{calls_in, file, set_in};

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
    let (first, why) = tried.first().unwrap();
    assert_eq!(first, &nowhere);
    // The loader's reason, without the file's name.
    assert_eq!(why, "cannot open shared object file: No such file or directory");

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
    // By another name: what is loaded already keeps its own.
    let link = dir.path().join("link.so");
    std::os::unix::fs::symlink(&oldest, &link).unwrap();
    let library = load(&link).unwrap();
    assert_eq!(library.version(), Version { major: 1, minor: 10, release: 0 });
    assert_eq!(library.path(), oldest);
    // Such a release has a cache of registrations below UCP, which is left out where there is an RDMA device. The other settings are
    // those of shared memory and two of TCP.
    let devices = std::fs::read_dir("/sys/class/infiniband");
    let has_rdma = devices.is_ok_and(|mut devices| devices.next().is_some());
    drop(Context::new(library, &Settings::default()).unwrap());
    assert_eq!(calls_in(&oldest, "ucp_config_modify"), 3 + u64::from(has_rdma));
    // And it stays.
    assert_eq!(load(&nowhere).unwrap().path(), oldest);
}
