//! Files of all kinds go there and come back, between real processes, over every transport.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::as_conversions,
    clippy::arithmetic_side_effects,
    reason = "tests may panic"
)]

mod common;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt, symlink};
use std::time::{Duration, SystemTime};

use common::{Process, Scratch, Server, hmc, names, noise, run};

#[test]
fn files_of_all_sizes_go_there_and_come_back() {
    let s = Scratch::new();
    let (from, to, back) = (s.dir("from"), s.dir("to"), s.dir("back"));
    let server = Server::start(
        &s,
        [OsStr::new("--into"), to.as_os_str(), "--share".as_ref(), to.as_os_str()],
    );
    let slot = (512 << 10) - 4096;
    for via in ["shm", "tcp"] {
        for len in [0, 1, 4095, 4096, 4097, slot - 1, slot, slot + 1, 9_000_001, 20 << 20] {
            let name = format!("{via}-{len}");
            let path = s.file(from.join(&name), len);
            let put = server.put(via, &path).ran().well().json();
            assert_eq!(put["bytes"], len);
            assert_eq!(put["transport"], via);
            let got = server.event();
            assert_eq!((&got["event"], &got["transport"]), (&"received".into(), &via.into()));
            assert_eq!(got["crc32c"], put["crc32c"], "summed at both ends");
            assert!(std::fs::read(to.join(&name)).unwrap() == noise(len), "{name} differs");
            let get = server.get(via, &name, &back).ran().well().json();
            assert_eq!(get["crc32c"], put["crc32c"]);
            assert_eq!(server.event()["event"], "sent");
            assert!(std::fs::read(back.join(&name)).unwrap() == noise(len), "{name} differs");
        }
    }
    assert!(names(&to).iter().all(|n| !n.starts_with('.')), "partial files are left");
}

#[test]
fn mode_and_time_arrive_and_many_files_go_in_one_run() {
    let s = Scratch::new();
    let to = s.dir("to");
    let server = Server::start(&s, ["--into".as_ref(), to.as_os_str()]);
    let (a, b) = (s.file("a", 100), s.file("b", 200));
    std::fs::set_permissions(&a, PermissionsExt::from_mode(0o640)).unwrap();
    let time = SystemTime::UNIX_EPOCH + Duration::new(1_234_567_890, 123_456_789);
    std::fs::File::options().write(true).open(&a).unwrap().set_modified(time).unwrap();
    let out =
        Process::start(hmc().arg("put").args([&a, &b]).args(server.reach("auto"))).ran().well();
    assert_eq!(out.stdout.lines().count(), 2);
    assert!(out.stdout.contains("over shm"), "auto takes shm on one host: {}", out.stdout);
    let stat = std::fs::metadata(to.join("a")).unwrap();
    assert_eq!(stat.mode() & 0o777, 0o640);
    assert_eq!(stat.modified().unwrap(), time);
    assert_eq!(names(&to), ["a", "b"]);
}

#[test]
fn a_huge_sparse_file_stays_sparse() {
    const GIB: u64 = 1 << 30;
    let s = Scratch::new();
    let (to, back) = (s.dir("to"), s.dir("back"));
    let server = Server::start(
        &s,
        [OsStr::new("--into"), to.as_os_str(), "--share".as_ref(), to.as_os_str()],
    );
    let path = s.path("sparse");
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(5 * GIB).unwrap();
    let spots = [(0, 5000), (GIB + 4096, 70_000), (4 * GIB + GIB / 2, 1_000_000)];
    for (at, len) in spots {
        file.write_all_at(&noise(len), at).unwrap();
    }
    for via in ["shm", "tcp"] {
        let put = server.put(via, &path).ran().well().json();
        assert_eq!(put["bytes"], 5 * GIB);
        assert_eq!(server.event()["crc32c"], put["crc32c"]);
        server.get(via, "sparse", &back).ran().well();
        server.event();
        for dir in [&to, &back] {
            let copy = std::fs::File::open(dir.join("sparse")).unwrap();
            let stat = copy.metadata().unwrap();
            assert_eq!(stat.len(), 5 * GIB);
            assert!(stat.blocks() * 512 < 8 << 20, "{} blocks are allocated", stat.blocks());
            for (at, len) in spots {
                let mut bytes = vec![0; len];
                copy.read_exact_at(&mut bytes, at).unwrap();
                assert!(bytes == noise(len), "the bytes at {at} differ");
            }
        }
        std::fs::remove_file(to.join("sparse")).unwrap();
        std::fs::remove_file(back.join("sparse")).unwrap();
    }
}

#[test]
fn names_are_kept_whatever_they_are() {
    let s = Scratch::new();
    let (from, to) = (s.dir("from"), s.dir("to"));
    let server = Server::start(&s, ["--into".as_ref(), to.as_os_str()]);
    let long = "n".repeat(255);
    let all: [&[u8]; 6] = [
        b"with space",
        "\u{fc}ml\u{e4}ut".as_bytes(),
        b"\xff\xfe",
        b".hidden",
        b"-dash",
        long.as_bytes(),
    ];
    for name in all {
        let path = s.file(from.join(OsStr::from_bytes(name)), 10);
        server.put("shm", &path).ran().well();
        assert_eq!(std::fs::read(to.join(OsStr::from_bytes(name))).unwrap(), noise(10));
    }
    run([OsStr::new("put"), from.join("..").as_os_str()]).badly(&["it is a folder"]);
}

#[test]
fn nothing_is_overwritten_without_the_flag() {
    let s = Scratch::new();
    let to = s.dir("to");
    std::fs::write(to.join("a"), b"old").unwrap();
    // A link to the outside must be replaced, not followed.
    let outside = s.file("outside", 5);
    symlink(&outside, to.join("l")).unwrap();
    let (a, l) = (s.file("a", 100), s.file("l", 100));
    {
        let server = Server::start(&s, [OsStr::new("--into"), to.as_os_str()]);
        server.put("shm", &a).ran().badly(&["exists", "--overwrite"]);
        server.put("shm", &l).ran().badly(&["exists"]);
        assert_eq!(server.event()["event"], "failed");
        assert_eq!(std::fs::read(to.join("a")).unwrap(), b"old");
    }
    let server = Server::start(&s, [OsStr::new("--overwrite"), "--into".as_ref(), to.as_os_str()]);
    server.put("shm", &a).ran().well();
    server.put("tcp", &l).ran().well();
    assert_eq!(std::fs::read(to.join("a")).unwrap(), noise(100));
    assert_eq!(std::fs::read(to.join("l")).unwrap(), noise(100));
    assert_eq!(std::fs::read(&outside).unwrap(), noise(5), "the link was followed");
    let other = Scratch::new();
    let gets = Server::start(&other, [OsStr::new("--share"), to.as_os_str()]);
    gets.get("shm", "a", &s.path("outside")).ran().badly(&["exists"]);
    assert_eq!(std::fs::read(&outside).unwrap(), noise(5));
}

#[test]
fn only_files_of_the_shared_folder_are_offered() {
    let s = Scratch::new();
    let (share, back) = (s.dir("share"), s.dir("back"));
    let secret = s.file("secret", 10);
    symlink(&secret, share.join("link")).unwrap();
    std::fs::create_dir(share.join("folder")).unwrap();
    let server = Server::start(&s, [OsStr::new("--share"), share.as_os_str()]);
    server.get("shm", "link", &back).ran().badly(&["it is a symbolic link, which is not followed"]);
    server.get("shm", "folder", &back).ran().badly(&["not a regular file"]);
    server.get("shm", "missing", &back).ran().badly(&["no such file"]);
    server.get("shm", "../secret", &back).ran().badly(&["slash"]);
    server.put("shm", &secret).ran().badly(&["without --into"]);
    assert_eq!(names(&back), [""; 0]);
}

#[test]
fn several_clients_are_served_at_once() {
    let s = Scratch::new();
    let to = s.dir("to");
    let server = Server::start(&s, ["--into".as_ref(), to.as_os_str()]);
    let all: Vec<_> = (0..6)
        .map(|i| {
            let path = s.file(format!("f{i}"), 3_000_000 + i * 1000);
            server.put(if i % 2 == 0 { "shm" } else { "tcp" }, &path)
        })
        .collect();
    for put in all {
        put.ran().well();
    }
    for i in 0..6 {
        let bytes = std::fs::read(to.join(format!("f{i}"))).unwrap();
        assert!(bytes == noise(3_000_000 + i * 1000), "f{i} differs");
    }
}

#[test]
fn once_means_once() {
    let s = Scratch::new();
    let to = s.dir("to");
    let mut server = Server::start(&s, [OsStr::new("--once"), "--into".as_ref(), to.as_os_str()]);
    let path = s.file("a", 5_000_000);
    server.put("shm", &path).ran().well();
    assert_eq!(server.process.ended().code(), Some(0));
    assert_eq!(names(&to), ["a"]);
}
