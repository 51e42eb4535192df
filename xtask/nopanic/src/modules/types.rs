//! `hmc_core::types`.

use crate::values::{any, done, kind, rank, show};
use hmc_core::types::{ConnType, MemoryKind, Rank};

pub(crate) fn call() {
    show::<Rank>(&rank());
    done(MemoryKind::from_wire(any(0)));
    done(MemoryKind::to_wire(kind()));
    done(MemoryKind::name(kind()));
    let conn = any(ConnType::Auto);
    done(ConnType::name(conn));
    show::<ConnType>(&conn);
}
