//! The Ethernet cable between two guests: a datagram socket at each end.
//!
//! QEMU sends each frame as one datagram to the socket of the other guest. While that one does not run, frames are lost, as
//! with a host that is switched off.

use super::guest_id::GuestId;
use super::qemu_option::with_paths;
use std::ffi::OsString;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The sockets, in a folder that the drop removes. Its path is short, since that of a socket has at most 107 bytes.
#[derive(Debug)]
pub(super) struct Cable(PathBuf);

impl Cable {
    /// Creates the folder.
    ///
    /// # Errors
    /// An I/O error.
    pub(super) fn create() -> io::Result<Self> {
        Self::within(Path::new("/tmp"))
    }

    fn within(parent: &Path) -> io::Result<Self> {
        let folder = parent.join(format!("hmc-vm-{}", std::process::id()));
        std::fs::DirBuilder::new().mode(0o700).create(&folder)?;
        Ok(Self(folder))
    }

    /// Returns QEMU's arguments for the NIC of a guest.
    pub(super) fn arguments(&self, guest: GuestId) -> [OsString; 4] {
        let socket = |number: u8| self.0.join(number.to_string());
        let (ours, theirs) = (socket(guest.number), socket(1_u8.saturating_sub(guest.number)));
        let start = "dgram,id=cable,local.type=unix,remote.type=unix";
        let sockets = [("local.path", ours.as_path()), ("remote.path", theirs.as_path())];
        // An empty ROM file: the guest does not boot from the network.
        let nic = format!(
            "virtio-net-pci,netdev=cable,mac=02:00:00:00:00:{:02x},host_mtu=4500,romfile=",
            guest.host_number()
        );
        ["-netdev".into(), with_paths(start, &sockets, ""), "-device".into(), nic.into()]
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        // A folder that remains is in the way of no other process.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::Cable;
    use crate::cmd::vm::guest_id::GuestId;

    #[test]
    fn each_end_sends_to_the_other() {
        let parent = std::env::temp_dir().join(format!("hmc-cable-{}", std::process::id()));
        std::fs::create_dir_all(&parent).unwrap();
        let cable = Cable::within(&parent).unwrap();
        let ends: Vec<_> = GuestId::all(2).map(|guest| cable.arguments(guest)).collect();
        let has = |end: usize, text: &str| {
            ends[end].iter().any(|argument| argument.to_string_lossy().contains(text))
        };
        let folder = cable.0.display().to_string();
        assert!(has(0, &format!("local.path={folder}/0,remote.path={folder}/1")));
        assert!(has(1, &format!("local.path={folder}/1,remote.path={folder}/0")));
        assert!(has(0, "mac=02:00:00:00:00:01") && has(1, "mac=02:00:00:00:00:02"));
        drop(cable);
        // Fails if the folder of the cable remains.
        std::fs::remove_dir(parent).unwrap();
    }
}
