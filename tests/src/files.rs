//! A process's descriptors, few or under way: what an actor does to itself.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Lowers how many descriptors this process may open, or raises it to the hard limit again.
///
/// # Panics
/// When the kernel refuses.
pub fn limit(files: u64) {
    let old = getrlimit(Resource::Nofile);
    let current = old.maximum.map_or(files, |m| m.min(files));
    let new = Rlimit { current: Some(current), maximum: old.maximum };
    setrlimit(Resource::Nofile, new).expect("below the hard limit");
}

/// Descriptors that were sent and not received. They have arrived when it is dropped.
#[derive(Debug)]
pub struct UnderWay {
    _near: UnixStream,
    _far: UnixStream,
}

impl UnderWay {
    /// As many as one message takes, less some.
    pub const COUNT: usize = 200;

    /// Sends them. It costs this process two descriptors.
    ///
    /// # Panics
    /// When the kernel refuses.
    #[must_use]
    pub fn begin() -> Self {
        let (near, far) = UnixStream::pair().expect("a pair");
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(Self::COUNT))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let input = std::io::stdin();
        let fds = [input.as_fd(); Self::COUNT];
        assert!(control.push(SendAncillaryMessage::ScmRights(&fds)), "space for all");
        sendmsg(&near, &[IoSlice::new(b"x")], &mut control, SendFlags::empty()).expect("sent");
        Self { _near: near, _far: far }
    }
}
