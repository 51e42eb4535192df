//! The command that the guest runs, with its arguments, environment, working directory and limits, and their file format.

use super::guest_id::GuestId;
use rustix::process::{Resource, getrlimit};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// Folders that are appended to `PATH` in the guest: the path of an unprivileged user often lacks `/usr/sbin`, which has `ip`.
const FOLDERS: [&str; 4] = ["/usr/local/bin", "/usr/bin", "/usr/local/sbin", "/usr/sbin"];

/// A command and the state of the process that runs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Task {
    /// The program and its arguments.
    pub(super) arguments: Vec<OsString>,
    /// The environment.
    pub(super) environment: Vec<(OsString, OsString)>,
    /// The working directory.
    pub(super) folder: PathBuf,
    /// The host name.
    pub(super) host: OsString,
    /// The soft and the hard limit of open files.
    pub(super) files: (u64, u64),
    /// The guest that runs it.
    pub(super) guest: GuestId,
}

impl Task {
    /// Returns the command for a guest, with the environment, working directory and limits of this process.
    ///
    /// # Errors
    /// A message if the working directory was removed.
    pub(super) fn here(arguments: &[OsString], guest: GuestId) -> Result<Self, String> {
        let folder = std::env::current_dir().map_err(|e| format!("the working directory: {e}"))?;
        let host = std::fs::read("/proc/sys/kernel/hostname").unwrap_or_default();
        let files = getrlimit(Resource::Nofile);
        Ok(Self {
            arguments: arguments.to_vec(),
            environment: std::env::vars_os().collect(),
            folder,
            host: OsStr::from_bytes(host.trim_ascii()).to_owned(),
            files: (files.current.unwrap_or(u64::MAX), files.maximum.unwrap_or(u64::MAX)),
            guest,
        })
    }

    /// Sets a variable of the environment.
    pub(crate) fn set(&mut self, name: &str, value: impl Into<OsString>) {
        self.environment.retain(|(n, _)| n != name);
        self.environment.push((name.into(), value.into()));
    }

    /// Appends the missing ones of [`FOLDERS`] to `PATH`.
    pub(crate) fn extend_path(&mut self) {
        let path = self.environment.iter().find(|(name, _)| name == "PATH");
        let mut folders: Vec<PathBuf> =
            path.map(|(_, value)| std::env::split_paths(value).collect()).unwrap_or_default();
        for folder in FOLDERS.map(PathBuf::from) {
            if !folders.contains(&folder) {
                folders.push(folder);
            }
        }
        // Folders that were split at colons contain none, so this cannot fail.
        if let Ok(path) = std::env::join_paths(folders) {
            self.set("PATH", path);
        }
    }

    /// Returns the content of the task file: a list of fields, each with a NUL byte at its end. No field can contain one.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let numbers = [
            self.files.0.to_string(),
            self.files.1.to_string(),
            self.guest.number.to_string(),
            self.guest.count.to_string(),
            self.arguments.len().to_string(),
        ];
        let mut bytes = Vec::new();
        let mut field = |parts: &[&[u8]]| {
            parts.iter().for_each(|part| bytes.extend_from_slice(part));
            bytes.push(0);
        };
        field(&[self.host.as_bytes()]);
        field(&[self.folder.as_os_str().as_bytes()]);
        numbers.iter().for_each(|number| field(&[number.as_bytes()]));
        self.arguments.iter().for_each(|argument| field(&[argument.as_bytes()]));
        for (name, value) in &self.environment {
            field(&[name.as_bytes(), b"=", value.as_bytes()]);
        }
        bytes
    }

    /// Parses the content of the task file. Returns `None` if it is incomplete or invalid.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut fields = bytes.strip_suffix(&[0])?.split(|byte| *byte == 0);
        let text = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
        let host = text(fields.next()?);
        let folder = PathBuf::from(text(fields.next()?));
        let mut number = || std::str::from_utf8(fields.next()?).ok()?.parse::<u64>().ok();
        let files = (number()?, number()?);
        let mut byte = || u8::try_from(number()?).ok();
        let guest = GuestId { number: byte()?, count: byte()? };
        let count = number()?;
        let arguments: Vec<_> = (0..count).map_while(|_| fields.next().map(text)).collect();
        if u64::try_from(arguments.len()).ok()? != count {
            return None;
        }
        let environment = fields
            .map(|field| {
                // The first byte belongs to the name even if it is `=`.
                let end = field.iter().skip(1).position(|byte| *byte == b'=')?.checked_add(1)?;
                let (name, value) = field.split_at_checked(end)?;
                Some((text(name), text(value.get(1..)?)))
            })
            .collect::<Option<_>>()?;
        Some(Self { arguments, environment, folder, host, files, guest })
    }
}

#[cfg(test)]
mod tests {
    use super::{GuestId, Task};
    use std::ffi::{OsStr, OsString};
    use std::os::unix::ffi::OsStrExt;

    fn task() -> Task {
        let text = |bytes: &[u8]| OsStr::from_bytes(bytes).to_owned();
        Task {
            arguments: [
                &b"a program"[..],
                b"",
                b"it's \"$HOME\" `x`",
                b"two\nlines\n",
                b"\xff\x01",
            ]
            .map(text)
            .to_vec(),
            environment: [
                (&b"A"[..], &b"b=c"[..]),
                (b"=odd", b""),
                (b"BASH_FUNC_f%%", b"() { :\n}"),
            ]
            .map(|(name, value)| (text(name), text(value)))
            .to_vec(),
            folder: "/a folder/with\nlines".into(),
            host: "host".into(),
            files: (1024, u64::MAX),
            guest: GuestId { number: 1, count: 2 },
        }
    }

    #[test]
    fn every_byte_survives_the_file_format() {
        let task = task();
        assert_eq!(Task::from_bytes(&task.to_bytes()), Some(task));
    }

    #[test]
    fn an_incomplete_file_is_refused() {
        let bytes = task().to_bytes();
        let begun = bytes.iter().position(|b| *b == b'A').unwrap();
        for end in 0..begun {
            assert_eq!(Task::from_bytes(&bytes[..end]), None, "the first {end} bytes");
        }
    }

    #[test]
    fn a_task_has_the_state_of_this_process() {
        let here = Task::here(&["x".into()], GuestId { number: 0, count: 1 }).unwrap();
        assert_eq!(here.folder, std::env::current_dir().unwrap());
        assert_eq!(here.environment, std::env::vars_os().collect::<Vec<_>>());
        assert!(here.files.0 > 0 && here.files.0 <= here.files.1);
    }

    #[test]
    fn missing_folders_are_appended_to_the_path() {
        for (before, after) in [
            (Some("/x:/usr/sbin"), "/x:/usr/sbin:/usr/local/bin:/usr/bin:/usr/local/sbin"),
            (None, "/usr/local/bin:/usr/bin:/usr/local/sbin:/usr/sbin"),
        ] {
            let mut task = task();
            if let Some(before) = before {
                task.set("PATH", before);
            }
            task.extend_path();
            assert_eq!(task.environment.last().unwrap(), &("PATH".into(), OsString::from(after)));
        }
    }
}
