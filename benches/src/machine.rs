//! The machine under the measurement: its processors, this process's place on them, its memory.

use rustix::process::{Resource, Rlimit};
use rustix::thread::CpuSet;
use rustix::time::{ClockId, clock_gettime};

use crate::error::{Res, text};

/// The processors that this process may use.
pub(crate) fn cpus() -> Vec<usize> {
    match rustix::thread::sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU).filter(|c| set.is_set(*c)).collect(),
        Err(_) => Vec::new(),
    }
}

/// Keeps this thread, and those that it starts from now on, on one processor.
pub(crate) fn pin(cpu: usize) -> Res<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    rustix::thread::sched_setaffinity(None, &set)
        .map_err(|e| format!("cannot pin to processor {cpu}: {e}"))
}

/// Whether two processors are threads of one core, as the kernel has it.
pub(crate) fn share_core(one: usize, other: usize) -> bool {
    let core = |cpu: usize| {
        let of = |what: &str| {
            let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/{what}");
            std::fs::read_to_string(path).ok()
        };
        of("physical_package_id").zip(of("core_id"))
    };
    core(one).is_some_and(|core_of_one| core(other) == Some(core_of_one))
}

/// Lets this thread, and those and the processes that it starts from now on, run anywhere.
pub(crate) fn unpin() -> Res<()> {
    let mut set = CpuSet::new();
    for cpu in 0..CpuSet::MAX_CPU {
        set.set(cpu);
    }
    // sched_setaffinity(2): processors that are not there or not allowed are left out.
    rustix::thread::sched_setaffinity(None, &set).map_err(|e| format!("cannot unpin: {e}"))
}

/// Lets this process and its children open as many files as the hard limit allows.
pub(crate) fn raise_open_files() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    // Without it the row of the thousand peers says what it lacks.
    let _ = rustix::process::setrlimit(Resource::Nofile, raised);
}

/// Resident bytes of this process: `Rss` of /proc/self/smaps_rollup less pages of shared mappings
/// that are counted there once for each mapping (proc(5)).
pub(crate) fn resident_bytes() -> Res<u64> {
    let all = std::fs::read_to_string("/proc/self/smaps_rollup").map_err(text)?;
    all.lines()
        .find_map(|l| l.strip_prefix("Rss:")?.trim().strip_suffix("kB")?.trim().parse::<u64>().ok())
        .map(|kib| kib * 1024)
        .ok_or_else(|| "no Rss in /proc/self/smaps_rollup".to_owned())
}

/// Processor time of all threads of this process, in nanoseconds.
pub(crate) fn cpu_ns() -> f64 {
    let t = clock_gettime(ClockId::ProcessCPUTime);
    t.tv_sec as f64 * 1e9 + t.tv_nsec as f64
}

fn first_line(path: &str, key: &str) -> Option<String> {
    let all = std::fs::read_to_string(path).ok()?;
    all.lines()
        .find(|l| l.starts_with(key))
        .and_then(|l| l.split_once(':'))
        .map(|(_, v)| v.trim().to_owned())
}

/// One line about the machine, for reports.
pub(crate) fn describe() -> String {
    let model = first_line("/proc/cpuinfo", "model name")
        .unwrap_or_else(|| std::env::consts::ARCH.to_owned());
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load: Vec<_> = load.split_whitespace().take(1).collect();
    format!(
        "{} processors ({model}), Linux {}, load {} at the start",
        cpus().len(),
        kernel.trim(),
        load.join(" ")
    )
}
