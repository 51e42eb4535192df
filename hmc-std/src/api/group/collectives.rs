//! What a caller asks of a group.

use hmc_mem::shared::SharedBytes;

use super::element::{Element, Reduce};
use super::numbers::{Memory, Numbers};
use super::request::{Collective, What};
use super::{Exchange, Group};
use crate::ops::request::Request;

impl Group {
    /// Is done when all members have asked for it.
    ///
    /// # Errors
    /// Of the request: `DeadlineExceeded` when a member does not come in time, `PeerDead` when one died, `Cancelled` when one
    /// gave up, `Busy` while another collective of this group runs; the reason of an earlier failure.
    pub fn barrier(&self) -> Request<Collective<'_>> {
        self.request(What::Barrier)
    }

    /// Copies the `bytes` of the member at position `root` to all others, where `bytes` must be as long.
    ///
    /// # Errors
    /// As [`Group::barrier`]; `InvalidConfig` for a root that is none; `Length` when lengths differ.
    pub fn broadcast<'a>(&'a self, root: usize, bytes: &'a mut [u8]) -> Request<Collective<'a>> {
        self.broadcast_view(root, SharedBytes::of_mut(bytes))
    }

    /// As [`Group::broadcast`], for bytes that others may read and write meanwhile: what they write may be lost or sent.
    ///
    /// # Errors
    /// As [`Group::broadcast`], and `InvalidConfig` for bytes that may only be read.
    #[doc(hidden)]
    pub fn broadcast_view<'a>(
        &'a self,
        root: usize,
        bytes: SharedBytes<'a>,
    ) -> Request<Collective<'a>> {
        self.request(What::Broadcast { root, bytes })
    }

    /// Copies the `send` of every member to `recv` of the member at position `root`, in the order of positions. There
    /// `recv` has [`Group::len`] times as many bytes as `send`; elsewhere it is not used and may be empty.
    ///
    /// # Errors
    /// As [`Group::broadcast`].
    pub fn gather<'a>(
        &'a self,
        root: usize,
        send: &'a [u8],
        recv: &'a mut [u8],
    ) -> Request<Collective<'a>> {
        self.gather_view(root, SharedBytes::of(send), SharedBytes::of_mut(recv))
    }

    /// As [`Group::gather`], for bytes that others may read and write meanwhile.
    ///
    /// # Errors
    /// As [`Group::gather`], and `InvalidConfig` for bytes to be received that may only be read.
    #[doc(hidden)]
    pub fn gather_view<'a>(
        &'a self,
        root: usize,
        send: SharedBytes<'a>,
        recv: SharedBytes<'a>,
    ) -> Request<Collective<'a>> {
        self.request(What::Gather { root, send, recv })
    }

    /// Copies the blocks of `send` of the member at position `root`, one for each member in the order of positions, to
    /// their `recv`. At the root `send` has [`Group::len`] times as many bytes as `recv`; elsewhere it is not used and may
    /// be empty.
    ///
    /// # Errors
    /// As [`Group::broadcast`].
    pub fn scatter<'a>(
        &'a self,
        root: usize,
        send: &'a [u8],
        recv: &'a mut [u8],
    ) -> Request<Collective<'a>> {
        self.scatter_view(root, SharedBytes::of(send), SharedBytes::of_mut(recv))
    }

    /// As [`Group::scatter`], for bytes that others may read and write meanwhile.
    ///
    /// # Errors
    /// As [`Group::scatter`], and `InvalidConfig` for bytes to be received that may only be read.
    #[doc(hidden)]
    pub fn scatter_view<'a>(
        &'a self,
        root: usize,
        send: SharedBytes<'a>,
        recv: SharedBytes<'a>,
    ) -> Request<Collective<'a>> {
        self.request(What::Scatter { root, send, recv })
    }

    /// Copies the `send` of every member to `recv` of every member, in the order of positions: `recv` has [`Group::len`]
    /// times as many bytes as `send`.
    ///
    /// # Errors
    /// As [`Group::barrier`]; `Length` when lengths do not fit.
    pub fn allgather<'a>(&'a self, send: &'a [u8], recv: &'a mut [u8]) -> Request<Collective<'a>> {
        self.allgather_view(SharedBytes::of(send), SharedBytes::of_mut(recv))
    }

    /// As [`Group::allgather`], for bytes that others may read and write meanwhile.
    ///
    /// # Errors
    /// As [`Group::allgather`], and `InvalidConfig` for bytes to be received that may only be read.
    #[doc(hidden)]
    pub fn allgather_view<'a>(
        &'a self,
        send: SharedBytes<'a>,
        recv: SharedBytes<'a>,
    ) -> Request<Collective<'a>> {
        self.request(What::Allgather { send, recv })
    }

    /// Gives each member the block of `send` at its position, and takes one of each into `recv`, in the order of
    /// positions. Both have the same length, a multiple of [`Group::len`].
    ///
    /// # Errors
    /// As [`Group::barrier`]; `Length` when lengths do not fit.
    pub fn alltoall<'a>(
        &'a self,
        send: &'a [u8],
        recv: &'a mut [u8],
        how: Exchange,
    ) -> Request<Collective<'a>> {
        self.alltoall_view(SharedBytes::of(send), SharedBytes::of_mut(recv), how)
    }

    /// As [`Group::alltoall`], for bytes that others may read and write meanwhile.
    ///
    /// # Errors
    /// As [`Group::alltoall`], and `InvalidConfig` for bytes to be received that may only be read.
    #[doc(hidden)]
    pub fn alltoall_view<'a>(
        &'a self,
        send: SharedBytes<'a>,
        recv: SharedBytes<'a>,
        how: Exchange,
    ) -> Request<Collective<'a>> {
        self.request(What::Alltoall { send, recv, how })
    }

    /// Gives each member the part of `send` at its position and takes one of each into `recv`, by position. Parts may differ
    /// in length; the one for a member must be as long as the one that it takes of us. How they are exchanged is
    /// [`Exchange::Auto`]'s choice for the longest.
    ///
    /// # Errors
    /// As [`Group::barrier`]; `Length` when there are not [`Group::len`] parts, or lengths do not fit.
    pub fn alltoallv<'a>(
        &'a self,
        send: &[&'a [u8]],
        recv: &'a mut [&mut [u8]],
    ) -> Request<Collective<'a>> {
        let send = send.iter().map(|part| SharedBytes::of(part)).collect();
        let recv = recv.iter_mut().map(|part| SharedBytes::of_mut(part)).collect();
        self.request(What::Alltoallv { send, recv })
    }

    /// Reduces the blocks of `send`, one for each member in the order of positions: `recv` gets the reduction of all
    /// members' blocks for this one. `send` has [`Group::len`] times as many bytes as `recv`, which has whole elements.
    /// Takes up to
    /// 8 MiB of memory, which the group keeps.
    ///
    /// # Errors
    /// As [`Group::barrier`]; `Length` when lengths do not fit.
    pub fn reduce_scatter<'a>(
        &'a self,
        element: Element,
        op: Reduce,
        send: &'a [u8],
        recv: &'a mut [u8],
    ) -> Request<Collective<'a>> {
        let numbers = Numbers { element, op, memory: Memory::Exclusive(recv) };
        self.request(What::ReduceScatter { send: SharedBytes::of(send), numbers })
    }

    /// As [`Group::reduce_scatter`], for bytes that others may read and write meanwhile.
    ///
    /// # Errors
    /// As [`Group::reduce_scatter`], and `InvalidConfig` for bytes to be received that may only be read.
    #[doc(hidden)]
    pub fn reduce_scatter_view<'a>(
        &'a self,
        element: Element,
        op: Reduce,
        send: SharedBytes<'a>,
        recv: SharedBytes<'a>,
    ) -> Request<Collective<'a>> {
        let numbers = Numbers { element, op, memory: Memory::Shared(recv) };
        self.request(What::ReduceScatter { send, numbers })
    }

    /// Reduces the `bytes` of all members, number by number; all get the result, in place, in the same bits. `bytes` has
    /// whole elements and the same length everywhere. Takes up to 8 MiB of memory, which the group
    /// keeps.
    ///
    /// # Errors
    /// As [`Group::barrier`]; `Length` when lengths do not fit.
    pub fn allreduce<'a>(
        &'a self,
        element: Element,
        op: Reduce,
        bytes: &'a mut [u8],
    ) -> Request<Collective<'a>> {
        self.request(What::Allreduce(Numbers { element, op, memory: Memory::Exclusive(bytes) }))
    }

    /// As [`Group::allreduce`], for bytes that others may read and write meanwhile.
    ///
    /// # Errors
    /// As [`Group::allreduce`], and `InvalidConfig` for bytes to be received that may only be read.
    #[doc(hidden)]
    pub fn allreduce_view<'a>(
        &'a self,
        element: Element,
        op: Reduce,
        bytes: SharedBytes<'a>,
    ) -> Request<Collective<'a>> {
        self.request(What::Allreduce(Numbers { element, op, memory: Memory::Shared(bytes) }))
    }
}
