//! `hmc_core::window`.

use crate::values::{access, any, done, epoch, kind, local, number, show, window};
use hmc_core::window::{ExposeError, StaleGeneration, WindowState, WindowTransition, WindowEntry, WindowFault, WindowTable};

pub(crate) fn call() {
    show::<WindowFault>(&any(WindowFault::Unknown));
    show::<StaleGeneration>(&any(StaleGeneration { block: 0, expected: 0, found: 0 }));
    show::<ExposeError>(&any(ExposeError::Full { limit: 0 }));
    done(WindowState::next(any(WindowState::Free), any(WindowTransition::Expose)));
    let entry = any(WindowEntry::FREE);
    done(WindowEntry::state(&entry));
    done(WindowEntry::local(&entry));
    done(WindowEntry::describe(&entry));
    // As hmc-std does (storage whose length is not known) and as the embedding does.
    let mut storage = [WindowEntry::FREE; 8];
    table(WindowTable::new(any(&mut storage[..])));
    table(WindowTable::new([WindowEntry::FREE; 4]));
}

fn table<S: AsRef<[WindowEntry]> + AsMut<[WindowEntry]>>(mut t: WindowTable<S>) {
    done(&mut t);
    done(WindowTable::expose(&mut t, local(), kind(), access(), number()));
    done(&mut t);
    done(WindowTable::entry(&t, window(), epoch()));
    done(WindowTable::check(&t, window(), epoch(), number(), number(), access()));
    done(WindowTable::apply(&mut t, window(), epoch(), any(WindowTransition::Revoke)));
    done(WindowTable::serve(&mut t, window(), epoch(), number(), number()));
    done(&mut t);
    WindowTable::in_use(&t).for_each(done);
}
