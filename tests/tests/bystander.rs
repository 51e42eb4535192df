//! A process that was an initiator and is another program now, or whose number another process has: the target of its get
//! writes by process number, and must not write there.

use hmc_tests::attack::Context;
use hmc_tests::attack::bystanders::{
    Scene, other_processes, written_though_a_child_has_the_stream,
};
use hmc_tests::env::{number, skipped};

const ACTOR: &str = env!("CARGO_BIN_EXE_actor");
const MIB: usize = 1 << 20;
/// What a target copies between two looks, at the most.
const PIECE: usize = MIB;

#[test]
fn a_program_that_replaced_the_initiator_is_not_written() {
    for _ in 0..3 {
        let written = Scene::new(ACTOR, 64 * MIB).replace_program(true);
        assert_eq!(written, 0, "the stream ended before the copy began");
    }
}

/// execve(2) does not end the stream then. The target does nothing before it is asked to.
#[test]
fn a_program_that_replaced_the_initiator_is_not_written_though_a_child_has_the_stream() {
    assert_eq!(written_though_a_child_has_the_stream(ACTOR), 0, "bytes that were written");
}

#[test]
fn a_process_with_the_number_of_the_initiator_is_not_written() {
    other_processes(&mut Context::rounds(ACTOR, 3)).expect_held();
}

/// While the copy of `HMC_TEST_MIB` MiB runs, as often as `HMC_TEST_ROUNDS` says: at most the piece that was begun goes astray.
#[test]
fn under_a_running_copy_at_most_one_piece_goes_astray() {
    let rounds = number("HMC_TEST_ROUNDS", 2);
    let bytes = number("HMC_TEST_MIB", 128) * MIB;
    let (mut programs, mut processes, mut reused) = (Vec::new(), Vec::new(), 0u32);
    for _ in 0..rounds {
        programs.push(Scene::new(ACTOR, bytes).replace_program(false));
        if let Some(written) = Scene::new(ACTOR, bytes).replace_process(false) {
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
