//! `hmc put` of a file over shared memory, file to file in /dev/shm, against `cp` of it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use crate::context::{Context, Folder};
use crate::error::{Res, text};
use crate::line::Line;
use crate::measure::interleave;
use crate::row::{Row, size};

const MEMORY: &str = "/dev/shm";
/// How long a server may take until it says that it listens.
const PATIENCE: Duration = Duration::from_secs(20);

/// The row.
pub(crate) struct FilePut;

/// The server, ended with this value.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Row for FilePut {
    fn name(&self) -> &'static str {
        "file-put"
    }

    fn unit(&self) -> &'static str {
        "GB/s"
    }

    fn reference(&self) -> &'static str {
        "cp of the file within /dev/shm"
    }

    fn target(&self) -> &'static str {
        ">= 0.5"
    }

    fn run(&self, context: &Context) -> Res<Vec<Line>> {
        let hmc = beside("hmc")?;
        let bytes: u64 = context.pick(256 << 20, 1 << 30);
        check_free_space(3 * bytes)?;
        let folder = Folder::new(Path::new(MEMORY))?;
        let file = folder.path().join("file.bin");
        write_file(&file, bytes)?;
        let sockets = Folder::new(&std::env::temp_dir())?;
        let into = folder.path().join("into");
        std::fs::create_dir(&into).map_err(text)?;
        // Both programs may use every processor, as they would for a user.
        let _unpinned = context.unpinned()?;
        let _server = serve(&hmc, sockets.path(), &into)?;
        let copy = folder.path().join("copy.bin");
        let arrived = into.join("file.bin");
        let pairs = interleave(
            context.pick(3, 5),
            || {
                let _ = std::fs::remove_file(&copy);
                let _ = std::fs::remove_file(&arrived);
                let ns = run(Command::new(&hmc)
                    .arg("put")
                    .arg(&file)
                    .arg("--uds")
                    .arg(sockets.path())
                    .args(["--peer", "1", "--via", "shm"]))?;
                let got = std::fs::metadata(&arrived)
                    .map_err(|e| format!("{}: {e}", arrived.display()))?;
                if got.len() != bytes {
                    return Err(format!("{} bytes arrived of {bytes}", got.len()));
                }
                context.delay.waste(ns);
                Ok(ns * (1.0 + context.delay.0))
            },
            || {
                let _ = std::fs::remove_file(&copy);
                let _ = std::fs::remove_file(&arrived);
                run(Command::new("cp").arg(&file).arg(&copy))
            },
        )?;
        Ok(vec![Line::bandwidth(
            format!("hmc put of a {} file, shm", size(bytes)),
            bytes,
            &pairs,
            Some(0.5),
        )])
    }
}

/// The program of that name that was built together with this one.
fn beside(name: &str) -> Res<PathBuf> {
    let exe = std::env::current_exe().map_err(text)?;
    let path = exe.with_file_name(name);
    if path.exists() {
        return Ok(path);
    }
    Err(format!("no {} there; build hmc-cli in the same profile", path.display()))
}

fn check_free_space(bytes: u64) -> Res<()> {
    let s = rustix::fs::statvfs(MEMORY).map_err(|e| format!("{MEMORY}: {e}"))?;
    let free = s.f_bavail * s.f_frsize;
    if free > bytes {
        return Ok(());
    }
    Err(format!("{MEMORY} has {free} bytes free, {bytes} are needed"))
}

/// Bytes that do not repeat soon and are not zero.
fn write_file(path: &Path, bytes: u64) -> Res<()> {
    let mut block = vec![0u8; 1 << 20];
    let mut x = 88_172_645_463_325_252_u64;
    for word in block.chunks_exact_mut(8) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        word.copy_from_slice(&x.to_le_bytes());
    }
    let mut file = std::fs::File::create(path).map_err(|e| format!("{}: {e}", path.display()))?;
    for n in 0..bytes >> 20 {
        block[..8].copy_from_slice(&n.to_le_bytes());
        file.write_all(&block).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(())
}

/// Starts `hmc serve` and waits until it says something or its socket is there.
fn serve(hmc: &Path, sockets: &Path, into: &Path) -> Res<Server> {
    let mut child = Command::new(hmc)
        .args(["serve", "--rank", "1", "--overwrite", "--uds"])
        .arg(sockets)
        .arg("--into")
        .arg(into)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| format!("cannot start hmc serve: {e}"))?;
    let stdout = child.stdout.take();
    let server = Server(child);
    let stdout = stdout.ok_or("no pipe")?;
    let (send, lines) = channel();
    // Ends with the server; reading on keeps its pipe from filling.
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            let _ = send.send(line);
        }
    });
    lines.recv_timeout(PATIENCE).map_err(|_| "hmc serve did not say that it listens".to_owned())?;
    Ok(server)
}

/// Nanoseconds that a program takes.
fn run(command: &mut Command) -> Res<f64> {
    let begun = Instant::now();
    let out = command
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("cannot start {}: {e}", command.get_program().display()))?;
    let ns = begun.elapsed().as_nanos() as f64;
    if out.status.success() {
        return Ok(ns);
    }
    let words = String::from_utf8_lossy(&out.stderr);
    Err(format!(
        "{} failed: {}",
        command.get_program().display(),
        words.lines().last().unwrap_or_default()
    ))
}
