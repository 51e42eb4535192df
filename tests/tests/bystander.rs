//! A process that was an initiator and is another program now, or whose number another process has: the target of its get
//! writes by process number, and must not write there.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests may panic"
)]

use std::time::Duration;

use hmc_tests::actor::Actor;
use hmc_tests::scene::{TempDir, number, skipped, until};

const ACTOR: &str = env!("CARGO_BIN_EXE_actor");
const MIB: usize = 1 << 20;
const LONG: Duration = Duration::from_secs(20);
/// What a target copies between two looks, at the most.
const PIECE: usize = MIB;

/// The target of a get, and its initiator, in processes of their own.
struct Scene {
    target: Actor,
    initiator: Actor,
    len: usize,
    _dir: TempDir,
}

impl Scene {
    /// The get has begun.
    fn new(len: usize) -> Self {
        Self::with(len, "", "")
    }

    /// The same with more settings of the target, and another end of the get's command.
    fn with(len: usize, more: &str, how: &str) -> Self {
        let dir = TempDir::new();
        let path = dir.path().display().to_string();
        // Without heartbeats: nobody is dead because of a busy machine.
        let settings = format!("rank=1 redial=0 heartbeat=0 uds={path} {more}");
        let mut target = Actor::session(ACTOR, &settings);
        let mut initiator = Actor::session(ACTOR, "rank=0 redial=0 heartbeat=0");
        initiator.ask(&format!("connect 1 uds://{path} shm 20000"));
        target.ask(&format!("expose 0 5 {len} 171 adopted"));
        initiator.ask(&format!("get_fixed 1 5 {len} {how}"));
        Self { target, initiator, len, _dir: dir }
    }

    /// How many bytes of the bystander the target has written, once it has heard of the initiator's end.
    fn written(&mut self, bystander: &mut Actor) -> usize {
        let target = &mut self.target;
        until("the target hears of the end", LONG, || {
            (target.ask("connected 0") == "false").then_some(())
        });
        bystander.ask("?").parse().unwrap()
    }

    /// The initiator becomes another program.
    fn replace_program(mut self, stopped: bool) -> usize {
        if stopped {
            self.target.stop();
        }
        assert_eq!(self.initiator.ask(&format!("become {}", self.len)), "ready");
        self.target.resume();
        let mut bystander = std::mem::replace(&mut self.initiator, Actor::spawn(ACTOR));
        self.written(&mut bystander)
    }

    /// The initiator is killed, and a new process gets its number. `None` when that cannot be had here.
    fn replace_process(mut self, stopped: bool) -> Option<usize> {
        if stopped {
            self.target.stop();
        }
        let number = self.initiator.pid();
        drop(std::mem::replace(&mut self.initiator, Actor::spawn(ACTOR)));
        let bystander = process_of_number(number, self.len);
        let ready = bystander.map(|mut b| (b.answer(), b));
        self.target.resume();
        let (said, mut bystander) = ready?;
        assert_eq!(said, Ok("ready".to_owned()));
        Some(self.written(&mut bystander))
    }
}

/// A bystander whose process has that number: the kernel is told from where to count on (pid_namespaces(7)).
fn process_of_number(number: u32, len: usize) -> Option<Actor> {
    for _ in 0..200 {
        std::fs::write("/proc/sys/kernel/ns_last_pid", (number - 1).to_string()).ok()?;
        let bystander = Actor::bystander(ACTOR, len);
        if bystander.pid() == number {
            return Some(bystander);
        }
        // Another process of this machine was faster. The number may be used, or free again.
    }
    None
}

#[test]
fn a_program_that_replaced_the_initiator_is_not_written() {
    for _ in 0..3 {
        let written = Scene::new(64 * MIB).replace_program(true);
        assert_eq!(written, 0, "the stream ended before the copy began");
    }
}

/// execve(2) does not end the stream then. The target does nothing before it is asked to.
#[test]
fn a_program_that_replaced_the_initiator_is_not_written_though_a_child_has_the_stream() {
    let mut scene = Scene::with(64 * MIB, "manual", "asked");
    scene.initiator.ask("leave_child");
    assert_eq!(scene.initiator.ask(&format!("become {}", scene.len)), "ready");
    while scene.target.ask("progress") == "true" {}
    assert_eq!(scene.initiator.ask("?"), "0", "bytes that were written");
}

#[test]
fn a_process_with_the_number_of_the_initiator_is_not_written() {
    for _ in 0..3 {
        match Scene::new(64 * MIB).replace_process(true) {
            Some(written) => assert_eq!(written, 0, "the process ended before the copy began"),
            None => return skipped("a process number can be chosen by root only"),
        }
    }
}

/// While the copy runs, as often as `HMC_TEST_ROUNDS` says: at most the piece that was begun goes astray.
#[test]
fn under_a_running_copy_at_most_one_piece_goes_astray() {
    let rounds = number("HMC_TEST_ROUNDS", 2);
    let (mut programs, mut processes, mut reused) = (Vec::new(), Vec::new(), 0u32);
    for _ in 0..rounds {
        programs.push(Scene::new(128 * MIB).replace_program(false));
        if let Some(written) = Scene::new(128 * MIB).replace_process(false) {
            reused += 1;
            processes.push(written);
        }
    }
    for (what, all) in [("execve", &programs), ("reuse", &processes)] {
        let hit = all.iter().filter(|n| **n != 0).count();
        let most = all.iter().copied().max().unwrap_or(0);
        println!("astray_{what} {hit} of {} times, at most {most} bytes", all.len());
        assert!(most <= PIECE, "{what}: {most} bytes were written");
    }
    if reused == 0 {
        skipped("a process number can be chosen by root only");
    }
}
