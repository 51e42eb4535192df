//! Collectives as requests: what is asked of a group, its checks before anything moves, and its two ways to run.

use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use hmc_mem::shared::SharedBytes;

use super::call::{Call, len_of};
use super::numbers::Numbers;
use super::{Exchange, Group};
use crate::base::clock;
use crate::base::error::{Error, ErrorKind, Limit, Result};
use crate::memory::check_writable;
use crate::ops::request::sealed::Sealed;
use crate::ops::request::{Request, Verb};
use crate::ops::started::given;

/// A collective of a [`Group`].
pub struct Collective<'a> {
    group: &'a Group,
    what: What<'a>,
}

/// What members do together.
pub(super) enum What<'a> {
    Barrier,
    Broadcast { root: usize, bytes: SharedBytes<'a> },
    Gather { root: usize, send: SharedBytes<'a>, recv: SharedBytes<'a> },
    Scatter { root: usize, send: SharedBytes<'a>, recv: SharedBytes<'a> },
    Allgather { send: SharedBytes<'a>, recv: SharedBytes<'a> },
    Alltoall { send: SharedBytes<'a>, recv: SharedBytes<'a>, how: Exchange },
    Alltoallv { send: Vec<SharedBytes<'a>>, recv: Vec<SharedBytes<'a>> },
    ReduceScatter { send: SharedBytes<'a>, numbers: Numbers<'a> },
    Allreduce(Numbers<'a>),
}

impl Group {
    pub(super) fn request<'a>(&'a self, what: What<'a>) -> Request<Collective<'a>> {
        Request::new(Collective { group: self, what })
    }

    /// Refuses a root that is none.
    fn check_root(&self, root: usize) -> Result<()> {
        if root < self.len() {
            return Ok(());
        }
        let last = self.len().saturating_sub(1);
        Err(Error::config(format!("root {root} is beyond the last position of the group, {last}")))
    }

    /// Refuses bytes that are not as many as the others need.
    fn check_len(&self, what: &str, bytes: &SharedBytes<'_>, want: Option<usize>) -> Result<()> {
        let len = len_of(bytes);
        if want == Some(len) {
            return Ok(());
        }
        let needs = want.map_or("more than memory has".to_owned(), |n| n.to_string());
        let members = self.len();
        Err(Error::new(
            ErrorKind::Length,
            format!(
                "{what} has {len} bytes and needs {needs}, with {members} members; nothing was sent"
            ),
        )
        .with_limit(Limit::new("bytes of the argument", want.unwrap_or(usize::MAX), len)))
    }
}

/// Refuses bytes that end within an element.
fn check_whole(what: &str, numbers: &Numbers<'_>) -> Result<()> {
    let (one, len) = (numbers.element.len_bytes(), numbers.memory.len());
    if len.is_multiple_of(one) {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Length,
        format!("{what} has {len} bytes, which are no whole elements of {one}; nothing was sent"),
    )
    .with_limit(Limit::new("bytes, of whole elements", len, len.next_multiple_of(one))))
}

impl What<'_> {
    fn name(&self) -> &'static str {
        match self {
            Self::Barrier => "barrier",
            Self::Broadcast { .. } => "broadcast",
            Self::Gather { .. } => "gather",
            Self::Scatter { .. } => "scatter",
            Self::Allgather { .. } => "allgather",
            Self::Alltoall { .. } => "alltoall",
            Self::Alltoallv { .. } => "alltoallv",
            Self::ReduceScatter { .. } => "reduce_scatter",
            Self::Allreduce(_) => "allreduce",
        }
    }

    /// Refuses arguments that do not fit, before anything moves.
    fn check(&self, group: &Group) -> Result<()> {
        let (n, me) = (group.len(), group.position());
        match self {
            Self::Barrier => Ok(()),
            Self::Broadcast { root, bytes } => {
                group.check_root(*root)?;
                check_writable(bytes)
            }
            Self::Gather { root, send, recv } => {
                group.check_root(*root)?;
                if me != *root {
                    return Ok(());
                }
                check_writable(recv)?;
                group.check_len("`recv` of a gather", recv, len_of(send).checked_mul(n))
            }
            Self::Scatter { root, send, recv } => {
                group.check_root(*root)?;
                check_writable(recv)?;
                if me != *root {
                    return Ok(());
                }
                group.check_len("`send` of a scatter", send, len_of(recv).checked_mul(n))
            }
            Self::Allgather { send, recv } => {
                check_writable(recv)?;
                group.check_len("`recv` of an allgather", recv, len_of(send).checked_mul(n))
            }
            Self::Alltoall { send, recv, .. } => {
                check_writable(recv)?;
                let whole = len_of(send).checked_div(n).and_then(|block| block.checked_mul(n));
                group.check_len("`send` of an alltoall", send, whole)?;
                group.check_len("`recv` of an alltoall", recv, Some(len_of(send)))
            }
            Self::Alltoallv { send, recv } => {
                let (from, into) = (send.len(), recv.len());
                if from != n || into != n {
                    let what = format!(
                        "{from} parts to send and {into} to receive of {n} members; one for each is needed"
                    );
                    return Err(Error::new(ErrorKind::Length, what));
                }
                match (send.get(me), recv.get(me)) {
                    (Some(from), Some(into)) => {
                        group.check_len("the own part to receive", into, Some(len_of(from)))
                    }
                    _ => Ok(()),
                }
            }
            Self::ReduceScatter { send, numbers } => {
                numbers.memory.check_writable()?;
                check_whole("`recv` of a reduce_scatter", numbers)?;
                let want = numbers.memory.len().checked_mul(n);
                group.check_len("`send` of a reduce_scatter", send, want)
            }
            Self::Allreduce(numbers) => {
                numbers.memory.check_writable()?;
                check_whole("`bytes` of an allreduce", numbers)
            }
        }
    }
}

impl Collective<'_> {
    async fn run(self, within: Option<Duration>, blocks: bool) -> Result<()> {
        let Self { group, what } = self;
        let members = &*group.members;
        members.shared.check_process()?;
        what.check(group)?;
        let mut running = group.begin(what.name())?;
        let by = clock::deadline_in(within.unwrap_or(members.shared.config.deadline));
        let call = Call { members, by, blocks };
        let result = call.run(what, &mut running.scratch).await;
        running.end(result)
    }
}

impl Call<'_> {
    async fn run(&self, what: What<'_>, scratch: &mut Vec<u8>) -> Result<()> {
        match what {
            What::Barrier => self.barrier().await,
            What::Broadcast { root, bytes } => self.broadcast(root, bytes).await,
            What::Gather { root, send, recv } => self.gather(root, send, recv).await,
            What::Scatter { root, send, recv } => self.scatter(root, send, recv).await,
            What::Allgather { send, recv } => self.allgather(send, recv).await,
            What::Alltoall { send, recv, how } => self.alltoall(send, recv, how).await,
            What::Alltoallv { send, recv } => self.alltoallv(send, recv).await,
            What::ReduceScatter { send, numbers } => {
                self.reduce_scatter(send, numbers, scratch).await
            }
            What::Allreduce(numbers) => self.allreduce(numbers, scratch).await,
        }
    }
}

impl fmt::Debug for Collective<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Collective").field(&self.what.name()).finish()
    }
}

impl Sealed for Collective<'_> {}

impl<'a> Verb for Collective<'a> {
    type Output = ();
    type Error = Error;
    type Pending = PendingCollective<'a>;

    fn wait(self, within: Option<Duration>) -> Result<()> {
        let mut call = pin!(self.run(within, true));
        loop {
            // Who blocks is never pending.
            if let Poll::Ready(over) = call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                return over;
            }
        }
    }

    fn pending(self, within: Option<Duration>) -> PendingCollective<'a> {
        PendingCollective(Some(Box::pin(self.run(within, false))))
    }
}

/// It as a future, which copies bytes in its own polls. Dropped after its first poll, it breaks the group.
pub struct PendingCollective<'a>(Option<Pin<Box<dyn Future<Output = Result<()>> + Send + 'a>>>);

impl fmt::Debug for PendingCollective<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PendingCollective")
    }
}

impl Future for PendingCollective<'_> {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(call) = &mut self.0 else { return Poll::Ready(Err(given())) };
        let over = ready!(call.as_mut().poll(cx));
        self.0 = None;
        Poll::Ready(over)
    }
}
