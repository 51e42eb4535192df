//! Collectives that reckon: reduce_scatter and allreduce.
//!
//! Blocks are exchanged as by alltoall, and each member reduces its own: all members do the same share of the work, and
//! each result is reckoned once. Its order is fixed: a member begins with its own numbers and goes back through the
//! positions, round about. Short vectors are rather sent to all, and all reckon the same in the order of positions. So all
//! members have the same bits, and the same numbers give the same bits again.

use std::ops::Range;

use hmc_mem::error::MemError;
use hmc_mem::shared::SharedBytes;

use super::Exchange;
use super::call::{Call, blocks, copy, len_of};
use super::flight::Message;
use super::numbers::Numbers;
use crate::base::error::Result;

/// Bytes of the memory into which others' numbers are received before they are reduced.
const SCRATCH_BYTES: usize = 8 << 20;

/// Bytes of all others' numbers up to which an allreduce sends them to everybody.
const MAX_SENT_TO_ALL_BYTES: usize = 64 << 10;

/// The blocks that a member sends, one for each in the order of positions.
struct Sent<'a> {
    /// They lie there, one behind the other; `None`: in the memory of the numbers that are reduced.
    all: Option<SharedBytes<'a>>,
    /// Bytes of the longest one.
    longest: usize,
    /// Bytes of the one for that position.
    len_at: &'a (dyn Fn(usize) -> usize + Sync),
}

/// The first `len` bytes of memory that grows as it is needed.
fn scratch_of(scratch: &mut Vec<u8>, len: usize) -> &mut [u8] {
    if scratch.len() < len {
        scratch.resize(len, 0);
    }
    scratch.get_mut(..len).unwrap_or_default()
}

/// The `round`th piece of a block that is cut into pieces of `piece` bytes: the last ones may be short or empty.
fn nth<'a>(bytes: &SharedBytes<'a>, piece: usize, round: usize) -> Result<SharedBytes<'a>> {
    let number = |n| u64::try_from(n).unwrap_or(u64::MAX);
    let (_, rest) = bytes.extent().whole().split_at_most(number(piece.saturating_mul(round)));
    Ok(bytes.part(rest.split_at_most(number(piece)).0).map_err(MemError::from)?)
}

impl Call<'_> {
    pub(super) async fn reduce_scatter(
        &self,
        send: SharedBytes<'_>,
        mut numbers: Numbers<'_>,
        scratch: &mut Vec<u8>,
    ) -> Result<()> {
        let one = numbers.memory.len();
        let sent = Sent { all: Some(send), longest: one, len_at: &|_| one };
        if let Some(own) = blocks(&send, self.count(), |_| one)?.get(self.position()) {
            copy(own, &numbers.memory.view())?;
        }
        self.reduce_own(&mut numbers, 0..one, &sent, scratch).await
    }

    pub(super) async fn allreduce(
        &self,
        mut numbers: Numbers<'_>,
        scratch: &mut Vec<u8>,
    ) -> Result<()> {
        let others = self.count().saturating_sub(1);
        if others == 0 {
            return Ok(());
        }
        if numbers.memory.len().saturating_mul(others) <= MAX_SENT_TO_ALL_BYTES {
            self.reduce_everywhere(&mut numbers, scratch).await
        } else {
            self.reduce_in_parts(&mut numbers, scratch).await
        }
    }

    /// Sends each other member its block, and reduces theirs for us into the range `own` of the numbers, which holds ours.
    async fn reduce_own(
        &self,
        numbers: &mut Numbers<'_>,
        own: Range<usize>,
        sent: &Sent<'_>,
        scratch: &mut Vec<u8>,
    ) -> Result<()> {
        let n = self.count();
        let partners = Exchange::Auto.partners(n, sent.longest);
        // A multiple of all elements' lengths.
        let piece = SCRATCH_BYTES.checked_div(partners).unwrap_or(0).max(8) & !7;
        // Also nothing is exchanged once: members that have something must not wait.
        for round in 0..sent.longest.div_ceil(piece).max(1) {
            let from = own.start.saturating_add(piece.saturating_mul(round)).min(own.end);
            let own = from..from.saturating_add(piece).min(own.end);
            let len = own.len();
            let mut first: usize = 1;
            while first < n {
                let next = first.saturating_add(partners).min(n);
                let count = next.saturating_sub(first);
                let scratch = scratch_of(scratch, len.saturating_mul(count));
                let mut messages = Vec::with_capacity(count.saturating_mul(2));
                let places = SharedBytes::of_mut(&mut *scratch);
                for (step, place) in (first..next).zip(blocks(&places, count, |_| len)?) {
                    messages.push(Message::Receive(self.before(step), place));
                }
                let all = match sent.all {
                    Some(all) => all,
                    None => numbers.memory.view(),
                };
                let parts = blocks(&all, n, sent.len_at)?;
                for step in first..next {
                    let to = self.after(step);
                    if let Some(part) = parts.get(to) {
                        messages.push(Message::Send(to, nth(part, piece, round)?));
                    }
                }
                self.exchange(messages).await?;
                numbers.fold(own.clone(), scratch)?;
                first = next;
            }
        }
        Ok(())
    }

    /// An allreduce in two steps: each member reduces one part, then all give theirs to all.
    async fn reduce_in_parts(
        &self,
        numbers: &mut Numbers<'_>,
        scratch: &mut Vec<u8>,
    ) -> Result<()> {
        let (n, one) = (self.count(), numbers.element.len_bytes());
        let count = numbers.memory.len().checked_div(one).unwrap_or(0);
        let (each, more) = (count.checked_div(n).unwrap_or(0), count.checked_rem(n).unwrap_or(0));
        let len_at = |i: usize| each.saturating_add(usize::from(i < more)).saturating_mul(one);
        let sent = Sent { all: None, longest: len_at(0), len_at: &len_at };
        let start: usize = (0..self.position()).map(len_at).sum();
        let own = start..start.saturating_add(len_at(self.position()));
        self.reduce_own(numbers, own, &sent, scratch).await?;
        let parts = blocks(&numbers.memory.view(), n, len_at)?;
        let Some(own) = parts.get(self.position()) else {
            return Ok(());
        };
        let partners = Exchange::Auto.partners(n, sent.longest);
        self.exchange_all(&vec![*own; n], &parts, partners).await
    }

    /// A short allreduce: each member sends its numbers to all, and all reckon the same.
    async fn reduce_everywhere(
        &self,
        numbers: &mut Numbers<'_>,
        scratch: &mut Vec<u8>,
    ) -> Result<()> {
        let (element, op, bytes) = (numbers.element, numbers.op, numbers.memory.view());
        let (n, len) = (self.count(), len_of(&bytes));
        let scratch = scratch_of(scratch, len.saturating_mul(n));
        let places = SharedBytes::of_mut(&mut *scratch);
        let all = blocks(&places, n, |_| len)?;
        let Some(own) = all.get(self.position()) else {
            return Ok(());
        };
        // What is sent is what is reckoned with here, whoever writes `bytes` meanwhile.
        copy(&bytes, own)?;
        let partners = Exchange::Direct.partners(n, len);
        self.exchange_all(&vec![*own; n], &all, partners).await?;
        let (result, others) = scratch.split_at_mut_checked(len).unwrap_or_default();
        for with in others.chunks_exact(len.max(1)) {
            element.reduce(op, result, with);
        }
        bytes.write_at(bytes.extent().whole(), result).map_err(MemError::from)?;
        Ok(())
    }
}
