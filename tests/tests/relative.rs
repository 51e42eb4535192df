//! Folders and files that were named by relative paths stay the same ones when a process goes elsewhere, and peers that are
//! elsewhere find them. Alone in its file: the current folder is the process's.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::time::Duration;

use hmc_std::{Address, ConnType, ErrorKind, Session};
use hmc_testkit::buffers::BufferTransfers as _;
use hmc_tests::actor::Actor;
use hmc_tests::env::{TempDir, until};
use hmc_tests::listening::Listening as _;

const ACTOR: &str = env!("CARGO_BIN_EXE_actor");
const LONG: Duration = Duration::from_secs(20);

#[test]
fn relative_folders_and_secrets_are_where_they_were_named() {
    let (here, elsewhere) = (TempDir::new(), TempDir::new());
    let go = |dir: &TempDir| std::env::set_current_dir(dir.path()).unwrap();
    let dial = |rank: u32, address: &Address, conn| {
        let source = Session::builder(rank).secret_file(here.path().join("key")).buffer(4096);
        let source = source.start().unwrap();
        let peer = source.connect(address).rank(1).over(conn).within(LONG).wait()?;
        peer.put_at(0, 0, 8).map(|()| (source, peer))
    };
    go(&here);
    let target = Session::builder(1).uds("s").tcp("127.0.0.1:0").secret_file("key").buffer(4096);
    let target = target.start().unwrap();
    let tcp = Address::Tcp(target.tcp_addr().unwrap());
    let local: Address = "uds://s".parse().unwrap();
    assert_eq!(target.uds_paths(), [here.path().join("s/hmc_ctrl_rank_1.sock")]);
    dial(2, &local, ConnType::Shm).expect("in the same folder");
    // A session recognises itself, however its folder is written.
    let e = target.connect(&local).within(LONG).wait().expect_err("itself");
    assert_eq!(e.kind(), ErrorKind::InvalidConfig, "{e}");

    // Who is elsewhere is told the path of the socket, and proves itself by the same secret.
    go(&elsewhere);
    dial(3, &tcp, ConnType::Shm).expect("from another folder");
    dial(4, &tcp, ConnType::Tcp).expect("from another folder");
    assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 0, "nothing was made anew");

    go(&here);
    drop(target);
    assert!(!here.path().join("s/hmc_ctrl_rank_1.sock").exists(), "the socket is left");

    // What was dialed by a relative path is dialed again there.
    let settings = format!("rank=1 uds={} buffer=4096", here.path().join("s").display());
    let actor = Actor::session(ACTOR, &settings);
    let (source, _peer) = dial(0, &local, ConnType::Shm).expect("in the same folder");
    go(&elsewhere);
    drop(actor);
    until("its end is known", LONG, || {
        (!source.peer(1).is_ok_and(|p| p.is_connected())).then_some(())
    });
    let _again = Actor::session(ACTOR, &settings);
    until("it is dialed again", LONG, || {
        source.peer(1).is_ok_and(|p| p.is_connected()).then_some(())
    });
}
