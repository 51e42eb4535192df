//! The hidden mode `--ops COUNT`: operations and nothing else, whose instructions callgrind counts.

use std::process::ExitCode;

use crate::instructions::Over;
use crate::rows::{session_ops, sim_ops, ucx_ops, verbs_ops};

/// Does just that many operations.
pub(crate) fn run(over: Over, count: u32) -> ExitCode {
    let done = match over {
        Over::Sim => {
            sim_ops::Rig::new(hmc_sim::nic::Bytes::Move).and_then(|mut rig| rig.rounds(count))
        }
        Over::SessionPut | Over::SessionRoute | Over::SessionNamed => {
            session_ops::run_ops(over, count)
        }
        Over::VerbsTransport | Over::VerbsLocal | Over::VerbsMany => {
            verbs_ops::run_ops(over, count)
        }
        _ => ucx_ops::run_ops(over, count),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("hmc-bench: {why}");
            ExitCode::FAILURE
        }
    }
}
