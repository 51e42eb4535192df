//! Control sockets of this host: whose they are, and that nobody else's is touched.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use hmc_std::{ErrorKind, Session};
use hmc_tests::actor::Actor;
use hmc_tests::env::{TempDir, skipped};
use hmc_tests::listening::Listening as _;
use hmc_tests::raw_frames::is_closed_after;

const ACTOR: &str = env!("CARGO_BIN_EXE_actor");

#[test]
fn a_folder_that_is_not_ours_alone_is_refused() {
    let dir = TempDir::new();
    let open = dir.path().join("open");
    std::fs::create_dir(&open).unwrap();
    for mode in [0o755, 0o710, 0o701, 0o770] {
        std::fs::set_permissions(&open, std::fs::Permissions::from_mode(mode)).unwrap();
        let e = Session::builder(0).uds(&open).start().expect_err("open to others");
        assert_eq!(e.kind(), ErrorKind::InvalidConfig, "{e}");
        assert!(e.to_string().contains("0700"), "{e}");
    }
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o700)).unwrap();
    let link = dir.path().join("link");
    symlink(&open, &link).unwrap();
    let e = Session::builder(0).uds(&link).start().expect_err("a link may lead anywhere");
    assert_eq!(e.kind(), ErrorKind::InvalidConfig, "{e}");
    let file = dir.path().join("file");
    std::fs::write(&file, b"").unwrap();
    Session::builder(0).uds(&file).start().expect_err("not a folder");
    let long = dir.path().join("x".repeat(120));
    let e = Session::builder(0).uds(&long).start().expect_err("too long");
    assert_eq!(e.kind(), ErrorKind::InvalidConfig, "{e}");
    assert!(e.to_string().contains("107"), "it names the limit: {e}");
    assert!(!long.exists(), "nothing is left behind");
    let elsewhere = dir.path().join("elsewhere");
    symlink(&elsewhere, open.join("hmc_ctrl_rank_1.lock")).unwrap();
    let e = Session::builder(1).uds(&open).start().expect_err("the lock is a link");
    assert_eq!(e.kind(), ErrorKind::Io, "{e}");
    assert!(!elsewhere.exists(), "it was not followed");
    let _session = Session::builder(0).uds(&open).start().expect("ours alone");
    let lock = std::fs::metadata(open.join("hmc_ctrl_rank_0.lock")).unwrap();
    assert_eq!(
        lock.permissions().mode() & 0o777,
        0o600,
        "whoever is next may lock it, if it is us"
    );
}

#[test]
fn a_live_socket_is_never_taken_over_and_a_stale_one_is() {
    let dir = TempDir::new();
    let path = dir.path().join("hmc_ctrl_rank_3.sock");
    // A program that is no session listens there.
    let other = UnixListener::bind(&path).unwrap();
    let e = Session::builder(3).uds(dir.path()).start().expect_err("taken");
    assert_eq!(e.kind(), ErrorKind::DuplicateRank, "{e}");
    UnixStream::connect(&path).expect("it still listens");
    drop(other);
    assert!(path.exists(), "its file stays behind, stale");
    // A session killed leaves such a file too.
    let mut first = Actor::session(ACTOR, &format!("rank=3 uds={}", dir.path().display()));
    let e = Session::builder(3).uds(dir.path()).start().expect_err("taken");
    assert_eq!(e.kind(), ErrorKind::DuplicateRank, "{e}");
    let said = first.request("echo still here");
    assert_eq!(said, "still here");
    let _ = first.kill();
    drop(first);
    assert!(path.exists());
    let s = Session::builder(3).uds(dir.path()).start().expect("stale");
    assert_eq!(s.uds_paths().into_iter().next().as_deref(), Some(path.as_path()));
    drop(s);
    assert!(!path.exists(), "an orderly end leaves nothing");
    // A link in the socket's place is replaced, not followed.
    let victim = dir.path().join("victim");
    std::fs::write(&victim, b"precious").unwrap();
    symlink(&victim, &path).unwrap();
    let s = Session::builder(3).uds(dir.path()).start().expect("a link is no socket");
    UnixStream::connect(&path).expect("a socket is there now");
    assert_eq!(std::fs::read(&victim).unwrap(), b"precious");
    drop(s);
    assert_eq!(std::fs::read(&victim).unwrap(), b"precious");
}

/// Even where the folder's mode was changed afterwards, the kernel's word on the peer counts.
#[test]
fn another_users_process_is_refused() {
    if !rustix::process::geteuid().is_root() {
        return skipped("only root can become another user");
    }
    let Some(dir) = TempDir::for_all_users() else {
        return skipped("other users can enter no folder for temporary files");
    };
    let set_mode = |mode| {
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    set_mode(0o700);
    let server = Session::builder(1).uds(dir.path()).start().unwrap();
    let path = server.uds_paths().into_iter().next().unwrap();
    set_mode(0o755);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).unwrap();
    // A user that this program may not even be readable for: a shell without files of ours.
    let script = "import socket,sys\ns=socket.socket(socket.AF_UNIX)\ns.settimeout(5)\n\
                  s.connect(sys.argv[1])\nprint('closed' if s.recv(1)==b'' else 'open')";
    let run =
        Command::new("python3").args(["-c", script]).arg(&path).uid(65534).gid(65534).output();
    let Ok(out) = run else { return skipped("there is no python3 to be another user with") };
    let said = String::from_utf8_lossy(&out.stdout).trim().to_owned();
    let why = String::from_utf8_lossy(&out.stderr).trim().to_owned();
    assert!(said == "closed" || why.contains("Reset"), "another user was let in: {said} {why}");
    // Ours is served.
    let mut own = UnixStream::connect(&path).unwrap();
    own.set_read_timeout(Some(hmc_tests::raw_frames::PATIENCE)).unwrap();
    use std::io::Write as _;
    own.write_all(b"no hello at all, and long enough").unwrap();
    assert!(is_closed_after(&mut own));
}
