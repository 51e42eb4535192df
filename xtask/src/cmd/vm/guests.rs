//! The guests of a run: one, or two that a cable connects. All run the same command.

use super::cable::Cable;
use super::guest_id::GuestId;
use super::machine::{Machine, RunResult};
use super::prefixed::Prefixed;
use super::run_folder::RunFolder;
use super::task::Task;
use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Variable with the path of the output folder.
const OUT: &str = "HMC_VM_OUT";
/// Variable with the number of the guest.
const GUEST: &str = "HMC_VM_GUEST";

/// What all guests of a run have in common.
pub(super) struct Guests<'a> {
    /// Their configuration.
    pub(super) machine: &'a Machine,
    /// Where run folders are created.
    pub(super) runs: &'a Path,
    /// The output folder.
    pub(super) out: &'a Path,
    /// Keep the run folders.
    pub(super) keep: bool,
}

impl Guests<'_> {
    /// Runs the command in `count` guests at the same time. Returns their results in the order of their numbers.
    ///
    /// # Errors
    /// A message if a VM fails; the other one is killed then.
    pub(super) fn run(&self, command: &[OsString], count: u8) -> Result<Vec<RunResult>, String> {
        let cable = if count > 1 { Some(Cable::create()) } else { None };
        let cable = cable.transpose().map_err(|e| format!("the cable between the guests: {e}"))?;
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (cable, stop) = (cable.as_ref(), &stop);
            let threads: Vec<_> = GuestId::all(count)
                .map(|guest| {
                    scope.spawn(move || {
                        let result = self.run_one(guest, command, cable, stop);
                        if result.is_err() {
                            stop.store(true, Ordering::Release);
                        }
                        result
                    })
                })
                .collect();
            threads
                .into_iter()
                .map(|t| t.join().unwrap_or_else(|_| Err("a thread panicked".to_owned())))
                .collect()
        })
    }

    fn run_one(
        &self,
        guest: GuestId,
        command: &[OsString],
        cable: Option<&Cable>,
        stop: &AtomicBool,
    ) -> Result<RunResult, String> {
        let failed = |e| format!("{}: {e}; --cache selects another folder", self.runs.display());
        let folder = RunFolder::create(self.runs, self.keep).map_err(failed)?;
        if self.keep {
            eprintln!("vm: the run folder is {}", folder.path().display());
        }
        let mut task = Task::here(command, guest)?;
        task.extend_path();
        task.set(OUT, self.out);
        task.set(GUEST, guest.number.to_string());
        let nic = cable.map(|cable| cable.arguments(guest));
        let outputs = (named(guest, std::io::stdout()), named(guest, std::io::stderr()));
        self.machine.run(&folder, &task, self.out, nic.as_slice().as_flattened(), outputs, stop)
    }
}

/// Returns an output of a guest. With two guests its lines begin with the guest's number.
fn named(guest: GuestId, output: impl Write + Send + 'static) -> Box<dyn Write + Send> {
    if guest.has_peer() {
        Box::new(Prefixed::new(output, format!("{}: ", guest.number)))
    } else {
        Box::new(output)
    }
}
