//! Sessions over the real UCX of this machine: several workers, what is told of lanes, UCX's own messages.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::sync::Mutex;
use std::time::Duration;

use hmc_std::{ConnType, Session, SessionBuilder};
use hmc_testkit::buffers::BufferTransfers as _;
use hmc_tests::env::TempDir;
use hmc_tests::listening::Listening as _;

const LONG: Duration = Duration::from_secs(20);
const KIB: u64 = 1 << 10;

fn session(rank: u32) -> SessionBuilder {
    Session::builder(rank).ucx().buffer(256 * KIB)
}

/// Every peer of a session with several workers is reached, by whichever worker.
#[test]
#[ignore = "needs UCX: cargo xtask test-hw"]
fn links_are_spread_over_several_workers() {
    let dir = TempDir::new();
    let hub = session(0).num_channels(3).uds(dir.path()).tcp("127.0.0.1:0").start().unwrap();
    let spokes: Vec<Session> = (1..=5).map(|rank| session(rank).start().unwrap()).collect();
    for (n, spoke) in (1u8..).zip(&spokes) {
        let peer =
            spoke.connect(&dir.address()).rank(0).over(ConnType::Ucx).within(LONG).wait().unwrap();
        spoke.buffer().fill(0, 256 * KIB, n).unwrap();
        let at = u64::from(n) * 8 * KIB;
        peer.put_at(at, at, 8 * KIB).unwrap();
    }
    for n in 1u8..=5 {
        let mut seen = [0; 8];
        hub.buffer().read_at(u64::from(n) * 8 * KIB, &mut seen).unwrap();
        assert_eq!(seen, [n; 8]);
        // And back, by the hub's workers.
        hub.buffer().fill(0, KIB, 0x80 | n).unwrap();
        hub.accept(u32::from(n)).within(LONG).wait().unwrap().put_at(0, 0, KIB).unwrap();
    }
    for (n, spoke) in (1u8..).zip(&spokes) {
        let mut seen = [0; 8];
        spoke.buffer().read_at(0, &mut seen).unwrap();
        assert_eq!(seen, [0x80 | n; 8]);
    }
}

#[test]
#[ignore = "needs UCX: cargo xtask test-hw"]
fn an_explanation_names_lanes_and_who_is_trusted() {
    let dir = TempDir::new();
    let _far = session(1).ucx_key("TLS", "tcp").uds(dir.path()).tcp("127.0.0.1:0").start().unwrap();
    let near = session(0).ucx_key("TLS", "tcp").start().unwrap();
    let peer =
        near.connect(&dir.address()).rank(1).over(ConnType::Ucx).within(LONG).wait().unwrap();
    let told = peer.explain();
    let text = told.to_string();
    assert_eq!(told.conn, Some(ConnType::Ucx));
    assert!(text.contains("asked for by name; lanes: tcp"), "{text}");
    assert!(told.target_checks);
    assert!(text.contains("the target checks window, range and epoch of every message"), "{text}");
}

/// Without hardware at both ends UCX is considered, and passed over with the reason.
#[test]
#[ignore = "needs UCX: cargo xtask test-hw"]
fn auto_prefers_what_checks_by_itself() {
    let far = session(1).tcp("127.0.0.1:0").start().unwrap();
    let near = session(0).start().unwrap();
    let address = hmc_std::Address::Tcp(far.tcp_addr().unwrap());
    let peer = near.connect(&address).rank(1).within(LONG).wait().unwrap();
    let text = peer.explain().to_string();
    assert!(text.contains("ucx: not chosen: no RDMA hardware at both ends"), "{text}");
    assert_ne!(peer.explain().conn, Some(ConnType::Ucx));
}

#[test]
#[ignore = "needs UCX: cargo xtask test-hw"]
fn nobody_oversleeps() {
    for lanes in ["tcp", "posix,cma", "sysv", "all"] {
        println!("{lanes}:");
        hmc_tests::small_transfers::nobody_oversleeps(ConnType::Ucx, |part| {
            part.ucx_key("TLS", lanes)
        });
    }
}

static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// UCX's messages come to whoever asks for them, instead of to standard output.
#[test]
#[ignore = "needs UCX: cargo xtask test-hw"]
fn ucx_log_lines_go_to_the_handler() {
    use hmc_hw::ucx::context::Context;
    use hmc_hw::ucx::library::{Library, Search};
    use hmc_hw::ucx::log::{Level, install_handler};
    use hmc_hw::ucx::settings::Settings;
    let named = std::env::var_os("HMC_UCX_LIB").map(Into::into);
    let library = Library::load(&Search { named, ..Search::default() }).unwrap();
    assert!(install_handler(library, |m| {
        SAID.lock().unwrap().push(format!("{:?} {}:{} {}", m.level, m.file, m.line, m.text));
    }));
    // A device that does not exist is worth a warning of UCX's.
    let keys = vec![("NET_DEVICES".to_owned(), "no_such_device".to_owned())];
    let _ = Context::new(library, &Settings { keys, ..Settings::default() });
    let said = SAID.lock().unwrap();
    let it = said.iter().find(|m| m.contains("no_such_device"));
    let it = it.unwrap_or_else(|| panic!("{said:?}"));
    assert!(it.starts_with(&format!("{:?} ucp_context.c:", Level::Warn)), "{it}");
}

/// A buffer that was made without UCX: puts into it and out of it, over all lanes of this machine and over TCP alone.
#[test]
#[ignore = "needs UCX: cargo xtask test-hw"]
fn a_prepared_buffer_takes_part_later() {
    for tls in ["all", "tcp"] {
        let dir = TempDir::new();
        let far =
            session(1).ucx_key("TLS", tls).uds(dir.path()).tcp("127.0.0.1:0").start().unwrap();
        let near = Session::builder(0).ucx_key("TLS", tls).buffer(256 * KIB);
        let mut near = near.prepare().unwrap();
        near.buffer().fill(0, 128 * KIB, 0x17).unwrap();
        near.use_ucx(true);
        for rank in [2, 3] {
            near.set_rank(rank);
            let session = near.start().unwrap();
            let peer = session
                .connect(&dir.address())
                .rank(1)
                .over(ConnType::Ucx)
                .within(LONG)
                .wait()
                .unwrap();
            println!("{tls}: {}", peer.explain());
            for len in [1, 8, 8 * KIB, 128 * KIB] {
                let crc = |b: &hmc_std::ConnBuffer, at| b.crc32c(at, len).unwrap();
                far.buffer().fill(0, 256 * KIB, 0).unwrap();
                peer.put_at(0, 0, len).unwrap();
                assert_eq!(crc(far.buffer(), 0), crc(near.buffer(), 0), "{tls}");
                far.buffer().fill(0, len, 0x33).unwrap();
                far.accept(rank).within(LONG).wait().unwrap().put_at(0, 128 * KIB, len).unwrap();
                assert_eq!(crc(near.buffer(), 128 * KIB), crc(far.buffer(), 0), "{tls}");
                peer.get_at(128 * KIB, 0, len).unwrap();
            }
            session.shutdown().within(LONG).wait().unwrap();
        }
    }
}
