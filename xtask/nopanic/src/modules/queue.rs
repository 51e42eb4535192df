//! `hmc_core::queue`.

use crate::values::{
    Opaque, any, done, failure, local, now, number, op, opcode, remote, show, small, when,
};
use hmc_core::queue::{WorkQueue, QueueError, Transfer};
use hmc_core::slots::Slot;
use hmc_core::transport::{PostErrorKind, Transport};

pub(crate) fn call() {
    show::<QueueError<PostErrorKind>>(&any(QueueError::Busy));
    let mut storage = [Slot::FREE; 8];
    queue(WorkQueue::new(Opaque, any(&mut storage[..])));
    queue(WorkQueue::new(&mut Opaque, [Slot::FREE; 4]));
}

fn queue<T: Transport<Error = PostErrorKind>, S: AsRef<[Slot]> + AsMut<[Slot]>>(mut l: WorkQueue<T, S>) {
    let transfer =
        any(Transfer { opcode: opcode(), when: when(), local: local(), remote: remote() });
    done(&mut l);
    done(WorkQueue::transport(&l).caps());
    done(WorkQueue::transport_mut(&mut l));
    done(WorkQueue::slots(&l));
    done(&mut l);
    done(WorkQueue::post(&mut l, &transfer, now()));
    done(&mut l);
    done(WorkQueue::begin_batch(&mut l, small(), now()));
    done(WorkQueue::record(&mut l, number()));
    done(&mut l);
    done(&mut l);
    done(WorkQueue::feed(&mut l, op(), any(&[transfer; 4][..])));
    done(&mut l);
    done(WorkQueue::progress(&mut l));
    done(WorkQueue::stale(&l));
    done(&mut l);
    done(WorkQueue::try_wait(&mut l, op()));
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
