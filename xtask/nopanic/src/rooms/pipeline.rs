//! `hmc_core::pipeline`.

use crate::values::{Opaque, any, done, local, now, opcode, remote, size, when};
use core::num::NonZeroU64;
use hmc_core::lane::{Lane, Transfer};
use hmc_core::pipeline::Pipeline;
use hmc_core::slots::Slot;

pub(crate) fn call() {
    let mut storage = [Slot::FREE; 8];
    let mut lane = Lane::new(Opaque, any(&mut storage[..]));
    let transfer = Transfer { opcode: opcode(), when: when(), local: local(), remote: remote() };
    let Ok(mut p) = Pipeline::new(&transfer, any(NonZeroU64::MIN), size(), now()) else {
        return;
    };
    done(&mut p);
    done(&mut lane);
    done(Pipeline::advance(&mut p, &mut lane, now()));
    done(&mut p);
    Pipeline::cancel(&mut p);
    done(&mut p);
    done(Pipeline::in_flight(&p));
    done(Pipeline::bytes(&p));
    done(&mut lane);
    Pipeline::abandon(any(p), &mut lane);
    done(&mut lane);
}
