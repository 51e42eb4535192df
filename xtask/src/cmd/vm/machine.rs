//! A run of the VM: start of QEMU, copy of the outputs, end.

use super::accelerator::Accelerator;
use super::ending::{Ending, TIMED_OUT};
use super::image::Image;
use super::qemu::ends_within;
use super::qemu_option::with_paths;
use super::run_folder::RunFolder;
use super::stream::Reader;
use super::task::Task;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Interval of the checks for the end of a run.
const INTERVAL: Duration = Duration::from_millis(50);

/// Command line of the kernel. Checks for late timers and stalled processors are off, since a busy host delays the guest; that of the
/// processors' cycle counters would take them for unsynchronized, and each reading of the clock for a system call and an access to an
/// emulated device, which costs more than a short put. The guest program requires the last word.
const KERNEL_LINE: &str = "console=ttyS0 panic=-1 quiet mitigations=off random.trust_cpu=on no_timer_check nowatchdog tsc=reliable rcupdate.rcu_cpu_stall_suppress=1 hmc_vm=1";

/// Configuration of a VM.
#[derive(Debug)]
pub(crate) struct Machine {
    /// The image.
    pub(super) image: Image,
    /// The accelerator.
    pub(super) accelerator: Accelerator,
    /// The memory in MiB.
    pub(super) memory: u32,
    /// The number of processors.
    pub(super) processors: u8,
    /// The time limit of a run.
    pub(super) limit: Duration,
}

/// Result of a run.
#[derive(Debug)]
pub(crate) struct RunResult {
    /// The ending of the command; `None` if the time limit was reached.
    pub(super) ending: Option<Ending>,
    /// The duration of the run.
    pub(super) time: Duration,
}

impl RunResult {
    /// Returns the exit status of the command, or [`TIMED_OUT`].
    pub(super) fn status(&self) -> u8 {
        self.ending.as_ref().map_or(TIMED_OUT, Ending::status)
    }
}

impl Machine {
    /// Runs a task and copies its outputs to `outputs` as they arrive. `out` is the output folder, and `nic` has the arguments
    /// of QEMU for a NIC. The VM is killed once `stop` is set.
    ///
    /// # Errors
    /// A message if the VM ends before the command does, or an output cannot be written.
    pub(crate) fn run(
        &self,
        folder: &RunFolder,
        task: &Task,
        out: &Path,
        nic: &[OsString],
        mut outputs: (impl Write + Send, impl Write + Send),
        stop: &AtomicBool,
    ) -> Result<RunResult, String> {
        folder.prepare(task, out).map_err(|e| format!("{}: {e}", folder.path().display()))?;
        let log = File::create(folder.qemu_log()).map_err(|e| format!("the log of QEMU: {e}"))?;
        let mut command = self.image.qemu.command()?;
        command.args(self.arguments(folder, out)).args(nic);
        let second = log.try_clone().map_err(|e| format!("the log of QEMU: {e}"))?;
        command.stdin(Stdio::null()).stdout(second).stderr(log);
        let started = Instant::now();
        let mut qemu = command.spawn().map_err(|e| format!("cannot start QEMU: {e}"))?;
        let over = AtomicBool::new(false);
        let mut first = Reader::new(folder.path(), "stdout");
        let mut second = Reader::new(folder.path(), "stderr");
        let copied = std::thread::scope(|scope| {
            let first = scope.spawn(|| first.copy(&mut outputs.0, &over));
            let second = scope.spawn(|| second.copy(&mut outputs.1, &over));
            // A thread ends before the VM only if it fails.
            let is_copying = || !first.is_finished() && !second.is_finished();
            let is_stopped = || stop.load(Ordering::Acquire);
            while is_copying()
                && !is_stopped()
                && folder.ending().is_none()
                && started.elapsed() < self.limit
            {
                if ends_within(&qemu, INTERVAL) {
                    break;
                }
            }
            // Fails if QEMU has ended.
            let _ = qemu.kill();
            let ended = qemu.wait();
            over.store(true, Ordering::Release);
            let joined = |thread: std::thread::ScopedJoinHandle<'_, io::Result<()>>| {
                thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))
            };
            joined(first).and(joined(second)).and(ended.map(drop))
        });
        let time = started.elapsed();
        copied.map_err(|e| format!("an output of the command cannot be copied: {e}"))?;
        let ending = folder.ending();
        if ending.is_none() && time < self.limit && !stop.load(Ordering::Acquire) {
            let what = "the VM ended before the command; its last output:";
            return Err(format!("{what}\n{}", folder.tail()));
        }
        Ok(RunResult { ending, time })
    }

    /// Returns the arguments of QEMU.
    fn arguments(&self, folder: &RunFolder, out: &Path) -> Vec<OsString> {
        let mut all: Vec<OsString> = Vec::new();
        let mut add = |words: &[&str]| all.extend(words.iter().map(OsString::from));
        add(&["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
        add(&self.accelerator.arguments());
        add(&["-m", &self.memory.to_string(), "-smp", &self.processors.to_string()]);
        add(&["-append", KERNEL_LINE]);
        let mut file = |option: &str, path: &Path| all.extend([option.into(), path.into()]);
        file("-kernel", &self.image.kernel());
        file("-initrd", &self.image.initramfs());
        all.extend(["-serial".into(), "chardev:console".into()]);
        let console = with_paths("file,id=console", &[("path", &folder.console())], "");
        all.extend(["-chardev".into(), console]);
        let tools = self.image.tools();
        for (name, path, more) in [
            ("run", folder.path(), ""),
            ("out", out, ""),
            ("host", Path::new("/"), ",readonly=on"),
            ("tools", &tools, ",readonly=on"),
        ] {
            let start = format!("local,id={name},security_model=none,multidevs=remap");
            all.extend(["-fsdev".into(), with_paths(&start, &[("path", path)], more)]);
            let device = format!("virtio-9p-pci,fsdev={name},mount_tag={name}");
            all.extend(["-device".into(), device.into()]);
        }
        all
    }
}
