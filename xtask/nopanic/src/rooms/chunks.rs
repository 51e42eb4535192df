//! `hmc_core::chunks`.

use crate::values::{any, done, local, number, remote, show};
use core::num::{NonZeroU32, NonZeroU64};
use hmc_core::chunks::{Chunks, LengthMismatch, Pair};

pub(crate) fn call() {
    let pair = match Pair::new(local(), remote()) {
        Ok(pair) => any(pair),
        Err(e) => {
            show::<LengthMismatch>(&e);
            return;
        }
    };
    done(Pair::local(&pair));
    done(Pair::remote(&pair));
    done(Pair::len(&pair));
    done(Pair::is_empty(&pair));
    done(Pair::take(pair, number()));
    pieces(Pair::chunks(pair, any(NonZeroU64::MIN)));
    pieces(Pair::stripes(pair, any(NonZeroU32::MIN), any(NonZeroU64::MIN)));
}

fn pieces(chunks: Chunks) {
    let mut chunks = any(chunks);
    done(Chunks::rest(&chunks));
    done(Chunks::left(&chunks));
    done(chunks.size_hint());
    done(chunks.next());
    done(chunks);
}
