//! Runs the embedding with an operating system below, on a stack of 64 KiB.
//!
//! `cargo run` in this project's folder. `cargo xtask nostd` runs the same library without any
//! operating system.

use embedded::board::Storage;
use std::process::ExitCode;

/// The stack that the whole walkthrough fits, in a build without optimisation.
const STACK_BYTES: usize = 64 * 1024;

fn main() -> ExitCode {
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(|| {
        let mut storage = Storage::new();
        embedded::run(&mut storage)
    });
    match thread.map(std::thread::JoinHandle::join) {
        Ok(Ok(Ok(report))) => {
            println!(
                "{} bytes put and got back in {} turns, {} heartbeats",
                report.bytes, report.turns, report.beats
            );
            ExitCode::SUCCESS
        }
        Ok(Ok(Err(fault))) => {
            eprintln!("the embedding failed: {fault}");
            ExitCode::FAILURE
        }
        Ok(Err(_)) | Err(_) => {
            eprintln!("the embedding's thread could not be started, or panicked");
            ExitCode::FAILURE
        }
    }
}
