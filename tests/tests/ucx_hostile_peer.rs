//! Messages of an unknown or incompatible peer to an AM target, over the fake libucp: they reach open windows within their
//! ranges and rights only; a peer that breaks the rules of the messages loses the link.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests may panic"
)]

use hmc_core::region::{Epoch, WindowId};
use hmc_core::types::Access;
use hmc_core::wire::data::{DATA_FRAME_BYTES, DataFlags, DataFrame, DataKind};
use hmc_core::work::{Completion, Opcode};
use hmc_hw::ucx::settings::Settings;
use hmc_hw::ucx::testing::RawEndpoint;
use hmc_tests::env::seed;
use hmc_tests::fake_ucp::{CallResult, FakeUcp, NO_MEMORY};
use hmc_tests::ucx_pair::Built;

const WINDOW: u64 = 4096;
const LIE: u8 = 0xBD;
/// Polls of both ends in which a message has surely come.
const TURNS: usize = 20;

/// A correct pair over messages, and a third party that reaches the target's worker and knows the id of its AM target.
struct Scene {
    pair: Built,
    liar: RawEndpoint,
    target_id: u64,
    /// What the window holds.
    held: Vec<u8>,
}

impl Scene {
    fn new(fake_ucp: &FakeUcp, access: Access) -> Self {
        fake_ucp.lane("tcp/eth0");
        let pair = Built::new(fake_ucp.library(), WINDOW, WINDOW, access, 3).unwrap();
        let held: Vec<u8> = (0..=255u8).cycle().take(4096).collect();
        pair.write_remote(0, &held);
        let info = pair.far.conn_info(&pair.am_target).unwrap();
        // Two lengths, then the number: `Worker::conn_info`.
        let target_id = u64::from_le_bytes(info[4..12].try_into().unwrap());
        let mut liar = RawEndpoint::new(fake_ucp.library(), &Settings::default(), 4096).unwrap();
        liar.connect(&info).unwrap();
        Self { pair, liar, target_id, held }
    }

    /// A frame that writes `len` bytes at the window's begin.
    fn write(&self, len: u32) -> DataFrame {
        let mut frame = DataFrame::new(DataKind::Write, 0x0102_0300);
        (frame.window, frame.epoch) = (self.pair.window.window, self.pair.window.epoch);
        (frame.len, frame.total) = (len, u64::from(len));
        frame
    }

    fn send(&mut self, header: &[u8], data: &[u8]) {
        self.liar.calls().unwrap().message(header, data).unwrap();
        for _ in 0..TURNS {
            self.liar.calls().unwrap().progress();
            let _ = self.pair.poll();
        }
    }

    fn send_frame(&mut self, frame: &DataFrame, data: &[u8]) {
        let header = [&self.target_id.to_le_bytes()[..], &frame.emit()].concat();
        self.send(&header, data);
    }

    /// Whether the target has given the peer up.
    fn given_up(&self) -> bool {
        self.pair.back.as_ref().unwrap().failure().is_some()
    }

    fn assert_untouched(&self, what: &str) {
        assert!(self.pair.read_remote(0, 4096) == self.held, "{what}: the window was written");
        self.pair.check_margins().unwrap_or_else(|e| panic!("{what}: {e}"));
    }

    /// The honest peer's puts work, and land.
    fn honest_put_works(&mut self, what: &str) {
        self.pair.write_local(0, &[0x5A; 64]);
        use hmc_core::transport::Transport as _;
        let work = self.pair.request(9, Opcode::Put, 0, 128, 64);
        self.pair.near.post(&work).unwrap();
        let done = self.pair.wait(1);
        assert_eq!(done[0].result, Ok(64), "{what}");
        assert_eq!(self.pair.read_remote(128, 64), [0x5A; 64], "{what}");
        self.held[128..192].fill(0x5A);
    }
}

/// The control of these tests: the frame with nothing wrong in it writes.
#[test]
fn the_truth_is_written() {
    let fake_ucp = FakeUcp::take();
    let mut scene = Scene::new(&fake_ucp, Access::all());
    let frame = scene.write(64);
    scene.send_frame(&frame, &[LIE; 64]);
    assert_eq!(scene.pair.read_remote(0, 65)[..64], [LIE; 64]);
    assert!(!scene.given_up());
}

/// Accesses that the target refuses by itself. It goes on serving the peer: an access may lie, and have been honest when
/// it was sent.
#[test]
fn accesses_beyond_a_window_write_nothing() {
    let fake_ucp = FakeUcp::take();
    let mut scene = Scene::new(&fake_ucp, Access::all());
    let truth = scene.write(64);
    let other = |index: u16| WindowId::new(index, 0x5EED << 16 | 3 << 32);
    let lies: [(&str, DataFrame); 9] = [
        ("an unknown place", DataFrame { window: other(7), ..truth }),
        ("the highest place", DataFrame { window: other(u16::MAX), ..truth }),
        ("a guessed name", DataFrame { window: WindowId::new(2, 0x1234 << 16), ..truth }),
        ("the epoch before", DataFrame { epoch: Epoch(2), ..truth }),
        ("the epoch after", DataFrame { epoch: Epoch(4), ..truth }),
        ("one byte too far", DataFrame { offset: WINDOW - 63, ..truth }),
        ("behind the end", DataFrame { offset: WINDOW, ..truth }),
        ("far behind", DataFrame { offset: 1 << 40, ..truth }),
        ("around the end of numbers", DataFrame { offset: u64::MAX - 31, ..truth }),
    ];
    for (what, lie) in lies {
        scene.send_frame(&lie, &[LIE; 64]);
        scene.assert_untouched(what);
        // Behind an honest frame, too, in one message.
        let honest = DataFrame { offset: 256, seq: truth.seq + 0x100, ..truth };
        scene.send_frame(&honest, &[&[7; 64][..], &lie.emit(), &[LIE; 64]].concat());
        scene.held[256..320].fill(7);
        scene.assert_untouched(what);
        let read = DataFrame { kind: DataKind::Read, len: 0, total: 64, ..lie };
        scene.send_frame(&read, &[]);
        assert!(!scene.given_up(), "{what}");
        scene.honest_put_works(what);
    }
}

#[test]
fn a_window_that_is_only_read_is_not_written() {
    let fake_ucp = FakeUcp::take();
    let mut scene = Scene::new(&fake_ucp, Access::READ);
    let frame = scene.write(64);
    scene.send_frame(&frame, &[LIE; 64]);
    scene.assert_untouched("a window to be read");
    assert!(!scene.given_up());
}

/// After its owner has closed a window nothing gets in, though no peer was told.
#[test]
fn a_closed_window_stays_as_it_is() {
    let fake_ucp = FakeUcp::take();
    let mut scene = Scene::new(&fake_ucp, Access::all());
    let frame = scene.write(64);
    scene.pair.am_target.close(scene.pair.window.window);
    scene.send_frame(&frame, &[LIE; 64]);
    scene.assert_untouched("a closed window");
    // Of an operation whose first piece came before.
    let mut scene = Scene::new(&fake_ucp, Access::all());
    let first = DataFrame { total: 128, ..frame };
    scene.send_frame(&first, &[1; 64]);
    scene.held[..64].fill(1);
    scene.assert_untouched("the first piece");
    scene.pair.am_target.close(scene.pair.window.window);
    scene.send_frame(&DataFrame { offset: 64, ..first }, &[LIE; 64]);
    scene.assert_untouched("the second piece");
}

/// Messages that no honest peer sends end the link: nothing that follows can be trusted.
#[test]
fn messages_against_the_rules_end_the_link() {
    let fake_ucp = FakeUcp::take();
    let frame = Scene::new(&fake_ucp, Access::all()).write(64);
    let kind = |kind| DataFrame { kind, len: 0, ..frame };
    let bare = DataFrame { len: 0, ..frame };
    let short = [0; DATA_FRAME_BYTES - 1];
    let nonsense = [0xFF; DATA_FRAME_BYTES];
    let empty = DataFrame { total: 0, ..kind(DataKind::Read) };
    let of_streams = "a frame that only streams have";
    let lies: [(&str, DataFrame, &[u8]); 9] = [
        ("a put without all of its bytes", frame, &[LIE; 63]),
        ("a part of a frame behind a put", bare, &short),
        ("no put behind a put", bare, &nonsense),
        ("bytes behind a request", kind(DataKind::Read), &[LIE; 64]),
        ("a request for nothing", empty, &[]),
        (of_streams, kind(DataKind::WriteRef), &[LIE; 64]),
        (of_streams, kind(DataKind::ReadRef), &[LIE; 64]),
        (of_streams, kind(DataKind::Region), &[LIE; 64]),
        ("a part of a frame behind an answer", DataFrame::ack(3, 1), &short),
    ];
    for (why, lie, data) in lies {
        let mut scene = Scene::new(&fake_ucp, Access::all());
        assert_eq!(scene.pair.am_target.violation(), None);
        scene.send_frame(&lie, data);
        scene.assert_untouched(why);
        assert!(scene.given_up(), "{why}");
        let violation = scene.pair.am_target.violation().expect("the link ends for a reason");
        assert_eq!(violation.to_string(), why);
    }
}

/// A correct pair, a third party that reaches the initiator's worker, and the id of the initiator's AM target.
fn beside_an_initiator(fake_ucp: &FakeUcp) -> (Built, RawEndpoint, [u8; 8]) {
    let pair = Scene::new(fake_ucp, Access::all()).pair;
    let info = pair.near.0.worker().conn_info(&pair.home).unwrap();
    let mut liar = RawEndpoint::new(fake_ucp.library(), &Settings::default(), 4096).unwrap();
    liar.connect(&info).unwrap();
    // Two lengths, then the number: `Worker::conn_info`.
    (pair, liar, info[4..12].try_into().unwrap())
}

/// A get is over when its bytes are there. To say so before is against the rules: what came later would be written into
/// memory that its owner has back.
#[test]
fn a_get_is_not_answered_by_a_word() {
    use hmc_core::transport::Transport as _;
    let fake_ucp = FakeUcp::take();
    let (mut pair, liar, number) = beside_an_initiator(&fake_ucp);
    let work = pair.request(9, Opcode::Get, 0, 0, 64);
    pair.near.post(&work).unwrap();
    // The first use of the first record.
    let header = [&number[..], &DataFrame::ack(0x100, 1).emit()].concat();
    liar.calls().unwrap().message(&header, &[]).unwrap();
    let mut done = vec![Completion { op: work.op, result: Ok(0) }; 4];
    let mut ended = Vec::new();
    for _ in 0..TURNS {
        liar.calls().unwrap().progress();
        pair.near.0.worker().lock().progress();
        let n = pair.near.poll(&mut done);
        ended.extend_from_slice(&done[..n]);
    }
    assert!(pair.near.0.failure().is_some(), "{ended:?}");
    assert!(ended.iter().all(|c| c.result.is_err()), "{ended:?}");
    assert_eq!(pair.read_local(0, 64), [0; 64], "the target has not answered");
}

/// A get that failed as its request was sent is over: what somebody sends as its bytes would be written into memory that its
/// owner has back.
#[test]
fn a_get_that_was_not_sent_takes_no_bytes() {
    use hmc_core::transport::Transport as _;
    let fake_ucp = FakeUcp::take();
    let (mut pair, liar, number) = beside_an_initiator(&fake_ucp);
    fake_ucp.rule("ucp_am_send_nbx", 1, CallResult::Refused(NO_MEMORY));
    let work = pair.request(9, Opcode::Get, 0, 0, 64);
    pair.near.post(&work).unwrap();
    let done = pair.wait(1);
    assert!(done[0].result.is_err(), "{done:?}");
    // The first use of the first record.
    let mut frame = DataFrame::new(DataKind::ReadData, 0x100);
    (frame.window, frame.epoch) = (pair.window.window, pair.window.epoch);
    (frame.len, frame.total, frame.flags) = (64, 64, DataFlags::LAST);
    let header = [&number[..], &frame.emit()].concat();
    liar.calls().unwrap().message(&header, &[LIE; 64]).unwrap();
    for _ in 0..TURNS {
        liar.calls().unwrap().progress();
        pair.near.0.worker().lock().progress();
    }
    assert_eq!(pair.read_local(0, 64), [0; 64]);
}

/// Messages with malformed headers or unknown target ids are dropped: they harm neither the link nor memory.
#[test]
fn messages_for_nobody_are_passed_over() {
    let fake_ucp = FakeUcp::take();
    let mut scene = Scene::new(&fake_ucp, Access::all());
    let frame = scene.write(64);
    for target_id in
        [scene.target_id + 1, scene.target_id ^ (1 << 32), scene.target_id | 0xFFFF, 0, u64::MAX]
    {
        let header = [&target_id.to_le_bytes()[..], &frame.emit()].concat();
        scene.send(&header, &[LIE; 64]);
    }
    let header = [&scene.target_id.to_le_bytes()[..], &frame.emit()].concat();
    for len in 0..header.len() {
        scene.send(&header[..len], &[LIE; 64]);
    }
    scene.send(&[&header[..], &[0]].concat(), &[LIE; 64]);
    scene.assert_untouched("nobody's");
    assert!(!scene.given_up());
    scene.honest_put_works("after them");
}

/// splitmix64.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// Whatever comes, by chance: only an open window changes, within its range, and nothing ends this process.
#[test]
fn whatever_comes_reaches_open_windows_only() {
    let fake_ucp = FakeUcp::take();
    let seed = seed(11);
    println!("HMC_TEST_SEED={seed}");
    for round in 0..40 {
        let mut chance = Chance(seed.wrapping_add(round));
        let mut scene = Scene::new(&fake_ucp, Access::all());
        let open = chance.below(4) != 0;
        if !open {
            scene.pair.am_target.close(scene.pair.window.window);
        }
        for _ in 0..50 {
            let mut message = scene.target_id.to_le_bytes().to_vec();
            let mut frame = scene.write(64);
            frame.seq = u32::try_from(chance.below(1 << 32)).unwrap();
            frame.offset = chance.below(WINDOW + 200);
            frame.total = chance.below(300);
            message.extend_from_slice(&frame.emit());
            let mut data = vec![LIE; usize::try_from(chance.below(200)).unwrap()];
            if chance.below(2) == 0 {
                data.extend_from_slice(&frame.emit());
                data.extend_from_slice(&[LIE; 64]);
            }
            // Some bytes of it differ: of the frame more often than of its target id.
            for _ in 0..chance.below(4) {
                let from = if chance.below(8) == 0 { 0 } else { 8 };
                let at = from + usize::try_from(chance.below(32)).unwrap();
                message[at % (8 + DATA_FRAME_BYTES)] = chance.next().to_le_bytes()[0];
            }
            scene.send(&message, &data);
        }
        scene.pair.check_margins().unwrap_or_else(|e| panic!("round {round}: {e}"));
        if !open {
            scene.assert_untouched("a closed window");
        }
    }
}
