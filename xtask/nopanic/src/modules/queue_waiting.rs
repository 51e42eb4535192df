//! `hmc_core::queue::waiting`.

use crate::values::{Opaque, any, done, local, now, op, opcode, remote, small, when};
use hmc_core::queue::{Hold, Transfer, WorkQueue};
use hmc_core::slots::Slot;

/// Holds the same transfer several times.
#[derive(Clone, Copy, Default)]
struct Same(Option<Transfer>);

impl Hold for Same {
    fn transfer(&mut self, left: u32) -> Option<Transfer> {
        self.0.filter(|_| any(left) != 0)
    }

    fn keep(&mut self, _: &Transfer) -> bool {
        any(false)
    }
}

pub(crate) fn call() {
    let mut l = WorkQueue::new(Opaque, [Slot::free(Same::default()); 4]);
    let t = Transfer { opcode: opcode(), when: when(), local: local(), remote: remote() };
    done(&mut l);
    done(WorkQueue::post_list(&mut l, small(), now(), &mut any(Same(Some(t)))));
    done(&mut l);
    done(WorkQueue::has_waiting(&l));
    done(WorkQueue::progress(&mut l));
    done(WorkQueue::try_wait(&mut l, op()));
    done(&mut l);
}
