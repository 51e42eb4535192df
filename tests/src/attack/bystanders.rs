//! A process that was the initiator of a get and is another program now, or whose number another process has: the target
//! copies by process number, and must not copy there.

use std::time::Duration;

use super::{Context, Outcome};
use crate::actor::Actor;
use crate::env::{TempDir, until};

const MIB: usize = 1 << 20;
const LONG: Duration = Duration::from_secs(20);

/// The target of a get, and its initiator, in processes of their own.
#[derive(Debug)]
pub struct Scene {
    program: String,
    target: Actor,
    initiator: Actor,
    len: usize,
    _dir: TempDir,
}

impl Scene {
    /// The get of `len` bytes has begun.
    ///
    /// # Panics
    /// When it cannot.
    #[must_use]
    pub fn new(program: &str, len: usize) -> Self {
        Self::with(program, len, "", "")
    }

    /// The same with more settings of the target, and another end of the get's command.
    fn with(program: &str, len: usize, more: &str, how: &str) -> Self {
        let dir = TempDir::new();
        let path = dir.path().display().to_string();
        // Without heartbeats: nobody is dead because of a busy machine.
        let settings = format!("rank=1 redial=0 heartbeat=0 uds={path} {more}");
        let mut target = Actor::session(program, &settings);
        let mut initiator = Actor::session(program, "rank=0 redial=0 heartbeat=0");
        initiator.request(&format!("connect 1 uds://{path} shm 20000"));
        target.request(&format!("expose 0 5 {len} 171 adopted"));
        initiator.request(&format!("get_fixed 1 5 {len} {how}"));
        Self { program: program.to_owned(), target, initiator, len, _dir: dir }
    }

    /// How many bytes of the bystander the target has written, once it has noticed the initiator's end.
    fn written(&mut self, bystander: &mut Actor) -> usize {
        let target = &mut self.target;
        until("the target notices the end", LONG, || {
            (target.request("connected 0") == "false").then_some(())
        });
        changed(bystander)
    }

    /// The initiator becomes another program: bytes of that which were written.
    ///
    /// # Panics
    /// When it cannot.
    #[must_use]
    pub fn replace_program(mut self, stopped: bool) -> usize {
        if stopped {
            self.target.stop();
        }
        assert_eq!(self.initiator.request(&format!("become {}", self.len)), "ready");
        self.target.resume();
        let other = Actor::spawn(&self.program);
        let mut bystander = std::mem::replace(&mut self.initiator, other);
        self.written(&mut bystander)
    }

    /// The initiator is killed, and a new process gets its number: bytes of that which were written. `None` when that number
    /// cannot be had here.
    ///
    /// # Panics
    /// When there can be no such process.
    #[must_use]
    pub fn replace_process(mut self, stopped: bool) -> Option<usize> {
        if stopped {
            self.target.stop();
        }
        let number = self.initiator.pid();
        let other = Actor::spawn(&self.program);
        drop(std::mem::replace(&mut self.initiator, other));
        let bystander = process_of_number(&self.program, number, self.len);
        let ready = bystander.map(|mut b| (b.answer(), b));
        self.target.resume();
        let (said, mut bystander) = ready?;
        assert_eq!(said, Ok("ready".to_owned()));
        Some(self.written(&mut bystander))
    }
}

fn changed(bystander: &mut Actor) -> usize {
    bystander.request("?").parse().expect("a number")
}

/// A bystander whose process has that number: the kernel is told from where to count on (pid_namespaces(7)).
fn process_of_number(program: &str, number: u32, len: usize) -> Option<Actor> {
    for _ in 0..200 {
        std::fs::write("/proc/sys/kernel/ns_last_pid", (number - 1).to_string()).ok()?;
        let bystander = Actor::bystander(program, len);
        if bystander.pid() == number {
            return Some(bystander);
        }
        // Another process of this machine was faster. The number may be used, or free again.
    }
    None
}

/// The initiator calls execve(2) while a child of it has the stream, which ends with that child. The target does nothing
/// before it is asked to. Bytes of the new program that were written.
///
/// # Panics
/// When there can be no such processes.
#[must_use]
pub fn written_though_a_child_has_the_stream(program: &str) -> usize {
    let mut scene = Scene::with(program, 64 * MIB, "manual", "asked");
    scene.initiator.request("leave_child");
    assert_eq!(scene.initiator.request(&format!("become {}", scene.len)), "ready");
    while scene.target.request("progress") == "true" {}
    changed(&mut scene.initiator)
}

/// Programs that replaced the initiator, with and without a child that has its stream.
///
/// # Panics
/// As [`Scene::new`] does.
pub fn other_programs(context: &mut Context) -> Outcome {
    while context.again(2) {
        let written = match context.attempts() % 2 {
            0 => Scene::new(&context.actor, 64 * MIB).replace_program(true),
            _ => written_though_a_child_has_the_stream(&context.actor),
        };
        if written != 0 {
            return context.broken(format!("{written} bytes of another program were written"));
        }
    }
    context.held("no byte of the new program was written")
}

/// Processes that have the number of the initiator.
///
/// # Panics
/// As [`Scene::new`] does.
pub fn other_processes(context: &mut Context) -> Outcome {
    while context.again(3) {
        match Scene::new(&context.actor, 64 * MIB).replace_process(true) {
            None => return Outcome::skipped("a process number can be chosen by root only"),
            Some(0) => {}
            Some(n) => return context.broken(format!("{n} bytes of another process were written")),
        }
    }
    context.held("no byte of the new process was written")
}
