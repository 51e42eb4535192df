//! Small messages to and from one peer.

use super::Peer;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::wait_limit::WaitStopped;
use crate::link::{Link, LinkState, WaitScope};
use crate::node::inbox::{Message, Want};
use hmc_core::limits::MAX_FRAME_BYTES;
use hmc_core::range::{Extent, Side};
use hmc_core::types::ConnType;
use hmc_core::wire::message::ControlMessage;
use hmc_mem::error::MemError;
use hmc_mem::shared::SharedBytes;
use std::time::Duration;

impl Peer {
    /// Sends a tag. It arrives in order with other messages; bytes of puts that were waited for
    /// before can be read by whoever receives it. The system has it when this returns: it reaches the
    /// peer even if this process ends now.
    ///
    /// # Errors
    /// `PeerDead`, `Closed`; `DeadlineExceeded` or `Interrupted` when the peer does not receive.
    pub fn send_tag(&self, tag: u64) -> Result<()> {
        self.send(&ControlMessage::Tag(tag), self.shared.config.deadline)
    }

    /// As [`Peer::send_tag`], within `timeout`.
    ///
    /// # Errors
    /// As [`Peer::send_tag`].
    pub fn send_tag_within(&self, tag: u64, timeout: Duration) -> Result<()> {
        self.send(&ControlMessage::Tag(tag), timeout)
    }

    /// Sends a 32-bit number.
    ///
    /// # Errors
    /// As [`Peer::send_tag`].
    pub fn send_int(&self, n: i32) -> Result<()> {
        self.send(&ControlMessage::Int32(n), self.shared.config.deadline)
    }

    /// Sends opaque bytes, at most 1 MiB.
    ///
    /// # Errors
    /// As [`Peer::send_tag`]; `Range` when they are too long.
    pub fn send_struct(&self, bytes: &[u8]) -> Result<()> {
        self.send_struct_within(bytes, self.shared.config.deadline)
    }

    /// As [`Peer::send_struct`], within `timeout`.
    ///
    /// # Errors
    /// As [`Peer::send_struct`].
    pub fn send_struct_within(&self, bytes: &[u8], timeout: Duration) -> Result<()> {
        let len = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        Extent::new(u64::from(MAX_FRAME_BYTES)).span(Side::Local, 0, len)?;
        self.send(&ControlMessage::Struct(bytes), timeout)
    }

    /// As [`Peer::send_struct_within`], for bytes that others may write meanwhile: a copy of them is sent.
    ///
    /// # Errors
    /// As [`Peer::send_struct`].
    #[doc(hidden)]
    pub fn send_struct_view(&self, bytes: SharedBytes<'_>, timeout: Duration) -> Result<()> {
        let all = bytes.extent().whole();
        // Before as much memory is taken.
        Extent::new(u64::from(MAX_FRAME_BYTES)).span(Side::Local, 0, all.len())?;
        let mut copy = vec![0; usize::try_from(all.len()).unwrap_or(0)];
        bytes.read_at(all, &mut copy).map_err(MemError::from)?;
        self.send_struct_within(&copy, timeout)
    }

    /// Sends a message, waiting for space when the peer does not read as fast as we send.
    fn send(&self, m: &ControlMessage<'_>, timeout: Duration) -> Result<()> {
        self.shared.check_process()?;
        let mut mark = None;
        let mut attempt = |link: &Link| {
            if mark.is_none() {
                match link.check_open().and_then(|()| link.send_out(m)) {
                    Err(e) if e.kind() == ErrorKind::Full => return None,
                    Err(e) => return Some(Err(e)),
                    Ok(None) => return Some(Ok(())),
                    Ok(at) => mark = at,
                }
            }
            link.has_left(mark?)
        };
        attempt(&self.link).unwrap_or_else(|| {
            let until = self.shared.until(timeout);
            self.link.drive(WaitScope::Both, until, attempt).unwrap_or_else(|stop| {
                Err(stop.error("sending: the peer does not receive").with_peer(self.rank()))
            })
        })
    }

    /// Receives the oldest message that is wanted, waiting for it up to `timeout`. Others stay.
    ///
    /// # Errors
    /// `DeadlineExceeded`; `Interrupted`; `PeerDead` or `Closed` when the peer is gone and nothing is left.
    pub fn recv(&self, want: Want, timeout: Duration) -> Result<Message> {
        self.shared.check_process()?;
        let until = self.shared.until(timeout);
        let look = |link: &Link| {
            // In this order: no message comes after the end.
            let is_dead = link.state() == LinkState::Dead;
            if let Some(m) = take_message(link, want) {
                return Some(Ok(m));
            }
            is_dead.then(|| Err(link.gone()))
        };
        // What a session sends to itself comes through no socket.
        let found = if self.link.conn() == Some(ConnType::Loopback) {
            self.shared.wait_for_event(until, |_| look(&self.link))
        } else {
            // The tags of puts come beside their bytes.
            let watch = match want {
                Want::Tag | Want::Int | Want::Struct => WaitScope::Ctrl,
                Want::Notify | Want::ThisTag(_) | Want::Any => WaitScope::Both,
            };
            self.link.drive(watch, until, look)
        };
        found.unwrap_or_else(|stop| {
            // A forked child takes no lock: a thread of its parent may have held it.
            let full = if stop == WaitStopped::Forked { "" } else { self.link.full_inbox() };
            Err(stop
                .error(format_args!("waiting for a message ({want:?}){full}"))
                .with_peer(self.rank()))
        })
    }

    /// Receives the oldest tag, within the session's deadline.
    ///
    /// # Errors
    /// As [`Peer::recv`].
    pub fn recv_tag(&self) -> Result<u64> {
        match self.recv(Want::Tag, self.shared.config.deadline)? {
            Message::Tag(tag) | Message::Notify(tag) => Ok(tag),
            other => Err(Error::new(ErrorKind::Protocol, format!("not a tag: {other:?}"))),
        }
    }

    /// Receives the oldest 32-bit number, within the session's deadline.
    ///
    /// # Errors
    /// As [`Peer::recv`].
    pub fn recv_int(&self) -> Result<i32> {
        match self.recv(Want::Int, self.shared.config.deadline)? {
            Message::Int(n) => Ok(n),
            other => Err(Error::new(ErrorKind::Protocol, format!("not a number: {other:?}"))),
        }
    }

    /// Receives the oldest opaque bytes, within the session's deadline.
    ///
    /// # Errors
    /// As [`Peer::recv`].
    pub fn recv_struct(&self) -> Result<Vec<u8>> {
        match self.recv(Want::Struct, self.shared.config.deadline)? {
            Message::Struct(bytes) => Ok(bytes),
            other => Err(Error::new(ErrorKind::Protocol, format!("not bytes: {other:?}"))),
        }
    }

    /// Receives the oldest tag of a `put_notify`, within the session's deadline. The bytes of that
    /// put can be read.
    ///
    /// # Errors
    /// As [`Peer::recv`].
    pub fn recv_notify(&self) -> Result<u64> {
        match self.recv(Want::Notify, self.shared.config.deadline)? {
            Message::Notify(tag) => Ok(tag),
            other => Err(Error::new(ErrorKind::Protocol, format!("no notification: {other:?}"))),
        }
    }
}

/// Takes a message and, when a connection waited for space, lets it read on.
pub(crate) fn take_message(link: &Link, want: Want) -> Option<Message> {
    let (m, awaited) = {
        let mut inbox = link.inbox();
        (inbox.take(want)?, inbox.stop_awaiting())
    };
    if awaited {
        // A session's link to itself has no connection.
        if link.conn() != Some(ConnType::Loopback) {
            link.poll_ctrl(false);
        }
        link.poll_data(false);
    }
    Some(m)
}
