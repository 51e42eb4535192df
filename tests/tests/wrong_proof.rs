//! Who does not prove that it is of this user is named in a warning; what makes no sense is not. Alone in its file: it has the
//! process's subscriber of `tracing`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests may panic")]

use std::fmt::Debug;
use std::sync::Mutex;

use hmc_core::wire::hello::Hello;
use hmc_core::wire::message::ControlMessage;
use hmc_core::wire::proof::Proof;
use hmc_std::Session;
use hmc_tests::env::TempDir;
use hmc_tests::events::Events;
use hmc_tests::listening::Listening as _;
use hmc_tests::raw_frames::{dial, frame, hello_of, is_closed_after, read_frame, send_raw};
use tracing::Level;
use tracing::field::Field;

static WARNINGS: Mutex<Vec<String>> = Mutex::new(Vec::new());

#[test]
fn a_wrong_proof_is_warned_of() {
    let keep = Events::new(Level::WARN, |event| {
        event.record(&mut |field: &Field, value: &dyn Debug| {
            if field.name() == "message" {
                WARNINGS.lock().unwrap().push(format!("{value:?}"));
            }
        });
    });
    tracing::subscriber::set_global_default(keep).unwrap();
    let dir = TempDir::new();
    let server = Session::builder(1).tcp("127.0.0.1:0").secret_file(dir.path().join("secret"));
    let server = server.start().unwrap();
    let promise = frame(&ControlMessage::Hello(Hello { proves: true, ..hello_of(2, 0, 1) }));
    // What a client answers to the challenge, and the warnings once its connection is closed.
    let refused = |answer: &[u8]| {
        let mut s = dial(server.tcp_addr().unwrap());
        assert!(send_raw(&mut s, &promise));
        read_frame(&mut s).expect("a challenge");
        assert!(send_raw(&mut s, answer));
        while read_frame(&mut s).is_some() {}
        assert!(is_closed_after(&mut s));
        WARNINGS.lock().unwrap().clone()
    };
    assert_eq!(refused(&promise), [""; 0]);
    let said = refused(&frame(&ControlMessage::Proof(Proof([7; 32]))));
    assert_eq!(said, ["refused a process: it did not prove that it is of this user"]);
}
