//! Collectives that carry bytes: barrier, broadcast, gather, scatter, allgather, alltoall.

use hmc_core::time::Instant;
use hmc_mem::shared::SharedBytes;

use super::round::Message;
use super::{Exchange, Group, Members, blocks, copy, len_of};
use crate::base::error::{Error, ErrorKind, Result};
use crate::memory::check_writable;

impl Group {
    /// Returns when all members have called it.
    ///
    /// # Errors
    /// `DeadlineExceeded` when one does not come in time, `PeerDead` when one died, `Cancelled` when one gave up,
    /// `Busy` while another thread runs a collective of this group; the reason of an earlier failure.
    pub fn barrier(&self) -> Result<()> {
        self.run("barrier", |members, by| {
            // In step k everybody has heard, by way of others, of the 2^k members before it.
            let n = self.len();
            let mut far = 1;
            while far < n {
                let none = SharedBytes::of_mut(&mut []);
                let receive = Message::Receive(members.before(far), none);
                members.exchange([receive, Message::Send(members.after(far), none)], by)?;
                far = far.saturating_mul(2);
            }
            Ok(())
        })
    }

    /// Copies the `bytes` of the member at position `root` to all others, where `bytes` must be as long.
    ///
    /// # Errors
    /// As [`Group::barrier`]; `InvalidConfig` for a root that is none; `Length` when lengths differ.
    pub fn broadcast(&self, root: usize, bytes: &mut [u8]) -> Result<()> {
        self.broadcast_view(root, SharedBytes::of_mut(bytes))
    }

    /// As [`Group::broadcast`], for bytes that others may read and write meanwhile: what they write may be lost or sent.
    ///
    /// # Errors
    /// As [`Group::broadcast`], and `InvalidConfig` for bytes that may only be read.
    #[doc(hidden)]
    pub fn broadcast_view(&self, root: usize, bytes: SharedBytes<'_>) -> Result<()> {
        self.check_root(root)?;
        check_writable(&bytes)?;
        self.run("broadcast", |members, by| members.pass_on(root, bytes, by))
    }

    /// Copies the `send` of every member to `recv` of the member at position `root`, in the order of positions. There
    /// `recv` has [`Group::len`] times as many bytes as `send`; elsewhere it is not used and may be empty.
    ///
    /// # Errors
    /// As [`Group::broadcast`].
    pub fn gather(&self, root: usize, send: &[u8], recv: &mut [u8]) -> Result<()> {
        self.gather_view(root, SharedBytes::of(send), SharedBytes::of_mut(recv))
    }

    /// As [`Group::gather`], for bytes that others may read and write meanwhile.
    ///
    /// # Errors
    /// As [`Group::gather`], and `InvalidConfig` for bytes to be received that may only be read.
    #[doc(hidden)]
    pub fn gather_view(
        &self,
        root: usize,
        send: SharedBytes<'_>,
        recv: SharedBytes<'_>,
    ) -> Result<()> {
        self.check_root(root)?;
        let (n, one) = (self.len(), len_of(&send));
        if self.position() == root {
            check_writable(&recv)?;
            self.check_len("`recv` of a gather", &recv, one.checked_mul(n))?;
        }
        self.run("gather", |members, by| {
            if members.position != root {
                return members.exchange([Message::Send(root, send)], by);
            }
            let parts = blocks(&recv, n, |_| one)?;
            keep(&send, parts.get(root))?;
            members.exchange(members.others(&parts, Message::Receive), by)
        })
    }

    /// Copies the blocks of `send` of the member at position `root`, one for each member in the order of positions, to
    /// their `recv`. At the root `send` has [`Group::len`] times as many bytes as `recv`; elsewhere it is not used and may
    /// be empty.
    ///
    /// # Errors
    /// As [`Group::broadcast`].
    pub fn scatter(&self, root: usize, send: &[u8], recv: &mut [u8]) -> Result<()> {
        self.scatter_view(root, SharedBytes::of(send), SharedBytes::of_mut(recv))
    }

    /// As [`Group::scatter`], for bytes that others may read and write meanwhile.
    ///
    /// # Errors
    /// As [`Group::scatter`], and `InvalidConfig` for bytes to be received that may only be read.
    #[doc(hidden)]
    pub fn scatter_view(
        &self,
        root: usize,
        send: SharedBytes<'_>,
        recv: SharedBytes<'_>,
    ) -> Result<()> {
        self.check_root(root)?;
        check_writable(&recv)?;
        let (n, one) = (self.len(), len_of(&recv));
        if self.position() == root {
            self.check_len("`send` of a scatter", &send, one.checked_mul(n))?;
        }
        self.run("scatter", |members, by| {
            if members.position != root {
                return members.exchange([Message::Receive(root, recv)], by);
            }
            let parts = blocks(&send, n, |_| one)?;
            if let Some(own) = parts.get(root) {
                copy(own, &recv)?;
            }
            members.exchange(members.others(&parts, Message::Send), by)
        })
    }

    /// Copies the `send` of every member to `recv` of every member, in the order of positions: `recv` has [`Group::len`]
    /// times as many bytes as `send`.
    ///
    /// # Errors
    /// As [`Group::barrier`]; `Length` when lengths do not fit.
    pub fn allgather(&self, send: &[u8], recv: &mut [u8]) -> Result<()> {
        self.allgather_view(SharedBytes::of(send), SharedBytes::of_mut(recv))
    }

    /// As [`Group::allgather`], for bytes that others may read and write meanwhile.
    ///
    /// # Errors
    /// As [`Group::allgather`], and `InvalidConfig` for bytes to be received that may only be read.
    #[doc(hidden)]
    pub fn allgather_view(&self, send: SharedBytes<'_>, recv: SharedBytes<'_>) -> Result<()> {
        check_writable(&recv)?;
        let (n, one) = (self.len(), len_of(&send));
        self.check_len("`recv` of an allgather", &recv, one.checked_mul(n))?;
        self.run("allgather", |members, by| {
            let into = blocks(&recv, n, |_| one)?;
            keep(&send, into.get(members.position))?;
            let partners = Exchange::Auto.partners(n, one);
            members.exchange_all(&vec![send; n], &into, partners, by)
        })
    }

    /// Gives each member the block of `send` at its position, and takes one of each into `recv`, in the order of
    /// positions. Both have the same length, a multiple of [`Group::len`].
    ///
    /// # Errors
    /// As [`Group::barrier`]; `Length` when lengths do not fit.
    pub fn alltoall(&self, send: &[u8], recv: &mut [u8], how: Exchange) -> Result<()> {
        self.alltoall_view(SharedBytes::of(send), SharedBytes::of_mut(recv), how)
    }

    /// As [`Group::alltoall`], for bytes that others may read and write meanwhile.
    ///
    /// # Errors
    /// As [`Group::alltoall`], and `InvalidConfig` for bytes to be received that may only be read.
    #[doc(hidden)]
    pub fn alltoall_view(
        &self,
        send: SharedBytes<'_>,
        recv: SharedBytes<'_>,
        how: Exchange,
    ) -> Result<()> {
        check_writable(&recv)?;
        let n = self.len();
        let block = len_of(&send).checked_div(n).unwrap_or(0);
        self.check_len("`send` of an alltoall", &send, block.checked_mul(n))?;
        self.check_len("`recv` of an alltoall", &recv, Some(len_of(&send)))?;
        self.run("alltoall", |members, by| {
            let (from, into) = (blocks(&send, n, |_| block)?, blocks(&recv, n, |_| block)?);
            if let Some(own) = from.get(members.position) {
                keep(own, into.get(members.position))?;
            }
            members.exchange_all(&from, &into, how.partners(n, block), by)
        })
    }

    /// Gives each member the part of `send` at its position and takes one of each into `recv`, by position. Parts may differ
    /// in length; the one for a member must be as long as the one that it takes of us. How they are exchanged is
    /// [`Exchange::Auto`]'s choice for the longest.
    ///
    /// # Errors
    /// As [`Group::barrier`]; `Length` when there are not [`Group::len`] parts, or lengths do not fit.
    pub fn alltoallv(&self, send: &[&[u8]], recv: &mut [&mut [u8]]) -> Result<()> {
        let n = self.len();
        if send.len() != n || recv.len() != n {
            let what = format!(
                "{} parts to send and {} to receive of {n} members; one for each is needed",
                send.len(),
                recv.len()
            );
            return Err(Error::new(ErrorKind::Length, what));
        }
        let me = self.position();
        let send: Vec<_> = send.iter().map(|part| SharedBytes::of(part)).collect();
        let recv: Vec<_> = recv.iter_mut().map(|part| SharedBytes::of_mut(part)).collect();
        if let (Some(from), Some(into)) = (send.get(me), recv.get(me)) {
            self.check_len("the own part to receive", into, Some(len_of(from)))?;
        }
        self.run("alltoallv", |members, by| {
            if let Some(own) = send.get(me) {
                keep(own, recv.get(me))?;
            }
            let longest = send.iter().chain(&recv).map(len_of).max().unwrap_or(0);
            // Members may choose differently: who exchanges one by one waits for those who offer all at once, never in a
            // circle.
            members.exchange_all(&send, &recv, Exchange::Auto.partners(n, longest), by)
        })
    }
}

/// What a member has for itself.
fn keep(from: &SharedBytes<'_>, into: Option<&SharedBytes<'_>>) -> Result<()> {
    into.map_or(Ok(()), |into| copy(from, into))
}

impl Members {
    /// The position `steps` after ours, round about.
    pub(super) fn after(&self, steps: usize) -> usize {
        let n = self.ranks.len();
        self.position.saturating_add(steps).checked_rem(n).unwrap_or(0)
    }

    /// The position `steps` before ours, round about.
    pub(super) fn before(&self, steps: usize) -> usize {
        let n = self.ranks.len();
        self.after(n.saturating_sub(steps.checked_rem(n).unwrap_or(0)))
    }

    /// A message with a part for each of the others.
    fn others<'a>(
        &self,
        parts: &[SharedBytes<'a>],
        message: impl Fn(usize, SharedBytes<'a>) -> Message<'a>,
    ) -> Vec<Message<'a>> {
        let others = parts.iter().enumerate().filter(|(i, _)| *i != self.position);
        others.map(|(with, part)| message(with, *part)).collect()
    }

    /// Sends each other member its part of `send` and receives one of each into `recv`, with `partners` at once. Our own
    /// parts are not touched.
    pub(super) fn exchange_all(
        &self,
        send: &[SharedBytes<'_>],
        recv: &[SharedBytes<'_>],
        partners: usize,
        by: Instant,
    ) -> Result<()> {
        let n = self.ranks.len();
        let mut first: usize = 1;
        while first < n {
            let next = first.saturating_add(partners).min(n);
            let mut messages = Vec::with_capacity(partners.saturating_mul(2));
            for step in first..next {
                let from = self.before(step);
                if let Some(part) = recv.get(from) {
                    messages.push(Message::Receive(from, *part));
                }
            }
            for step in first..next {
                let to = self.after(step);
                if let Some(part) = send.get(to) {
                    messages.push(Message::Send(to, *part));
                }
            }
            self.exchange(messages, by)?;
            first = next;
        }
        Ok(())
    }

    /// A broadcast along a binomial tree: who has the bytes passes them on, to members half as far away each. To give each
    /// member a part first, which all then exchange, took longer for up to 4 MiB by 2 to 8 members on two processors.
    fn pass_on(&self, root: usize, bytes: SharedBytes<'_>, by: Instant) -> Result<()> {
        let n = self.ranks.len();
        // Our distance from the root.
        let at = self.before(root);
        let mut far: usize = 1;
        while far < n && at & far == 0 {
            far = far.saturating_mul(2);
        }
        if at != 0 {
            self.exchange([Message::Receive(self.before(far), bytes)], by)?;
        }
        let mut sends = Vec::new();
        while far > 1 {
            far >>= 1;
            if at.saturating_add(far) < n {
                sends.push(Message::Send(self.after(far), bytes));
            }
        }
        self.exchange(sends, by)
    }
}
