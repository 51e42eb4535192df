//! The file with the secret by which processes prove that they belong to one user.

use std::io::{ErrorKind as IoKind, Read as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use hmc_core::types::Rank;
use hmc_core::wire::hello::Hello;
use hmc_core::wire::proof::{Challenge, NONCE_BYTES, Proof, Role, transcript};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::base::entropy::random;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::lock::lock;
use crate::base::paths::{absolute, private_dir};

/// Bytes of a secret that is made here, and the fewest of one that is given.
const SECRET_BYTES: usize = 32;
/// What is read of a file at the most.
const MOST_BYTES: u64 = 4096;
/// What the key is derived for.
const CONTEXT: &str = "HMC native dialect 2: proof of the same user";

/// Where the secret of a session is.
#[derive(Clone, Debug)]
pub(crate) enum SecretPlace {
    /// In the user's own folder of control sockets, which is made if needed.
    Own(PathBuf),
    /// In a file that was named.
    Named(PathBuf),
}

impl SecretPlace {
    pub(crate) fn named(file: &Path) -> Self {
        Self::Named(absolute(file))
    }

    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::Own(path) | Self::Named(path) => path,
        }
    }
}

impl SecretPlace {
    /// The secret, or what to do where it cannot be had.
    pub(crate) fn secret(&self) -> Result<Secret> {
        Secret::load(self).map_err(|e| match e.kind() {
            // The file is not what is missing.
            ErrorKind::SystemLimit => e,
            _ => Error::new(ErrorKind::NoCredentials, e.to_string())
                .with_remedy(self.hint())
                .with_source(e),
        })
    }

    pub(crate) fn hint(&self) -> String {
        format!(
            "over loopback both ends prove that they belong to the same user by the secret in one file, {} here: name one \
             file for both with HMC_SECRET_FILE (containers), or allow any local process by name at both ends \
             (insecure_loopback)",
            self.path().display()
        )
    }
}

/// The key of this user's proofs.
#[derive(Clone)]
pub(crate) struct Secret([u8; 32]);

impl Secret {
    /// Reads the secret, or makes it.
    pub(crate) fn load(place: &SecretPlace) -> Result<Self> {
        let path = match place {
            SecretPlace::Own(path) => {
                if let Some(dir) = path.parent() {
                    private_dir(dir)?;
                }
                path
            }
            SecretPlace::Named(path) => path,
        };
        let failed = |what: &str, e: Errno| match e {
            // open(2), O_NOFOLLOW.
            Errno::LOOP => unfit(path, "is a link"),
            e => Error::io(format_args!("cannot {what} {}", path.display()), e),
        };
        let fd = match open(path) {
            Err(Errno::NOENT) => {
                make(path).map_err(|e| failed("make", e))?;
                open(path).map_err(|e| failed("open", e))?
            }
            opened => opened.map_err(|e| failed("open", e))?,
        };
        let bytes = checked(fd, path)?;
        Ok(Self(blake3::derive_key(CONTEXT, &bytes)))
    }

    pub(crate) fn prove(
        &self,
        role: Role,
        hello: &Hello<'_>,
        acceptor: Rank,
        nonce: &[u8; NONCE_BYTES],
    ) -> Proof {
        let mut hash = blake3::Hasher::new_keyed(&self.0);
        hash.update(&transcript(role, hello, acceptor, nonce));
        hash.update(hello.endpoints.as_bytes());
        Proof(*hash.finalize().as_bytes())
    }

    /// What an acceptor says to that HELLO, and what the dialer must answer.
    pub(crate) fn challenge(
        &self,
        hello: &Hello<'_>,
        rank: Rank,
        nonce: [u8; NONCE_BYTES],
    ) -> (Challenge, Proof) {
        let proof = self.prove(Role::Acceptor, hello, rank, &nonce);
        let must = self.prove(Role::Dialer, hello, rank, &nonce);
        (Challenge { rank, nonce, proof }, must)
    }
}

fn open(path: &Path) -> std::result::Result<OwnedFd, Errno> {
    // NONBLOCK: a FIFO of that name must not hold us up.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    rustix::fs::open(path, flags, Mode::empty())
}

/// Makes the file whole before it has its name: whoever finds it can read all of it.
fn make(path: &Path) -> std::result::Result<(), Errno> {
    let fail = |_| Errno::IO;
    let suffix = u64::from_le_bytes(random().map_err(fail)?);
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{suffix:016x}"));
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let fd = rustix::fs::open(&name, flags, Mode::RUSR | Mode::WUSR)?;
    let bytes: [u8; SECRET_BYTES] = random().map_err(fail)?;
    let written = rustix::io::write(&fd, &bytes);
    let linked = match written {
        Ok(SECRET_BYTES) => rustix::fs::linkat(CWD, &name, CWD, path, AtFlags::empty()),
        Ok(_) => Err(Errno::NOSPC),
        Err(e) => Err(e),
    };
    let _ = rustix::fs::unlink(&name);
    match linked {
        // Another process was faster: its secret is the one.
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(e) => Err(e),
    }
}

/// What lies at `path` is not what keeps a secret.
fn unfit(path: &Path, what: &str) -> Error {
    let at = path.display();
    let what = format!(
        "{at} {what}: the secret of this user's sessions needs a file of its own, mode 0600"
    );
    Error::new(ErrorKind::NoCredentials, what)
}

/// Whether others than its owner may read or write a file of that mode.
fn is_open_to_others(mode: u32) -> bool {
    mode & 0o077 != 0
}

/// The bytes of a secret that nobody else can read.
fn checked(fd: OwnedFd, path: &Path) -> Result<Vec<u8>> {
    let at = path.display();
    let stat =
        rustix::fs::fstat(&fd).map_err(|e| Error::io(format_args!("cannot look at {at}"), e))?;
    let me = rustix::process::geteuid().as_raw();
    let what = if !FileType::from_raw_mode(stat.st_mode).is_file() {
        "is no file"
    } else if stat.st_uid != me && stat.st_uid != 0 {
        "belongs to another user"
    } else if is_open_to_others(stat.st_mode) {
        "can be read by other users (chmod 600)"
    } else {
        ""
    };
    if !what.is_empty() {
        return Err(unfit(path, what));
    }
    let mut bytes = Vec::new();
    match std::fs::File::from(fd).take(MOST_BYTES).read_to_end(&mut bytes) {
        Ok(n) if n >= SECRET_BYTES => Ok(bytes),
        Ok(_) => Err(unfit(path, "has less than 32 bytes (remove it, and another one is made)")),
        Err(e) if e.kind() == IoKind::PermissionDenied => Err(unfit(path, "cannot be read")),
        Err(e) => Err(Error::io(
            format_args!("cannot read {at}"),
            Errno::from_io_error(&e).unwrap_or(Errno::IO),
        )),
    }
}

/// How old a file's last change must be before what is read of it is kept, in nanoseconds: inode(7) times are those of the
/// kernel's last tick, or of a file system's last second, so that a change right after another one may not show.
const SETTLED_NS: u64 = 2_000_000_000;

/// By what a change of the secret's file shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Look {
    file: (u64, u64),
    bytes: i64,
    owner: (u32, u32),
    mode: u32,
    written: (i64, u64),
    changed: (i64, u64),
}

impl Look {
    fn at(path: &Path) -> Option<Self> {
        let stat = rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        Some(Self {
            file: (stat.st_dev, stat.st_ino),
            bytes: stat.st_size,
            owner: (stat.st_uid, rustix::process::geteuid().as_raw()),
            mode: stat.st_mode,
            written: (stat.st_mtime, stat.st_mtime_nsec),
            changed: (stat.st_ctime, stat.st_ctime_nsec),
        })
    }

    /// Whether any change from that time on would show.
    fn is_settled(&self, unix_ns: u64) -> bool {
        let seconds = u64::try_from(self.changed.0).unwrap_or(0);
        let changed = seconds.saturating_mul(1_000_000_000).saturating_add(self.changed.1);
        unix_ns >= changed.saturating_add(SETTLED_NS)
    }
}

/// What was read of a secret's file.
#[derive(Clone)]
struct Kept {
    look: Look,
    secret: Secret,
}

/// The secret of a session: one that was handed in, or that of a file as long as that stays what it was. One that is lost and made
/// again counts at once.
#[derive(Default)]
pub(crate) struct KeptSecret {
    given: Option<Secret>,
    kept: Mutex<Option<Kept>>,
}

impl From<[u8; 32]> for KeptSecret {
    fn from(key: [u8; 32]) -> Self {
        Self { given: Some(Secret(key)), ..Self::default() }
    }
}

impl KeptSecret {
    /// The secret that is there now; `unix_ns` is the time since the epoch in nanoseconds.
    pub(crate) fn of(&self, place: &SecretPlace, unix_ns: u64) -> Result<Secret> {
        if let Some(given) = &self.given {
            return Ok(given.clone());
        }
        let look = Look::at(place.path());
        let kept = lock(&self.kept).clone().filter(|kept| Some(kept.look) == look);
        if let Some(kept) = kept {
            return Ok(kept.secret);
        }
        let secret = place.secret()?;
        let is_kept =
            |look: &Look| look.is_settled(unix_ns) && Look::at(place.path()) == Some(*look);
        *lock(&self.kept) = look.filter(is_kept).map(|look| Kept { look, secret: secret.clone() });
        Ok(secret)
    }
}

#[cfg(test)]
mod tests {
    use super::{CONTEXT, KeptSecret, Look, SETTLED_NS, Secret, SecretPlace, make, open};
    use crate::base::error::ErrorKind;
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt, chown, symlink};

    fn scratch(name: &str) -> std::path::PathBuf {
        let dir = std::env::temp_dir().join(format!("hmc-proof-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        dir
    }

    #[test]
    fn the_secret_is_made_once_for_nobody_else() {
        let dir = scratch("own");
        let path = dir.join("secret");
        let place = SecretPlace::Own(path.clone());
        let keys: Vec<_> = std::thread::scope(|s| {
            let all: Vec<_> =
                (0..8).map(|_| s.spawn(|| Secret::load(&place).expect("a secret").0)).collect();
            all.into_iter().map(|t| t.join().expect("no panic")).collect()
        });
        assert!(keys.iter().all(|k| Some(k) == keys.first()), "all read the same");
        let mode = |p| std::fs::metadata(p).expect("there").permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(&dir)), (0o600, 0o700));
        assert_eq!(std::fs::read_dir(&dir).expect("a folder").count(), 1, "nothing else is left");
        std::fs::remove_dir_all(&dir).expect("clean");
    }

    #[test]
    fn a_secret_is_kept_as_long_as_its_file_stays_the_same() {
        let dir = scratch("kept");
        let path = dir.join("secret");
        let place = SecretPlace::Own(path.clone());
        let kept = KeptSecret::default();
        let is_kept = || super::lock(&kept.kept).is_some();
        let first = kept.of(&place, 0).expect("made");
        let look = Look::at(&path).expect("it is there");
        let (seconds, ns) = look.changed;
        let later =
            u64::try_from(seconds).expect("after the epoch") * 1_000_000_000 + ns + SETTLED_NS;
        assert_eq!(kept.of(&place, later - 1).expect("read").0, first.0);
        assert!(!is_kept(), "it is too new");
        assert_eq!(kept.of(&place, later).expect("read").0, first.0);
        assert!(is_kept());
        // The folder is looked at when the file is read only.
        let open = |mode| std::fs::set_permissions(&dir, PermissionsExt::from_mode(mode));
        open(0o755).expect("ours");
        assert_eq!(kept.of(&place, later).expect("kept").0, first.0);
        open(0o700).expect("ours");
        std::fs::write(&path, [1; 40]).expect("in place");
        assert_eq!(kept.of(&place, 0).expect("read").0, blake3::derive_key(CONTEXT, &[1; 40]));
        std::fs::remove_file(&path).expect("there");
        let other = kept.of(&place, later).expect("made again");
        assert_ne!(other.0, first.0);
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).expect("ours");
        assert!(kept.of(&place, later).is_err(), "others can read it");
        std::fs::remove_dir_all(&dir).expect("clean");
    }

    #[test]
    fn a_secret_that_was_handed_in_needs_no_file() {
        let place = SecretPlace::Named("/none".into());
        assert_eq!(KeptSecret::from([3; 32]).of(&place, 0).expect("it is given").0, [3; 32]);
        assert!(KeptSecret::default().of(&SecretPlace::Named("/none/none".into()), 0).is_err());
    }

    /// That it is refused, for lack of credentials, and by its name.
    fn refused(path: &std::path::Path, why: &str) {
        for place in [SecretPlace::Named(path.into()), SecretPlace::Own(path.into())] {
            let Err(e) = place.secret() else { panic!("{why}: a secret") };
            assert_eq!(e.kind(), ErrorKind::NoCredentials, "{e}");
            let said = e.to_string();
            assert!(said.contains(why) && said.contains(&path.display().to_string()), "{said}");
            assert!(said.contains("HMC_SECRET_FILE"), "what to do: {said}");
        }
    }

    #[test]
    fn what_is_no_file_of_this_user_alone_is_refused() {
        let dir = scratch("named");
        std::fs::DirBuilder::new().mode(0o700).create(&dir).expect("new");
        let path = dir.join("key");
        let place = SecretPlace::Named(path.clone());
        let mode = |mode| std::fs::set_permissions(&path, PermissionsExt::from_mode(mode));
        std::fs::write(&path, [1; 32]).expect("writable");
        for open in [0o644, 0o640, 0o604, 0o620, 0o602, 0o610] {
            mode(open).expect("ours");
            refused(&path, "chmod 600");
        }
        for closed in [0o400, 0o600] {
            mode(closed).expect("ours");
            let Ok(Secret(key)) = place.secret() else { panic!("mode {closed:o}") };
            assert_eq!(key, blake3::derive_key(CONTEXT, &[1; 32]));
        }
        // The name of a file does not matter, and its owner does.
        let other = dir.join("other");
        std::fs::hard_link(&path, &other).expect("new");
        assert!(SecretPlace::Named(other.clone()).secret().is_ok());
        if chown(&other, Some(65_534), None).is_ok() {
            refused(&path, "belongs to another user");
            chown(&path, Some(0), None).expect("root's");
        }
        for short in [0, 1, 31] {
            std::fs::write(&path, vec![1; short]).expect("writable");
            refused(&path, "less than 32 bytes");
        }
        for (name, target) in [("link", &path), ("dangling", &dir.join("none"))] {
            let link = dir.join(name);
            symlink(target, &link).expect("new");
            refused(&link, "is a link");
        }
        assert!(!dir.join("none").exists(), "nothing was made through a link");
        let fifo = dir.join("fifo");
        mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("new");
        refused(&fifo, "is no file");
        let folder = dir.join("folder");
        std::fs::DirBuilder::new().mode(0o700).create(&folder).expect("new");
        refused(&folder, "is no file");
        std::fs::remove_dir_all(&dir).expect("clean");
    }

    /// A program that this process starts meanwhile has no way to the secret.
    #[test]
    fn the_file_is_closed_in_a_program_that_is_started() {
        let dir = scratch("exec");
        std::fs::create_dir(&dir).expect("a folder");
        let path = dir.join("secret");
        make(&path).expect("made");
        let flags = rustix::io::fcntl_getfd(open(&path).expect("a file")).expect("its flags");
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
        let _ = std::fs::remove_dir_all(&dir);
    }
}
