//! Two windows over one region with different rights, in either order: what a peer may do is what the window that it names
//! allows, and a peer that does not ask gets no page that lets it do more.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests may panic"
)]

use std::time::Duration;

use hmc_core::types::Access;
use hmc_mem::os::memfd::Mapping;
use hmc_std::{ConnType, ErrorKind, Op, Peer, Remote, Session, Span, Window};
use hmc_tests::env::{TempDir, until};
use hmc_tests::inside::Inside;
use hmc_tests::pair::{ALL, Pair};

const LONG: Duration = Duration::from_secs(20);
const MIB: u64 = 1 << 20;
/// A transfer of one piece, and of several.
const LENGTHS: [u64; 2] = [64, MIB + 5];
const LEN: u64 = MIB + 8192;
/// What is there before.
const OLD: u8 = 0x11;

/// The rights of two windows over one region, in the order in which they are exposed.
const ORDERS: [[Access; 2]; 4] = [
    [Access::WRITE, Access::READ],
    [Access::READ, Access::WRITE],
    [Access::all(), Access::READ],
    [Access::READ, Access::all()],
];

fn span_of(session: &Session, len: u64, byte: u8) -> Span {
    let mut span = session.memory().allocate(len).unwrap().take_all().unwrap();
    span.fill(byte);
    span
}

/// Puts and gets by a window that allows `access`: what it allows is done, what not is refused and gives the span back.
/// `there` reads what the window's owner has.
fn use_window(
    what: &str,
    from: &Session,
    window: &Remote,
    access: Access,
    there: &dyn Fn() -> Vec<u8>,
) {
    for (round, len) in (1..).zip(LENGTHS) {
        let before = there();
        let put = window.put(0, span_of(from, len, 0xA0 + round)).start().and_then(Op::wait);
        let n = usize::try_from(len).unwrap();
        if access.contains(Access::WRITE) {
            assert_eq!(put.expect("it may write").bytes, len, "{what}");
            let after = there();
            assert!(after[..n] == vec![0xA0 + round; n], "{what}: {len} bytes");
            assert!(after[n..] == before[n..], "{what}: bytes beyond the put");
        } else {
            let failed = put.expect_err(what);
            assert_eq!(failed.kind(), ErrorKind::Access, "{what}: {failed}");
            let span = failed.reclaim().within(Duration::ZERO).wait().expect("it comes back");
            assert_eq!(span.len(), len, "{what}");
            assert!(there() == before, "{what}: a refused put of {len} bytes changed some");
        }
        let got = window.get(0, span_of(from, len, 0xEE)).start().and_then(Op::wait);
        if access.contains(Access::READ) {
            let span = got.expect("it may read").memory;
            assert!(span.as_slice() == &there()[..n], "{what}: a get of {len} bytes");
        } else {
            let failed = got.expect_err(what);
            assert_eq!(failed.kind(), ErrorKind::Access, "{what}: {failed}");
            let span = failed.reclaim().within(Duration::ZERO).wait().expect("it comes back");
            assert!(span.as_slice() == vec![0xEE; n], "{what}: a refused get wrote");
        }
    }
    assert!(from.peers().iter().any(Peer::is_connected), "{what}: a refusal costs no link");
}

#[test]
fn windows_over_one_region_keep_their_own_rights() {
    for conn in ALL {
        for order in ORDERS {
            for adopted in [false, true] {
                let p = Pair::new(conn, 4096);
                let what = format!("{conn:?} {order:?} adopted {adopted}");
                let owner = p.receiver();
                let region = if adopted {
                    owner
                        .memory()
                        .register(hmc_std::memory::HeapBytes::from(vec![
                            0;
                            usize::try_from(2 * LEN)
                                .unwrap()
                        ]))
                        .unwrap()
                } else {
                    owner.memory().allocate(2 * LEN).unwrap()
                };
                let expose = |label: u64| -> Window<hmc_std::Span> {
                    let mut span = region.take(label * LEN, LEN).unwrap();
                    span.fill(OLD);
                    let access = order[usize::try_from(label).unwrap()];
                    p.b.expose(span, access, label).map_err(|(e, _)| e).unwrap()
                };
                let windows = [expose(0), expose(1)];
                for (label, access) in (0..).zip(order) {
                    let window = p.a.window(label).within(LONG).wait().unwrap();
                    let there = || {
                        let mut bytes = vec![0; usize::try_from(LEN).unwrap()];
                        windows[usize::try_from(label).unwrap()].read_at(0, &mut bytes).unwrap();
                        bytes
                    };
                    use_window(&what, p.sender(), &window, access, &there);
                }
                // Without the first, the second allows no more than before.
                let [first, second] = windows;
                first.revoke().within(LONG).wait().unwrap();
                let window = p.a.window(1).within(LONG).wait().unwrap();
                let there = || {
                    let mut bytes = vec![0; usize::try_from(LEN).unwrap()];
                    second.read_at(0, &mut bytes).unwrap();
                    bytes
                };
                use_window(&what, p.sender(), &window, order[1], &there);
            }
        }
    }
}

/// The same bytes of a shared buffer, by two windows.
#[test]
fn windows_over_the_same_bytes_keep_their_own_rights() {
    for conn in ALL {
        for order in ORDERS {
            let p = Pair::new(conn, 4096);
            let what = format!("{conn:?} {order:?}");
            let buffer = p.receiver().memory().allocate(LEN).unwrap().share().unwrap();
            buffer.fill(0, LEN, OLD).unwrap();
            let _windows: Vec<Window<hmc_std::ConnBuffer>> = (0..)
                .zip(order)
                .map(|(label, access)| {
                    p.b.expose(buffer.range(0, LEN).unwrap(), access, label).unwrap()
                })
                .collect();
            let there = || {
                let mut bytes = vec![0; usize::try_from(LEN).unwrap()];
                buffer.read_at(0, &mut bytes).unwrap();
                bytes
            };
            for (label, access) in (0..).zip(order) {
                let window = p.a.window(label).within(LONG).wait().unwrap();
                use_window(&what, p.sender(), &window, access, &there);
            }
        }
    }
}

/// A peer that maps what it is handed, and asks nobody: for a window that may be read it gets no page that can be written,
/// whether another peer could write the region before or gets to later.
#[test]
fn no_page_of_a_window_for_reading_can_be_mapped_for_writing() {
    for writable_first in [true, false] {
        let dir = TempDir::new();
        let session = Session::builder(0).uds(dir.path()).buffer(4096).start().unwrap();
        let mut hostile = Inside::join(1, &dir.address());
        let to_hostile = session.accept(1).within(LONG).wait().unwrap();
        let honest = Session::builder(2).buffer(4096).start().unwrap();
        let from_honest =
            honest.connect(&dir.address()).rank(0).over(ConnType::Shm).within(LONG).wait().unwrap();
        let to_honest = session.accept(2).within(LONG).wait().unwrap();
        let buffer = session.memory().allocate(LEN).unwrap().share().unwrap();
        let expose = |peer: &Peer, access, label| -> Window<hmc_std::ConnBuffer> {
            peer.expose(buffer.range(0, LEN).unwrap(), access, label).unwrap()
        };
        let writable = |window: &Remote, byte| {
            let put = window.put(0, span_of(&honest, 64, byte)).start().and_then(Op::wait);
            assert_eq!(put.expect("it may write").bytes, 64);
        };
        let mut windows = Vec::new();
        if writable_first {
            windows.push(expose(&to_honest, Access::all(), 5));
            writable(&from_honest.window(5).within(LONG).wait().unwrap(), 1);
        }
        windows.push(expose(&to_hostile, Access::READ, 6));
        let reading = hostile.find(6);
        if !writable_first {
            windows.push(expose(&to_honest, Access::all(), 5));
            writable(&from_honest.window(5).within(LONG).wait().unwrap(), 2);
        }
        // Descriptors are passed in order: after that of another region nothing of the first one follows.
        let other = session.memory().allocate(4096).unwrap().share().unwrap();
        windows.push(to_hostile.expose(other.range(0, 4096).unwrap(), Access::all(), 7).unwrap());
        let after = hostile.find(7);
        let proof = until("the other region's pages come", LONG, || hostile.pages(&after));
        Mapping::map_peer(proof.fd, 4096, 0, Access::all()).expect("it may be written");
        let passed = hostile.pages(&reading);
        // Who may only read maps what nobody could write; else it reads through the socket.
        assert_eq!(passed.is_some(), !writable_first);
        if let Some(passed) = passed {
            let fd = passed.fd.try_clone().unwrap();
            let mapped = Mapping::map_peer(fd, LEN, 0, Access::all());
            mapped.map(drop).expect_err("a page that may only be read was mapped for writing");
            rustix::io::pwrite(&passed.fd, b"late", 0).expect_err("written by its descriptor");
            Mapping::map_peer(passed.fd, LEN, 0, Access::READ).expect("it may be read");
        }
        let mut first = [0];
        buffer.read_at(0, &mut first).unwrap();
        assert_eq!(first, [if writable_first { 1 } else { 2 }]);
    }
}
