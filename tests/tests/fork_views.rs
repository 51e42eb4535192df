//! Addresses of a session's memory in a forked child. Alone in its file: a fork copies whatever other threads hold.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::time::Duration;

use hmc_std::Session;
use hmc_tests::child::in_child;
use hmc_tests::scene::TempDir;

/// Addresses of the parent's memory that were handed out before: the child maps much, and starts a session of its own,
/// and still reads nothing there.
#[test]
fn a_view_from_before_the_fork_faults_and_the_child_has_sessions_of_its_own() {
    let dir = TempDir::new();
    let target = Session::builder(1).uds(dir.path()).buffer(1 << 20).start().unwrap();
    let source = Session::builder(0).buffer(1 << 20).start().unwrap();
    let region = source.allocate(1 << 16).unwrap();
    let mut span = region.take_all().unwrap();
    span.fill(7);
    let own = |rank: u32| {
        let own = Session::builder(rank).buffer(1 << 20).start().unwrap();
        own.buffer().fill(0, 64, 9).unwrap();
        own.connect(1, &dir.address()).unwrap().put(0, 0, 64).unwrap();
        own
    };
    let said = in_child(|| {
        let own = own(2);
        own.shutdown(Duration::from_secs(10)).map_or_else(|e| e.to_string(), |()| "done".to_owned())
    });
    assert_eq!(said.as_deref(), Ok("done"));
    let mut got = [0; 64];
    target.buffer().read_at(0, &mut got).unwrap();
    assert_eq!(got, [9; 64]);
    for (rank, at) in [(3, span.as_slice().as_ptr()), (4, source.buffer().as_ptr().cast_const())] {
        let said = in_child(|| {
            let _own = own(rank);
            let taken: Vec<Vec<u8>> = (0..64).map(|_| vec![1; 1 << 20]).collect();
            let large = vec![1u8; 1 << 30];
            drop(region.clone());
            // SAFETY: an address that was handed out; in this process the kernel has no memory there.
            let byte = unsafe { at.read_volatile() };
            format!("read {byte} beside {} and {}", taken.len(), large.len())
        });
        assert_eq!(said, Err(libc::SIGSEGV));
    }
    assert_eq!(span.as_slice().first(), Some(&7));
}
