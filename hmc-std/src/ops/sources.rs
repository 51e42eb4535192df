//! The memory of ours that a transfer reads or fills.

use hmc_mem::shared::SharedBytes;

use crate::memory::{ConnBuffer, LocalRange, Span};
use crate::ops::lent::Lent;

/// What a put sends.
///
/// | type | how | comes back |
/// | --- | --- | --- |
/// | [`LocalRange`], `&ConnBuffer` | in place; the operation keeps the memory until its fence, others may use it meanwhile | |
/// | [`Span`] | in place; the operation owns it | with the result, or with the error at its fence |
/// | `&[u8]`, `&[u8; N]`, `&Vec<u8>`, [`SharedBytes`] | copied in the caller's own calls; such a request cannot be started, only waited for or awaited | |
pub trait Source: sealed::Source {
    /// What it is to the request.
    type Bytes;

    #[doc(hidden)]
    fn into_bytes(self) -> Self::Bytes;
}

/// What a get fills: as [`Source`], with `&mut` slices.
pub trait Sink: sealed::Sink {
    /// What it is to the request.
    type Bytes;

    #[doc(hidden)]
    fn into_bytes(self) -> Self::Bytes;
}

mod sealed {
    pub trait Source {}
    pub trait Sink {}
}

macro_rules! kinds {
    ($trait:ident: $([$($generics:tt)*] $type:ty => $memory:ty, |$value:ident| $into:expr;)*) => { $(
        impl<$($generics)*> sealed::$trait for $type {}

        impl<$($generics)*> $trait for $type {
            type Bytes = $memory;

            #[inline(always)]
            fn into_bytes(self) -> $memory {
                let $value = self;
                $into
            }
        }
    )* };
}

kinds! { Source:
    ['m] LocalRange<'m> => Self, |range| range;
    ['m] &'m ConnBuffer => LocalRange<'m>, |buffer| buffer.all();
    [] Span => Self, |span| span;
    ['b] Lent<'b> => Self, |bytes| bytes;
    ['b] SharedBytes<'b> => Lent<'b>, |bytes| Lent(bytes);
    ['b] &'b [u8] => Lent<'b>, |bytes| Lent(SharedBytes::of(bytes));
    ['b] &'b Vec<u8> => Lent<'b>, |bytes| Lent(SharedBytes::of(bytes));
    ['b, const N: usize] &'b [u8; N] => Lent<'b>, |bytes| Lent(SharedBytes::of(bytes));
}

kinds! { Sink:
    ['m] LocalRange<'m> => Self, |range| range;
    ['m] &'m ConnBuffer => LocalRange<'m>, |buffer| buffer.all();
    [] Span => Self, |span| span;
    ['b] Lent<'b> => Self, |bytes| bytes;
    ['b] SharedBytes<'b> => Lent<'b>, |bytes| Lent(bytes);
    ['b] &'b mut [u8] => Lent<'b>, |bytes| Lent(SharedBytes::of_mut(bytes));
    ['b] &'b mut Vec<u8> => Lent<'b>, |bytes| Lent(SharedBytes::of_mut(bytes));
    ['b, const N: usize] &'b mut [u8; N] => Lent<'b>, |bytes| Lent(SharedBytes::of_mut(bytes));
}
