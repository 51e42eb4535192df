//! A program with sessions runs under valgrind, and valgrind finds no error in it.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::io::{ErrorKind, Write as _};
use std::process::{Command, Stdio};

use hmc_tests::env::{TempDir, skipped};

/// What it reports wrongly.
const SUPPRESSIONS: &str = concat!("--suppressions=", env!("CARGO_MANIFEST_DIR"), "/valgrind.supp");

/// Two sessions of one process: connect, put, get, send a tag, shut down.
fn script(dir: &str, conn: &str) -> String {
    format!(
        "start rank=1 uds={dir} tcp=127.0.0.1:0 buffer=1048576 heartbeat=0\n\
         start rank=0 buffer=1048576 heartbeat=0\n\
         connect 1 {dir} {conn} 30000\n\
         fill 0 1048576 7\n\
         put 1 0 4096 8192\n\
         put 1 0 0 262144\n\
         get 1 0 0 262144\n\
         send 1 5\n\
         use 1\n\
         meet 0 30000\n\
         recv 0 30000\n\
         crc 4096 8192\n\
         end 5000\n"
    )
}

#[test]
fn a_program_with_sessions_runs_under_valgrind() {
    let Ok(version) = Command::new("valgrind").arg("--version").output() else {
        skipped("valgrind is not installed");
        return;
    };
    assert!(version.status.success(), "valgrind --version: {version:?}");
    let dir = TempDir::new();
    for conn in ["shm", "tcp"] {
        let mut child = Command::new("valgrind")
            .args(["-q", "--error-exitcode=9", SUPPRESSIONS, env!("CARGO_BIN_EXE_actor")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let script = script(dir.path().to_str().unwrap(), conn);
        let lines = script.lines().count();
        match child.stdin.take().unwrap().write_all(script.as_bytes()) {
            // It has ended before it read all: what it wrote says why.
            Err(e) if e.kind() == ErrorKind::BrokenPipe => {}
            written => written.unwrap(),
        }
        let out = child.wait_with_output().unwrap();
        let (said, errors) =
            (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        assert!(out.status.success(), "{conn}: {:?}\n{said}\n{errors}", out.status);
        let answers: Vec<&str> = said.lines().collect();
        let good = answers.iter().filter(|a| a.starts_with("ok")).count();
        assert_eq!(good, lines, "{conn}:\n{said}\n{errors}");
        assert!(answers.contains(&format!("ok {conn}").as_str()), "not over {conn}:\n{said}");
        assert!(answers.contains(&"ok 5"), "no tag over {conn}:\n{said}");
    }
}
