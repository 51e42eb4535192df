//! The positive control: one access that can panic.

use crate::values::{bytes, done, size};

pub(crate) fn call() {
    done(bytes(&[0; 16])[size()]);
}
