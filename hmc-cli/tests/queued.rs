//! A client that asks again before its transfer has ended: the server takes its requests in turn.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::as_conversions,
    clippy::arithmetic_side_effects,
    reason = "tests may panic"
)]

mod common;

use std::ffi::OsStr;

use common::raw::{DONE, LEN, ask_for, empty, heard, ring};
use common::{Scratch, Server};
use hmc_std::{Address, Session};

#[test]
fn requests_that_wait_for_their_turn_are_all_answered() {
    let s = Scratch::new();
    let from = s.dir("from");
    s.file(from.join("a"), LEN);
    let server = Server::start(&s, [OsStr::new("--share"), from.as_os_str()]);
    let session = Session::builder(77).redial(false).start().unwrap();
    let peer = session.connect(0, &Address::Uds(server.uds.clone())).unwrap();
    let _window = ring(&session, &peer, 1);
    ask_for(&peer, "a", 1);
    assert!(heard(&peer)["sending"].is_object());
    // The ring is smaller than the file: until it is emptied the first transfer is under way.
    let absent = ["absent 1", "absent 2", "absent 3"];
    absent.iter().for_each(|name| ask_for(&peer, name, 1));
    peer.send_tag(DONE | empty(&peer)).unwrap();
    for name in absent {
        let refused = heard(&peer);
        assert!(refused["refused"].as_str().unwrap().contains(name), "{refused}");
    }
}
