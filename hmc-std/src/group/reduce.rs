//! Collectives that reckon: reduce_scatter and allreduce.
//!
//! Blocks are exchanged as by alltoall, and each member reduces its own: all members do the same share of the work, and
//! each result is reckoned once. Its order is fixed: a member begins with its own numbers and goes back through the
//! positions, round about. Short vectors are rather sent to all, and all reckon the same in the order of positions. So all
//! members have the same bits, and the same numbers give the same bits again.

use hmc_core::time::Instant;

use super::element::{Element, Reduce};
use super::exchange::Message;
use super::{Exchange, Group, Members, blocks, blocks_mut};
use crate::error::{Error, ErrorKind, Result};

/// Bytes of the memory into which others' numbers are received before they are reduced.
const SCRATCH_BYTES: usize = 8 << 20;

/// Bytes of all others' numbers up to which an allreduce sends them to everybody.
const MAX_SENT_TO_ALL_BYTES: usize = 64 << 10;

impl Group {
    /// Reduces the blocks of `send`, one for each member in the order of positions: `recv` gets the reduction of all
    /// members' blocks for this one. `send` has [`Group::len`] times as many bytes as `recv`, which has whole elements.
    /// Takes up to
    /// 8 MiB of memory, which the group keeps.
    ///
    /// # Errors
    /// As [`Group::barrier`]; `Length` when lengths do not fit.
    pub fn reduce_scatter(
        &self,
        element: Element,
        op: Reduce,
        send: &[u8],
        recv: &mut [u8],
    ) -> Result<()> {
        let n = self.len();
        check_whole("`recv` of a reduce_scatter", element, recv.len())?;
        self.check_len("`send` of a reduce_scatter", send.len(), recv.len().checked_mul(n))?;
        self.run_with_scratch("reduce_scatter", |members, scratch, by| {
            let parts = blocks(send, n, recv.len());
            if let Some(own) = parts.get(members.position) {
                recv.copy_from_slice(own);
            }
            let kind = Kind { element, op, longest: recv.len() };
            members.reduce_own(kind, &parts, recv, scratch, by)
        })
    }

    /// Reduces the `bytes` of all members, number by number; all get the result, in place, in the same bits. `bytes` has
    /// whole elements and the same length everywhere. Takes up to 8 MiB of memory, which the group
    /// keeps.
    ///
    /// # Errors
    /// As [`Group::barrier`]; `Length` when lengths do not fit.
    pub fn allreduce(&self, element: Element, op: Reduce, bytes: &mut [u8]) -> Result<()> {
        check_whole("`bytes` of an allreduce", element, bytes.len())?;
        let others = self.len().saturating_sub(1);
        self.run_with_scratch("allreduce", |members, scratch, by| {
            if others == 0 {
                return Ok(());
            }
            if bytes.len().saturating_mul(others) <= MAX_SENT_TO_ALL_BYTES {
                members.reduce_everywhere(element, op, bytes, scratch, by)
            } else {
                members.reduce_in_parts(element, op, bytes, scratch, by)
            }
        })
    }
}

/// Refuses bytes that end within an element.
fn check_whole(what: &str, element: Element, len: usize) -> Result<()> {
    let one = element.len_bytes();
    if len.is_multiple_of(one) {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Length,
        format!("{what} has {len} bytes, which are no whole elements of {one}; nothing was sent"),
    ))
}

/// What is done with the blocks of a reduction.
#[derive(Clone, Copy)]
struct Kind {
    element: Element,
    op: Reduce,
    /// Bytes of the longest block.
    longest: usize,
}

/// The first `len` bytes of memory that grows as it is needed.
fn scratch_of(scratch: &mut Vec<u8>, len: usize) -> &mut [u8] {
    if scratch.len() < len {
        scratch.resize(len, 0);
    }
    scratch.get_mut(..len).unwrap_or_default()
}

/// The `round`th piece of a block that is cut into pieces of `piece` bytes: the last ones may be short or empty.
fn nth(len: usize, piece: usize, round: usize) -> std::ops::Range<usize> {
    let start = piece.saturating_mul(round).min(len);
    start..start.saturating_add(piece).min(len)
}

impl Members {
    /// Sends each other member its block of `parts`, and reduces theirs for us into `own`, which holds our numbers.
    fn reduce_own(
        &self,
        kind: Kind,
        parts: &[&[u8]],
        own: &mut [u8],
        scratch: &mut Vec<u8>,
        by: Instant,
    ) -> Result<()> {
        let n = self.ranks.len();
        let partners = Exchange::Auto.partners(n, kind.longest);
        // A multiple of all elements' lengths.
        let piece = SCRATCH_BYTES.checked_div(partners).unwrap_or(0).max(8) & !7;
        // Also nothing is exchanged once: members that have something must not wait.
        for round in 0..kind.longest.div_ceil(piece).max(1) {
            let own = own.get_mut(nth(own.len(), piece, round)).unwrap_or_default();
            let mut first: usize = 1;
            while first < n {
                let next = first.saturating_add(partners).min(n);
                let count = next.saturating_sub(first);
                let scratch = scratch_of(scratch, own.len().saturating_mul(count));
                let mut messages = Vec::with_capacity(count.saturating_mul(2));
                let places = blocks_mut(scratch, count, |_| own.len());
                for (step, place) in (first..next).zip(places) {
                    messages.push(Message::Receive(self.before(step), place));
                }
                for step in first..next {
                    let to = self.after(step);
                    let part = parts.get(to).and_then(|p| p.get(nth(p.len(), piece, round)));
                    messages.push(Message::Send(to, part.unwrap_or_default()));
                }
                self.exchange(messages, by)?;
                for with in blocks(scratch, count, own.len()) {
                    kind.element.reduce(kind.op, own, with);
                }
                first = next;
            }
        }
        Ok(())
    }

    /// An allreduce in two steps: each member reduces one part, then all give theirs to all.
    fn reduce_in_parts(
        &self,
        element: Element,
        op: Reduce,
        bytes: &mut [u8],
        scratch: &mut Vec<u8>,
        by: Instant,
    ) -> Result<()> {
        let (n, one) = (self.ranks.len(), element.len_bytes());
        let count = bytes.len().checked_div(one).unwrap_or(0);
        let (each, more) = (count.checked_div(n).unwrap_or(0), count.checked_rem(n).unwrap_or(0));
        let len_of = |i: usize| each.saturating_add(usize::from(i < more)).saturating_mul(one);
        let kind = Kind { element, op, longest: len_of(0) };
        let mut parts = blocks_mut(bytes, n, len_of);
        let Some(own) = parts.get_mut(self.position).map(std::mem::take) else {
            return Ok(());
        };
        let read: Vec<&[u8]> = parts.iter().map(|p| &**p).collect();
        self.reduce_own(kind, &read, own, scratch, by)?;
        let partners = Exchange::Auto.partners(n, kind.longest);
        self.exchange_all(&vec![&*own; n], parts, partners, by)
    }

    /// A short allreduce: each member sends its numbers to all, and all reckon the same.
    fn reduce_everywhere(
        &self,
        element: Element,
        op: Reduce,
        bytes: &mut [u8],
        scratch: &mut Vec<u8>,
        by: Instant,
    ) -> Result<()> {
        let n = self.ranks.len();
        let scratch = scratch_of(scratch, bytes.len().saturating_mul(n));
        let mut all = blocks_mut(scratch, n, |_| bytes.len());
        if let Some(own) = all.get_mut(self.position) {
            own.copy_from_slice(bytes);
        }
        let partners = Exchange::Direct.partners(n, bytes.len());
        self.exchange_all(&vec![&*bytes; n], all, partners, by)?;
        let mut all = blocks(scratch, n, bytes.len()).into_iter();
        if let Some(first) = all.next() {
            bytes.copy_from_slice(first);
        }
        for with in all {
            element.reduce(op, bytes, with);
        }
        Ok(())
    }
}
