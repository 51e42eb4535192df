//! `hmc_core::ctrl::framer`.

use crate::values::{any, bytes, done, now, size, small};
use hmc_core::ctrl::framer::Framer;

pub(crate) fn call() {
    let (mut small_one, mut large) = ([0; 64], [0; 256]);
    let mut f = Framer::new(any(&mut small_one[..]));
    done(&mut f);
    done(Framer::held(&f));
    done(Framer::began(&f));
    done(Framer::space(&mut f));
    done(&mut f);
    Framer::filled(&mut f, size(), now());
    done(&mut f);
    done(Framer::push(&mut f, bytes(&[1; 32]), now()));
    done(&mut f);
    done(Framer::next(&mut f, small()));
    done(&mut f);
    done(Framer::capacity(&f));
    done(Framer::take_held(&mut f));
    match Framer::grow(&mut f, any(&mut large[..])) {
        Ok(old) => done(old),
        Err(e) => done((e.storage, e.need)),
    }
}
