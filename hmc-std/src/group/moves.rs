//! Collectives that carry bytes: barrier, broadcast, gather, scatter, allgather, alltoall.

use hmc_core::time::Instant;

use super::exchange::Message;
use super::{Exchange, Group, Members, blocks, blocks_mut};
use crate::error::{Error, ErrorKind, Result};

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
                let receive = Message::Receive(members.before(far), &mut []);
                members.exchange([receive, Message::Send(members.after(far), &[])], by)?;
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
        self.check_root(root)?;
        self.run("broadcast", |members, by| members.pass_on(root, bytes, by))
    }

    /// Copies the `send` of every member to `recv` of the member at position `root`, in the order of positions. There
    /// `recv` has [`Group::len`] times as many bytes as `send`; elsewhere it is not used and may be empty.
    ///
    /// # Errors
    /// As [`Group::broadcast`].
    pub fn gather(&self, root: usize, send: &[u8], recv: &mut [u8]) -> Result<()> {
        self.check_root(root)?;
        let n = self.len();
        if self.position() == root {
            self.check_len("`recv` of a gather", recv.len(), send.len().checked_mul(n))?;
        }
        self.run("gather", |members, by| {
            if members.position != root {
                return members.exchange([Message::Send(root, send)], by);
            }
            let mut parts = blocks_mut(recv, n, |_| send.len());
            keep(send, parts.get_mut(root));
            members.exchange(members.others_mut(parts), by)
        })
    }

    /// Copies the blocks of `send` of the member at position `root`, one for each member in the order of positions, to
    /// their `recv`. At the root `send` has [`Group::len`] times as many bytes as `recv`; elsewhere it is not used and may
    /// be empty.
    ///
    /// # Errors
    /// As [`Group::broadcast`].
    pub fn scatter(&self, root: usize, send: &[u8], recv: &mut [u8]) -> Result<()> {
        self.check_root(root)?;
        let n = self.len();
        if self.position() == root {
            self.check_len("`send` of a scatter", send.len(), recv.len().checked_mul(n))?;
        }
        self.run("scatter", |members, by| {
            if members.position != root {
                return members.exchange([Message::Receive(root, recv)], by);
            }
            let parts = blocks(send, n, recv.len());
            if let Some(own) = parts.get(root) {
                keep(own, Some(&mut *recv));
            }
            members.exchange(members.others(&parts), by)
        })
    }

    /// Copies the `send` of every member to `recv` of every member, in the order of positions: `recv` has [`Group::len`]
    /// times as many bytes as `send`.
    ///
    /// # Errors
    /// As [`Group::barrier`]; `Length` when lengths do not fit.
    pub fn allgather(&self, send: &[u8], recv: &mut [u8]) -> Result<()> {
        let n = self.len();
        self.check_len("`recv` of an allgather", recv.len(), send.len().checked_mul(n))?;
        self.run("allgather", |members, by| {
            let mut into = blocks_mut(recv, n, |_| send.len());
            keep(send, into.get_mut(members.position));
            let partners = Exchange::Auto.partners(n, send.len());
            members.exchange_all(&vec![send; n], into, partners, by)
        })
    }

    /// Gives each member the block of `send` at its position, and takes one of each into `recv`, in the order of
    /// positions. Both have the same length, a multiple of [`Group::len`].
    ///
    /// # Errors
    /// As [`Group::barrier`]; `Length` when lengths do not fit.
    pub fn alltoall(&self, send: &[u8], recv: &mut [u8], how: Exchange) -> Result<()> {
        let n = self.len();
        let block = send.len().checked_div(n).unwrap_or(0);
        self.check_len("`send` of an alltoall", send.len(), block.checked_mul(n))?;
        self.check_len("`recv` of an alltoall", recv.len(), Some(send.len()))?;
        self.run("alltoall", |members, by| {
            let (from, mut into) = (blocks(send, n, block), blocks_mut(recv, n, |_| block));
            if let Some(own) = from.get(members.position) {
                keep(own, into.get_mut(members.position));
            }
            members.exchange_all(&from, into, how.partners(n, block), by)
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
        if let (Some(from), Some(into)) = (send.get(me), recv.get(me)) {
            self.check_len("the own part to receive", into.len(), Some(from.len()))?;
        }
        self.run("alltoallv", |members, by| {
            let mut into: Vec<&mut [u8]> = recv.iter_mut().map(|part| &mut **part).collect();
            if let Some(own) = send.get(me) {
                keep(own, into.get_mut(me));
            }
            let ours = send.iter().map(|part| part.len());
            let longest = ours.chain(into.iter().map(|part| part.len())).max().unwrap_or(0);
            // Members may choose differently: who exchanges one by one waits for those who offer all at once, never in a
            // circle.
            members.exchange_all(send, into, Exchange::Auto.partners(n, longest), by)
        })
    }
}

/// What a member has for itself.
fn keep(from: &[u8], into: Option<impl AsMut<[u8]>>) {
    if let Some(mut into) = into
        && into.as_mut().len() == from.len()
    {
        into.as_mut().copy_from_slice(from);
    }
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

    /// A part for each of the others.
    fn others<'a>(&self, parts: &[&'a [u8]]) -> Vec<Message<'a>> {
        let others = parts.iter().enumerate().filter(|(i, _)| *i != self.position);
        others.map(|(to, part)| Message::Send(to, part)).collect()
    }

    /// A place for a part of each of the others.
    fn others_mut<'a>(&self, parts: Vec<&'a mut [u8]>) -> Vec<Message<'a>> {
        let others = parts.into_iter().enumerate().filter(|(i, _)| *i != self.position);
        others.map(|(from, part)| Message::Receive(from, part)).collect()
    }

    /// Sends each other member its part of `send` and receives one of each into `recv`, with `partners` at once. Our own
    /// parts are not touched.
    pub(super) fn exchange_all(
        &self,
        send: &[&[u8]],
        recv: Vec<&mut [u8]>,
        partners: usize,
        by: Instant,
    ) -> Result<()> {
        let n = self.ranks.len();
        let mut recv: Vec<Option<&mut [u8]>> = recv.into_iter().map(Some).collect();
        let mut first: usize = 1;
        while first < n {
            let next = first.saturating_add(partners).min(n);
            let mut messages = Vec::with_capacity(partners.saturating_mul(2));
            for step in first..next {
                let from = self.before(step);
                if let Some(part) = recv.get_mut(from).and_then(Option::take) {
                    messages.push(Message::Receive(from, part));
                }
            }
            for step in first..next {
                let to = self.after(step);
                if let Some(part) = send.get(to) {
                    messages.push(Message::Send(to, part));
                }
            }
            self.exchange(messages, by)?;
            first = next;
        }
        Ok(())
    }

    /// A broadcast along a binomial tree: who has the bytes passes them on, to members half as far away each. To give each
    /// member a part first, which all then exchange, took longer for up to 4 MiB by 2 to 8 members on two processors.
    fn pass_on(&self, root: usize, bytes: &mut [u8], by: Instant) -> Result<()> {
        let n = self.ranks.len();
        // Our distance from the root.
        let at = self.before(root);
        let mut far: usize = 1;
        while far < n && at & far == 0 {
            far = far.saturating_mul(2);
        }
        if at != 0 {
            self.exchange([Message::Receive(self.before(far), &mut *bytes)], by)?;
        }
        let mut sends = Vec::new();
        while far > 1 {
            far >>= 1;
            if at.saturating_add(far) < n {
                sends.push(Message::Send(self.after(far), &*bytes));
            }
        }
        self.exchange(sends, by)
    }
}
