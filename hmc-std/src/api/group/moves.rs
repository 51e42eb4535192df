//! Collectives that carry bytes: barrier, broadcast, gather, scatter, allgather, alltoall.

use hmc_mem::shared::SharedBytes;

use super::Exchange;
use super::call::{Call, blocks, copy, len_of};
use super::flight::Message;
use crate::base::error::Result;

/// What a member has for itself.
fn keep(from: &SharedBytes<'_>, into: Option<&SharedBytes<'_>>) -> Result<()> {
    into.map_or(Ok(()), |into| copy(from, into))
}

impl Call<'_> {
    pub(super) async fn barrier(&self) -> Result<()> {
        // Before step k each member knows that the 2^k members up to and including itself have arrived.
        let n = self.count();
        let mut far = 1;
        while far < n {
            let none = SharedBytes::of_mut(&mut []);
            let receive = Message::Receive(self.before(far), none);
            self.exchange([receive, Message::Send(self.after(far), none)]).await?;
            far = far.saturating_mul(2);
        }
        Ok(())
    }

    pub(super) async fn gather(
        &self,
        root: usize,
        send: SharedBytes<'_>,
        recv: SharedBytes<'_>,
    ) -> Result<()> {
        if self.position() != root {
            return self.exchange([Message::Send(root, send)]).await;
        }
        let one = len_of(&send);
        let parts = blocks(&recv, self.count(), |_| one)?;
        keep(&send, parts.get(root))?;
        self.exchange(self.others(&parts, Message::Receive)).await
    }

    pub(super) async fn scatter(
        &self,
        root: usize,
        send: SharedBytes<'_>,
        recv: SharedBytes<'_>,
    ) -> Result<()> {
        if self.position() != root {
            return self.exchange([Message::Receive(root, recv)]).await;
        }
        let one = len_of(&recv);
        let parts = blocks(&send, self.count(), |_| one)?;
        if let Some(own) = parts.get(root) {
            copy(own, &recv)?;
        }
        self.exchange(self.others(&parts, Message::Send)).await
    }

    pub(super) async fn allgather(
        &self,
        send: SharedBytes<'_>,
        recv: SharedBytes<'_>,
    ) -> Result<()> {
        let (n, one) = (self.count(), len_of(&send));
        let into = blocks(&recv, n, |_| one)?;
        keep(&send, into.get(self.position()))?;
        let partners = Exchange::Auto.partners(n, one);
        self.exchange_all(&vec![send; n], &into, partners).await
    }

    pub(super) async fn alltoall(
        &self,
        send: SharedBytes<'_>,
        recv: SharedBytes<'_>,
        how: Exchange,
    ) -> Result<()> {
        let n = self.count();
        let block = len_of(&send).checked_div(n).unwrap_or(0);
        let (from, into) = (blocks(&send, n, |_| block)?, blocks(&recv, n, |_| block)?);
        if let Some(own) = from.get(self.position()) {
            keep(own, into.get(self.position()))?;
        }
        self.exchange_all(&from, &into, how.partners(n, block)).await
    }

    pub(super) async fn alltoallv(
        &self,
        send: Vec<SharedBytes<'_>>,
        recv: Vec<SharedBytes<'_>>,
    ) -> Result<()> {
        let me = self.position();
        if let Some(own) = send.get(me) {
            keep(own, recv.get(me))?;
        }
        let longest = send.iter().chain(&recv).map(len_of).max().unwrap_or(0);
        // Members may choose differently: who exchanges one by one waits for those who offer all at once, never in a
        // circle.
        let partners = Exchange::Auto.partners(self.count(), longest);
        self.exchange_all(&send, &recv, partners).await
    }

    /// How many members there are.
    pub(super) fn count(&self) -> usize {
        self.members.ranks.len()
    }

    /// Our own position.
    pub(super) fn position(&self) -> usize {
        self.members.position
    }

    /// The position `steps` after ours, round about.
    pub(super) fn after(&self, steps: usize) -> usize {
        self.position().saturating_add(steps).checked_rem(self.count()).unwrap_or(0)
    }

    /// The position `steps` before ours, round about.
    pub(super) fn before(&self, steps: usize) -> usize {
        let n = self.count();
        self.after(n.saturating_sub(steps.checked_rem(n).unwrap_or(0)))
    }

    /// A message with a part for each of the others.
    fn others<'a>(
        &self,
        parts: &[SharedBytes<'a>],
        message: impl Fn(usize, SharedBytes<'a>) -> Message<'a>,
    ) -> Vec<Message<'a>> {
        let others = parts.iter().enumerate().filter(|(i, _)| *i != self.position());
        others.map(|(with, part)| message(with, *part)).collect()
    }

    /// Sends each other member its part of `send` and receives one of each into `recv`, with `partners` at once. Our own
    /// parts are not touched.
    pub(super) async fn exchange_all(
        &self,
        send: &[SharedBytes<'_>],
        recv: &[SharedBytes<'_>],
        partners: usize,
    ) -> Result<()> {
        let n = self.count();
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
            self.exchange(messages).await?;
            first = next;
        }
        Ok(())
    }

    /// A broadcast along a binomial tree: who has the bytes passes them on, to members half as far away each. To give each
    /// member a part first, which all then exchange, took longer for up to 4 MiB by 2 to 8 members on two processors.
    pub(super) async fn broadcast(&self, root: usize, bytes: SharedBytes<'_>) -> Result<()> {
        let n = self.count();
        // Our distance from the root.
        let at = self.before(root);
        let mut far: usize = 1;
        while far < n && at & far == 0 {
            far = far.saturating_mul(2);
        }
        if at != 0 {
            self.exchange([Message::Receive(self.before(far), bytes)]).await?;
        }
        let mut sends = Vec::new();
        while far > 1 {
            far >>= 1;
            if at.saturating_add(far) < n {
                sends.push(Message::Send(self.after(far), bytes));
            }
        }
        self.exchange(sends).await
    }
}
