//! Collectives of an MPI library: a program of ours in C (`mpi_collectives.c`), which `mpicc` compiles and `mpirun` starts.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode};

use super::process::Running;
use crate::context::Folder;
use crate::error::{Res, text};

const SOURCE: &str = include_str!("mpi_collectives.c");
const INSTALL: &str = "`apt install openmpi-bin libopenmpi-dev`";
/// Options of Open MPI's `mpirun`: as root, with more processes than processors, where the system puts them, over shared
/// memory.
const OPTIONS: [&str; 10] = [
    "--allow-run-as-root",
    "--oversubscribe",
    "--bind-to",
    "none",
    "--mca",
    "pml",
    "ob1",
    "--mca",
    "btl",
    "self,vader",
];
/// Time limit of one reply.
const PATIENCE: Duration = Duration::from_secs(120);
/// For how long a job may take to end by itself.
const END: Duration = Duration::from_secs(5);

/// The compiled program, and what it was compiled with.
pub(crate) struct Mpi {
    program: PathBuf,
    version: String,
    folder: Folder,
}

impl Mpi {
    /// Compiles the program for vectors of up to `most` bytes.
    ///
    /// # Errors
    /// What is missing and how to install it, or what the compiler reports.
    pub(crate) fn compile(most: usize) -> Res<Self> {
        let version = run(Command::new("mpirun").arg("--version"))?;
        let version = version.lines().next().unwrap_or_default().to_owned();
        let folder = Folder::new(&std::env::temp_dir())?;
        let (source, program) = (folder.path().join("source.c"), folder.path().join("program"));
        std::fs::write(&source, SOURCE).map_err(text)?;
        let most = format!("-DMOST={most}");
        run(Command::new("mpicc").args(["-O2", &most, "-o"]).arg(&program).arg(&source))?;
        Ok(Self { program, version, folder })
    }

    /// The first line of `mpirun --version`.
    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    /// Starts `members` processes, which wait for commands. Within a collective a process that has nothing to do spins; with
    /// `yields` it lets others run on its processor, as Open MPI has it by itself only for more processes than processors.
    ///
    /// # Errors
    /// Why `mpirun` or a process cannot start.
    pub(crate) fn start(&self, members: u32, yields: bool) -> Res<Job> {
        let folder = Folder::new(self.folder.path())?;
        let mut pipes = Vec::new();
        for rank in 0..members {
            let path = folder.path().join(rank.to_string());
            rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
                .map_err(|e| format!("cannot make {}: {e}", path.display()))?;
            // Opened for reading as well, it neither waits for the other end nor fails without it.
            let pipe = File::options().read(true).write(true).open(&path).map_err(text)?;
            pipes.push(pipe);
        }
        let mut command = Command::new("mpirun");
        command.args(OPTIONS).args(["-np", &members.to_string()]);
        if yields {
            command.args(["--mca", "mpi_yield_when_idle", "1"]);
        }
        command.arg(&self.program).arg(folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut mpirun = Running(command.spawn().map_err(|e| missing("mpirun", &e))?);
        let stdout = mpirun.0.stdout.take().ok_or("no pipe from mpirun")?;
        let (send, replies) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        let job = Job { pipes, replies, _mpirun: mpirun, _folder: folder };
        job.receive()?;
        Ok(job)
    }
}

/// Processes of one `mpirun`. They end with the value.
pub(crate) struct Job {
    /// One for each rank.
    pipes: Vec<File>,
    replies: Receiver<String>,
    _mpirun: Running,
    _folder: Folder,
}

impl Job {
    /// Does the collective `name` of the C program `times` times. Returns nanoseconds for one.
    pub(crate) fn sample(&mut self, name: &str, len: usize, times: usize) -> Res<f64> {
        for pipe in &mut self.pipes {
            writeln!(pipe, "{name} {len} {times}").map_err(text)?;
        }
        self.receive()
    }

    fn receive(&self) -> Res<f64> {
        let line = self.replies.recv_timeout(PATIENCE).map_err(|e| format!("mpirun: {e}"))?;
        nanoseconds(&line)
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.pipes.clear();
        // mpirun is killed with its handle and would leave the processes behind. Its output ends when it has exited.
        while self.replies.recv_timeout(END).is_ok() {}
    }
}

/// Reads a reply. Any other line is a reason.
fn nanoseconds(line: &str) -> Res<f64> {
    let number = line.strip_prefix("ok ").and_then(|number| number.parse().ok());
    number.ok_or_else(|| format!("the MPI program: {line}"))
}

fn missing(program: &str, e: &std::io::Error) -> String {
    format!("cannot start {program}: {e}; {INSTALL}")
}

/// Runs a program to its end and returns its output.
fn run(command: &mut Command) -> Res<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let out = command.stdin(Stdio::null()).output().map_err(|e| missing(&name, &e))?;
    if out.status.success() {
        return Ok(String::from_utf8_lossy(&out.stdout).into_owned());
    }
    let why = String::from_utf8_lossy(&out.stderr).into_owned();
    Err(format!("{name}, {}: {}; {INSTALL}", out.status, why.lines().next().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::{SOURCE, nanoseconds, run};
    use std::process::Command;

    #[test]
    fn a_reply_is_a_number_and_all_else_a_reason() {
        assert_eq!(nanoseconds("ok 402.5"), Ok(402.5));
        for reason in ["a wrong result: Alltoall, at rank 1", "ok", "ok much", "402.5"] {
            assert_eq!(nanoseconds(reason), Err(format!("the MPI program: {reason}")));
        }
        assert!(SOURCE.contains("printf(\"ok %.1f\\n\""));
    }

    #[test]
    fn a_missing_program_is_one_line_with_what_to_install() {
        for (program, arguments) in [("/nowhere/mpicc", &[][..]), ("ls", &["/nowhere"])] {
            let why = run(Command::new(program).args(arguments)).expect_err("no program");
            assert!(why.contains("apt install openmpi-bin libopenmpi-dev"), "{why}");
            assert!(why.contains("/nowhere") && why.lines().count() == 1, "{why}");
        }
    }
}
