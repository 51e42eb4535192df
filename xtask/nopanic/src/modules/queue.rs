//! `hmc_core::queue`.

use crate::values::{
    Opaque, any, done, failure, local, now, number, op, opcode, remote, show, small, when,
};
use hmc_core::queue::{Hold, QueueError, Transfer, WorkQueue};
use hmc_core::slots::Slot;
use hmc_core::transport::{PostErrorKind, Transport};

pub(crate) fn call() {
    show::<QueueError<PostErrorKind>>(&any(QueueError::Busy));
    let mut storage = [Slot::FREE; 8];
    queue(WorkQueue::new(Opaque, any(&mut storage[..])));
    queue(WorkQueue::new(&mut Opaque, [Slot::FREE; 4]));
    queue(WorkQueue::new(&mut Opaque, [Slot::free(Kept::default()); 4]));
    done(Hold::transfer(&mut (), small()));
    done(Hold::keep(&mut (), &transfer()));
    let list = [transfer(); 4];
    done(Hold::transfer(&mut any(&list[..]), small()));
    done(Hold::keep(&mut any(&list[..]), &transfer()));
}

fn transfer() -> Transfer {
    any(Transfer { opcode: opcode(), when: when(), local: local(), remote: remote() })
}

/// Holds one transfer.
#[derive(Clone, Copy, Default)]
struct Kept(Option<Transfer>);

impl Hold for Kept {
    fn transfer(&mut self, left: u32) -> Option<Transfer> {
        self.0.filter(|_| left != 0)
    }

    fn keep(&mut self, t: &Transfer) -> bool {
        self.0 = Some(*t);
        any(true)
    }
}

fn queue<T, X, S>(mut l: WorkQueue<T, S, X>)
where
    T: Transport<Error = PostErrorKind>,
    X: Hold,
    S: AsRef<[Slot<X>]> + AsMut<[Slot<X>]>,
{
    let transfer = transfer();
    done(&mut l);
    done(WorkQueue::transport(&l).caps());
    done(WorkQueue::transport_mut(&mut l));
    done(WorkQueue::slots(&l));
    done(&mut l);
    done(WorkQueue::post(&mut l, &transfer, now()));
    done(&mut l);
    done(WorkQueue::post_holding(&mut l, &transfer, now(), &mut X::default()));
    done(&mut l);
    done(&mut l);
    WorkQueue::grow(&mut l, |slots| done(slots));
    done(&mut l);
    done(WorkQueue::progress(&mut l));
    done(WorkQueue::stale(&l));
    done(&mut l);
    done(WorkQueue::try_wait(&mut l, op()));
    done(&mut l);
    done(WorkQueue::take(&mut l, op()));
    done(WorkQueue::hold_mut(&mut l, op()));
    done(&mut l);
    done(WorkQueue::outcome(&l, op()));
    done(WorkQueue::test(&l, op()));
    done(WorkQueue::cancel(&mut l, op()));
    done(&mut l);
    done(WorkQueue::abandon(&mut l, op()));
    done(&mut l);
    WorkQueue::expire(&mut l, now());
    done(&mut l);
    done(WorkQueue::next_deadline(&l));
    WorkQueue::fail_all(&mut l, failure(), any(true));
    done(&mut l);
    done(WorkQueue::next_event(&mut l));
    done(WorkQueue::in_flight(&l));
    done(&mut l);
}
