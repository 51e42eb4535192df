//! `hmc_core::wire::cursor`.

use crate::values::{any, bytes, done, number, show, size, small};
use hmc_core::wire::cursor::{Reader, WireError, WireErrorKind, Writer};

pub(crate) fn call() {
    let kind = any(WireErrorKind::UnknownType(0));
    show::<WireErrorKind>(&kind);
    show::<WireError>(&WireError { at: small(), kind });

    let storage = [0; 64];
    let mut r = Reader::new(bytes(&storage), small());
    done(Reader::at(&r));
    done(Reader::rest(&r));
    done(Reader::array::<5>(&mut r));
    done(Reader::bytes(&mut r, size()));
    done(Reader::u8(&mut r));
    done(Reader::u16_le(&mut r));
    done(Reader::u32_le(&mut r));
    done(Reader::u64_le(&mut r));
    done(Reader::end(&r));

    let mut target = [0; 64];
    let mut w = Writer::new(any(&mut target[..]));
    done(Writer::bytes(&mut w, bytes(&storage)));
    done(Writer::array(&mut w, &any([0; 5])));
    done(Writer::u8(&mut w, any(0)));
    done(Writer::u16_le(&mut w, any(0)));
    done(Writer::u32_le(&mut w, small()));
    done(Writer::u64_le(&mut w, number()));
    done(Writer::written(&w));
    done(Writer::space(&w));
}
