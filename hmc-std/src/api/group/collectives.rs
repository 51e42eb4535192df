//! The collectives of a group, as requests.

use hmc_mem::shared::SharedBytes;

use super::element::{Element, Reduce};
use super::numbers::{Memory, Numbers};
use super::request::{Collective, What};
use super::{Exchange, Group};
use crate::ops::request::Request;

impl Group {
    /// Waits until all members have called `barrier`.
    ///
    /// # Errors
    /// Of the request:
    /// - `DeadlineExceeded` if a member does not call it before the deadline, or the deadline of a member is over earlier.
    /// - `PeerDead` if a member died; `Closed` if a member left; `Cancelled` if a member failed or withdrew.
    /// - `Busy` while another collective of this group runs.
    /// - The error of an earlier collective that failed: the group is broken.
    pub fn barrier(&self) -> Request<Collective<'_>> {
        self.request(What::Barrier)
    }

    /// Copies the `bytes` of the member at position `root` to the `bytes` of all others, which have the same length.
    ///
    /// # Errors
    /// Those of [`Group::barrier`]; `InvalidConfig` if `root` is not a position; `Length` if lengths differ.
    pub fn broadcast<'a>(&'a self, root: usize, bytes: &'a mut [u8]) -> Request<Collective<'a>> {
        self.broadcast_view(root, SharedBytes::of_mut(bytes))
    }

    /// As [`Group::broadcast`], for bytes that other threads and processes may access meanwhile: what they write may be lost or sent.
    ///
    /// # Errors
    /// Those of [`Group::broadcast`]; `InvalidConfig` if the bytes may only be read.
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
    /// Those of [`Group::broadcast`].
    pub fn gather<'a>(
        &'a self,
        root: usize,
        send: &'a [u8],
        recv: &'a mut [u8],
    ) -> Request<Collective<'a>> {
        self.gather_view(root, SharedBytes::of(send), SharedBytes::of_mut(recv))
    }

    /// As [`Group::gather`], for bytes that other threads and processes may access meanwhile.
    ///
    /// # Errors
    /// Those of [`Group::gather`]; `InvalidConfig` if the bytes to be received may only be read.
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
    /// Those of [`Group::broadcast`].
    pub fn scatter<'a>(
        &'a self,
        root: usize,
        send: &'a [u8],
        recv: &'a mut [u8],
    ) -> Request<Collective<'a>> {
        self.scatter_view(root, SharedBytes::of(send), SharedBytes::of_mut(recv))
    }

    /// As [`Group::scatter`], for bytes that other threads and processes may access meanwhile.
    ///
    /// # Errors
    /// Those of [`Group::scatter`]; `InvalidConfig` if the bytes to be received may only be read.
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
    /// Those of [`Group::barrier`]; `Length` if lengths do not fit.
    pub fn allgather<'a>(&'a self, send: &'a [u8], recv: &'a mut [u8]) -> Request<Collective<'a>> {
        self.allgather_view(SharedBytes::of(send), SharedBytes::of_mut(recv))
    }

    /// As [`Group::allgather`], for bytes that other threads and processes may access meanwhile.
    ///
    /// # Errors
    /// Those of [`Group::allgather`]; `InvalidConfig` if the bytes to be received may only be read.
    #[doc(hidden)]
    pub fn allgather_view<'a>(
        &'a self,
        send: SharedBytes<'a>,
        recv: SharedBytes<'a>,
    ) -> Request<Collective<'a>> {
        self.request(What::Allgather { send, recv })
    }

    /// Sends each member the block of `send` at its position, and receives a block of each into `recv`, in the order of positions.
    /// `send` and `recv` have the same length, a multiple of [`Group::len`].
    ///
    /// # Errors
    /// Those of [`Group::barrier`]; `Length` if lengths do not fit.
    pub fn alltoall<'a>(
        &'a self,
        send: &'a [u8],
        recv: &'a mut [u8],
        how: Exchange,
    ) -> Request<Collective<'a>> {
        self.alltoall_view(SharedBytes::of(send), SharedBytes::of_mut(recv), how)
    }

    /// As [`Group::alltoall`], for bytes that other threads and processes may access meanwhile.
    ///
    /// # Errors
    /// Those of [`Group::alltoall`]; `InvalidConfig` if the bytes to be received may only be read.
    #[doc(hidden)]
    pub fn alltoall_view<'a>(
        &'a self,
        send: SharedBytes<'a>,
        recv: SharedBytes<'a>,
        how: Exchange,
    ) -> Request<Collective<'a>> {
        self.request(What::Alltoall { send, recv, how })
    }

    /// Sends each member the part of `send` at its position, and receives a part of each into the part of `recv` at its position.
    /// Parts may differ in length, but a part that is sent must be as long as the part into which its receiver takes it. The exchange
    /// is the one that [`Exchange::Auto`] chooses for the longest part.
    ///
    /// # Errors
    /// Those of [`Group::barrier`]; `Length` if there are not [`Group::len`] parts, or lengths do not fit.
    pub fn alltoallv<'a>(
        &'a self,
        send: &[&'a [u8]],
        recv: &'a mut [&mut [u8]],
    ) -> Request<Collective<'a>> {
        let send = send.iter().map(|part| SharedBytes::of(part)).collect();
        let recv = recv.iter_mut().map(|part| SharedBytes::of_mut(part)).collect();
        self.request(What::Alltoallv { send, recv })
    }

    /// Reduces the blocks of `send`, one for each member in the order of positions: `recv` gets the reduction of all members' blocks
    /// for this member. `send` has [`Group::len`] times as many bytes as `recv`, which has whole elements. Uses up to 8 MiB of
    /// memory, which the group keeps.
    ///
    /// # Errors
    /// Those of [`Group::barrier`]; `Length` if lengths do not fit.
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

    /// As [`Group::reduce_scatter`], for bytes that other threads and processes may access meanwhile.
    ///
    /// # Errors
    /// Those of [`Group::reduce_scatter`]; `InvalidConfig` if the bytes to be received may only be read.
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

    /// Reduces the `bytes` of all members, element by element, in place. All members get the same bits. `bytes` has whole elements and
    /// the same length at all members. Uses up to 8 MiB of memory, which the group keeps.
    ///
    /// # Errors
    /// Those of [`Group::barrier`]; `Length` if lengths do not fit.
    pub fn allreduce<'a>(
        &'a self,
        element: Element,
        op: Reduce,
        bytes: &'a mut [u8],
    ) -> Request<Collective<'a>> {
        self.request(What::Allreduce(Numbers { element, op, memory: Memory::Exclusive(bytes) }))
    }

    /// As [`Group::allreduce`], for bytes that other threads and processes may access meanwhile.
    ///
    /// # Errors
    /// Those of [`Group::allreduce`]; `InvalidConfig` if the bytes to be received may only be read.
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
