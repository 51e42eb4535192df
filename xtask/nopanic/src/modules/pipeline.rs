//! `hmc_core::pipeline`.

use crate::values::{Opaque, any, done, local, now, opcode, remote, size, when};
use core::num::NonZeroU64;
use hmc_core::queue::{WorkQueue, Transfer};
use hmc_core::pipeline::Pipeline;
use hmc_core::slots::Slot;

pub(crate) fn call() {
    let mut storage = [Slot::FREE; 8];
    let mut queue = WorkQueue::new(Opaque, any(&mut storage[..]));
    let transfer = Transfer { opcode: opcode(), when: when(), local: local(), remote: remote() };
    let Ok(mut p) = Pipeline::new(&transfer, any(NonZeroU64::MIN), size(), now()) else {
        return;
    };
    done(&mut p);
    done(&mut queue);
    done(Pipeline::advance(&mut p, &mut queue, now()));
    done(&mut p);
    Pipeline::cancel(&mut p);
    done(&mut p);
    done(Pipeline::in_flight(&p));
    done(Pipeline::bytes(&p));
    done(&mut queue);
    Pipeline::abandon(any(p), &mut queue);
    done(&mut queue);
}
