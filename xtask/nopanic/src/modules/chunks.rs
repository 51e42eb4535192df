//! `hmc_core::chunks`.

use crate::values::{any, done, local, number, remote, show};
use core::num::{NonZeroU32, NonZeroU64};
use hmc_core::chunks::{Chunks, LengthMismatch, RangePair};

pub(crate) fn call() {
    let pair = match RangePair::new(local(), remote()) {
        Ok(pair) => any(pair),
        Err(e) => {
            show::<LengthMismatch>(&e);
            return;
        }
    };
    done(RangePair::local(&pair));
    done(RangePair::remote(&pair));
    done(RangePair::len(&pair));
    done(RangePair::is_empty(&pair));
    done(RangePair::split_at_most(pair, number()));
    pieces(RangePair::chunks(pair, any(NonZeroU64::MIN)));
    pieces(RangePair::stripes(pair, any(NonZeroU32::MIN), any(NonZeroU64::MIN)));
}

fn pieces(chunks: Chunks) {
    let mut chunks = any(chunks);
    done(Chunks::remaining(&chunks));
    done(Chunks::remaining_chunks(&chunks));
    done(chunks.size_hint());
    done(chunks.next());
    done(chunks);
}
