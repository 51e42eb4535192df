//! Messages of peers that are gone are kept until they are received, and nothing else of their links is.

#![allow(clippy::arithmetic_side_effects, clippy::unwrap_used, reason = "tests may panic")]

use std::time::Duration;

use hmc_core::wire::message::Message;
use hmc_tests::actor::Actor;
use hmc_tests::raw::frame;
use hmc_tests::rogue::{Rogue, pour};
use hmc_tests::scene::{TempDir, count_of, until};

const ACTOR: &str = env!("CARGO_BIN_EXE_actor");
const LONG: Duration = Duration::from_secs(20);

struct Scene {
    actor: Actor,
    dir: TempDir,
}

impl Scene {
    fn new() -> Self {
        let dir = TempDir::new();
        let settings = format!("rank=0 uds={} buffer=65536", dir.path().display());
        Self { actor: Actor::session(ACTOR, &settings), dir }
    }

    fn live(&mut self) -> usize {
        self.actor.ask("live").parse().unwrap()
    }

    /// Joins as `rank`, sends all there is room for, and ends.
    fn visit(&mut self, rank: u32, bytes: &[u8]) {
        let address = self.dir.address();
        let mut rogue = Rogue::join(rank, &address, &address);
        let (mut sent, mut stuck) = (0, 0);
        while sent < bytes.len() && stuck < 20 {
            let before = sent;
            sent = pour(&mut rogue.control, bytes, sent).unwrap();
            stuck = if sent == before { stuck + 1 } else { 0 };
        }
        drop(rogue);
        until("its link is over", LONG, || (self.actor.ask("peers") == "0").then_some(()));
    }

    /// How many messages of a peer that is gone are received.
    fn drain(&mut self, rank: u32) -> u32 {
        self.actor.ask(&format!("drain {rank}")).parse().unwrap()
    }
}

/// Of a link that is over only its messages are kept: neither descriptors nor buffers.
#[test]
fn many_that_left_little_are_limited_too() {
    let mut scene = Scene::new();
    let tag = frame(&Message::Tag(7));
    scene.visit(1, &tag);
    let (before, files) = (scene.live(), count_of(scene.actor.pid(), "fd"));
    for rank in 2..102 {
        scene.visit(rank, &tag);
    }
    let mut each = 0;
    until("what is left costs little", LONG, || {
        each = scene.live().saturating_sub(before) / 100;
        // One socket stands for those of all.
        (each <= 8 << 10 && count_of(scene.actor.pid(), "fd") <= files + 1).then_some(())
    });
    println!("{each} bytes for each");
    for rank in 1..102 {
        assert_eq!(scene.drain(rank), 1, "rank {rank}");
    }
}
