//! Reductions of two sequences of numbers, as bytes: the kinds of numbers, and the operations. Knows no ranks.

use super::float16;

/// The type of the numbers in the bytes of a reduction. They have the byte order of this machine, and need no alignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Element {
    /// Whole numbers of 8 bits with a sign.
    I8,
    /// Of 16 bits.
    I16,
    /// Of 32 bits.
    I32,
    /// Of 64 bits.
    I64,
    /// Whole numbers of 8 bits without a sign. For truth values (0 and 1), [`Reduce::Max`] is "any" and [`Reduce::Min`] is "all".
    U8,
    /// Of 16 bits.
    U16,
    /// Of 32 bits.
    U32,
    /// Of 64 bits.
    U64,
    /// IEEE 754 binary16. Each step is computed in `f32` and rounded to nearest, ties to even.
    F16,
    /// bfloat16, the upper half of an `f32`. Each step is computed as for [`Element::F16`].
    BF16,
    /// IEEE 754's binary32.
    F32,
    /// IEEE 754's binary64.
    F64,
}

impl Element {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::I8,
        Self::I16,
        Self::I32,
        Self::I64,
        Self::U8,
        Self::U16,
        Self::U32,
        Self::U64,
        Self::F16,
        Self::BF16,
        Self::F32,
        Self::F64,
    ];

    /// Returns the length of one number in bytes.
    #[must_use]
    pub const fn len_bytes(self) -> usize {
        match self {
            Self::I8 | Self::U8 => 1,
            Self::I16 | Self::U16 | Self::F16 | Self::BF16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }

    /// Replaces each number of `into` by `op` of it and the number of `with` at the same offset. Numbers that only one of them has, and
    /// an incomplete number at the end, stay unchanged.
    pub(super) fn reduce(self, op: Reduce, into: &mut [u8], with: &[u8]) {
        match self {
            Self::I8 => fold::<1, i8>(op, into, with),
            Self::I16 => fold::<2, i16>(op, into, with),
            Self::I32 => fold::<4, i32>(op, into, with),
            Self::I64 => fold::<8, i64>(op, into, with),
            Self::U8 => fold::<1, u8>(op, into, with),
            Self::U16 => fold::<2, u16>(op, into, with),
            Self::U32 => fold::<4, u32>(op, into, with),
            Self::U64 => fold::<8, u64>(op, into, with),
            Self::F16 => fold::<2, F16>(op, into, with),
            Self::BF16 => fold::<2, BF16>(op, into, with),
            Self::F32 => fold::<4, f32>(op, into, with),
            Self::F64 => fold::<8, f64>(op, into, with),
        }
    }
}

/// The operation of a reduction.
///
/// Whole numbers wrap, as by `wrapping_add` and `wrapping_mul`. For floating-point numbers, `Min` and `Max` of any number and a NaN
/// are a NaN; of -0 and +0 they are the first in the order of the reduction. A NaN result is always the same one (quiet, positive,
/// no payload), because processors choose different ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reduce {
    /// The sum.
    Sum,
    /// The product.
    Prod,
    /// The least.
    Min,
    /// The greatest.
    Max,
}

impl Reduce {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Sum, Self::Prod, Self::Min, Self::Max];
}

/// A number of `N` bytes.
trait Number<const N: usize>: Copy {
    fn read(bytes: [u8; N]) -> Self;
    fn write(self) -> [u8; N];
    fn sum(self, other: Self) -> Self;
    fn product(self, other: Self) -> Self;
    fn least(self, other: Self) -> Self;
    fn greatest(self, other: Self) -> Self;
}

/// Whole numbers.
macro_rules! whole {
    ($($t:ty: $n:literal),*) => {$(
        impl Number<$n> for $t {
            fn read(bytes: [u8; $n]) -> Self {
                Self::from_ne_bytes(bytes)
            }
            fn write(self) -> [u8; $n] {
                self.to_ne_bytes()
            }
            fn sum(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            fn product(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
            fn least(self, other: Self) -> Self {
                self.min(other)
            }
            fn greatest(self, other: Self) -> Self {
                self.max(other)
            }
        }
    )*};
}

whole!(i8: 1, i16: 2, i32: 4, i64: 8, u8: 1, u16: 2, u32: 4, u64: 8);

/// The number, or the one NaN that comes out.
fn one_f32(x: f32) -> f32 {
    if x.is_nan() { f32::from_bits(0x7FC0_0000) } else { x }
}

/// As [`one_f32`].
fn one_f64(x: f64) -> f64 {
    if x.is_nan() { f64::from_bits(0x7FF8_0000_0000_0000) } else { x }
}

/// Numbers with a fraction: how they are read and written, and in which type they are reckoned with.
macro_rules! fraction {
    ($t:ty: $n:literal, $in:ty, $one_nan:ident, $read:expr, $write:expr) => {
        impl Number<$n> for $t {
            fn read(bytes: [u8; $n]) -> Self {
                $read(bytes)
            }
            fn write(self) -> [u8; $n] {
                $write(self)
            }
            fn sum(self, other: Self) -> Self {
                <$t>::from($one_nan(<$in>::from(self) + <$in>::from(other)))
            }
            fn product(self, other: Self) -> Self {
                <$t>::from($one_nan(<$in>::from(self) * <$in>::from(other)))
            }
            fn least(self, other: Self) -> Self {
                let (a, b) = (<$in>::from(self), <$in>::from(other));
                <$t>::from(if a.is_nan() || b.is_nan() {
                    $one_nan(<$in>::NAN)
                } else if b < a {
                    b
                } else {
                    a
                })
            }
            fn greatest(self, other: Self) -> Self {
                let (a, b) = (<$in>::from(self), <$in>::from(other));
                <$t>::from(if a.is_nan() || b.is_nan() {
                    $one_nan(<$in>::NAN)
                } else if b > a {
                    b
                } else {
                    a
                })
            }
        }
    };
}

fraction!(f32: 4, f32, one_f32, f32::from_ne_bytes, f32::to_ne_bytes);
fraction!(f64: 8, f64, one_f64, f64::from_ne_bytes, f64::to_ne_bytes);
fraction!(F16: 2, f32, one_f32, |b| Self(u16::from_ne_bytes(b)), |v: Self| v.0.to_ne_bytes());
fraction!(BF16: 2, f32, one_f32, |b| Self(u16::from_ne_bytes(b)), |v: Self| v.0.to_ne_bytes());

/// The bits of a binary16.
#[derive(Clone, Copy)]
struct F16(u16);

impl From<F16> for f32 {
    fn from(half: F16) -> Self {
        float16::from_f16(half.0)
    }
}

impl From<f32> for F16 {
    fn from(value: f32) -> Self {
        Self(float16::to_f16(value))
    }
}

/// The bits of a bfloat16.
#[derive(Clone, Copy)]
struct BF16(u16);

impl From<BF16> for f32 {
    fn from(half: BF16) -> Self {
        float16::from_bf16(half.0)
    }
}

impl From<f32> for BF16 {
    fn from(value: f32) -> Self {
        Self(float16::to_bf16(value))
    }
}

fn fold<const N: usize, T: Number<N>>(op: Reduce, into: &mut [u8], with: &[u8]) {
    // One loop for each: the compiler makes vectors of it.
    match op {
        Reduce::Sum => each::<N, T>(into, with, T::sum),
        Reduce::Prod => each::<N, T>(into, with, T::product),
        Reduce::Min => each::<N, T>(into, with, T::least),
        Reduce::Max => each::<N, T>(into, with, T::greatest),
    }
}

fn each<const N: usize, T: Number<N>>(into: &mut [u8], with: &[u8], op: impl Fn(T, T) -> T) {
    let (into, _) = into.as_chunks_mut::<N>();
    let (with, _) = with.as_chunks::<N>();
    for (a, b) in into.iter_mut().zip(with) {
        *a = op(T::read(*a), T::read(*b)).write();
    }
}

#[cfg(test)]
mod tests {
    use super::{Element, Reduce};
    use proptest::prelude::*;

    /// One step, from numbers to numbers.
    fn step<const N: usize>(element: Element, op: Reduce, a: [u8; N], b: [u8; N]) -> [u8; N] {
        let mut into = a;
        element.reduce(op, &mut into, &b);
        into
    }

    macro_rules! check_whole {
        ($($name:ident: $t:ty, $element:expr;)*) => {
            proptest! {$(
                #[test]
                fn $name(a: $t, b: $t) {
                    let of = |op| <$t>::from_ne_bytes(step($element, op, a.to_ne_bytes(), b.to_ne_bytes()));
                    prop_assert_eq!(of(Reduce::Sum), a.wrapping_add(b));
                    prop_assert_eq!(of(Reduce::Prod), a.wrapping_mul(b));
                    prop_assert_eq!(of(Reduce::Min), if a < b { a } else { b });
                    prop_assert_eq!(of(Reduce::Max), if a > b { a } else { b });
                }
            )*}
        };
    }

    check_whole! {
        i8_wraps: i8, Element::I8;
        i16_wraps: i16, Element::I16;
        i32_wraps: i32, Element::I32;
        i64_wraps: i64, Element::I64;
        u8_wraps: u8, Element::U8;
        u16_wraps: u16, Element::U16;
        u32_wraps: u32, Element::U32;
        u64_wraps: u64, Element::U64;
    }

    /// Equal, or neither is a number.
    fn same(a: f64, b: f64) -> bool {
        a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()
    }

    /// As the documents say it.
    fn least_or_greatest(op: Reduce, a: f64, b: f64) -> f64 {
        let second = match op {
            Reduce::Min => b < a,
            _ => b > a,
        };
        if a.is_nan() || b.is_nan() {
            f64::NAN
        } else if second {
            b
        } else {
            a
        }
    }

    proptest! {
        #[test]
        fn f32_and_f64(a: u64, b: u64) {
            let of = |op| f64::from_ne_bytes(step(Element::F64, op, a.to_ne_bytes(), b.to_ne_bytes()));
            let (x, y) = (f64::from_bits(a), f64::from_bits(b));
            prop_assert!(same(of(Reduce::Sum), x + y) && same(of(Reduce::Prod), x * y));
            for op in [Reduce::Min, Reduce::Max] {
                prop_assert!(same(of(op), least_or_greatest(op, x, y)));
            }
            let half = |n: u64| u32::try_from(n >> 32).expect("a half");
            let (a, b) = (half(a), half(b));
            let of = |op| f32::from_ne_bytes(step(Element::F32, op, a.to_ne_bytes(), b.to_ne_bytes()));
            let (x, y) = (f32::from_bits(a), f32::from_bits(b));
            let sum_and_product = [(Reduce::Sum, x + y), (Reduce::Prod, x * y)];
            for (op, want) in sum_and_product {
                prop_assert!(same(f64::from(of(op)), f64::from(want)));
            }
            for op in [Reduce::Min, Reduce::Max] {
                let want = least_or_greatest(op, f64::from(x), f64::from(y));
                prop_assert!(same(f64::from(of(op)), want));
            }
        }

        #[test]
        fn halves_are_reckoned_in_f32_and_rounded(a: u16, b: u16) {
            type Conversion = (Element, fn(u16) -> f32, fn(f32) -> u16);
            let kinds: [Conversion; 2] = [
                (Element::F16, super::float16::from_f16, super::float16::to_f16),
                (Element::BF16, super::float16::from_bf16, super::float16::to_bf16),
            ];
            for (element, read, write) in kinds {
                let of = |op| u16::from_ne_bytes(step(element, op, a.to_ne_bytes(), b.to_ne_bytes()));
                let (x, y) = (read(a), read(b));
                let value = |half: u16| f64::from(read(half));
                prop_assert!(same(value(of(Reduce::Sum)), value(write(x + y))));
                prop_assert!(same(value(of(Reduce::Prod)), value(write(x * y))));
                for op in [Reduce::Min, Reduce::Max] {
                    let want = least_or_greatest(op, f64::from(x), f64::from(y));
                    prop_assert!(same(value(of(op)), want));
                }
            }
        }

        /// A NaN of any bits, on either side or made of two others.
        #[test]
        fn one_nan_comes_out(payload: u64, other: u64) {
            let nan = (0x7FF << 52) | payload | 1;
            let f64s = |op, a: u64, b: u64| u64::from_ne_bytes(step(Element::F64, op, a.to_ne_bytes(), b.to_ne_bytes()));
            let infinite = f64::INFINITY.to_bits();
            for op in Reduce::ALL {
                prop_assert_eq!(f64s(op, nan, other), 0x7FF8 << 48);
                prop_assert_eq!(f64s(op, other, nan), 0x7FF8 << 48);
            }
            prop_assert_eq!(f64s(Reduce::Sum, infinite, infinite | 1 << 63), 0x7FF8 << 48);
            prop_assert_eq!(f64s(Reduce::Prod, infinite | 1 << 63, 0), 0x7FF8 << 48);
            let low = |n: u64| u16::try_from(n & 0xFFFF).expect("16 bits");
            for (element, exponent, one) in [(Element::F16, 0x7C00, 0x7E00), (Element::BF16, 0x7F80, 0x7FC0)] {
                let nan = exponent | low(payload) | 1;
                let halves = |op, a: u16, b: u16| u16::from_ne_bytes(step(element, op, a.to_ne_bytes(), b.to_ne_bytes()));
                for op in Reduce::ALL {
                    prop_assert_eq!(halves(op, nan, low(other)), one);
                    prop_assert_eq!(halves(op, low(other), nan), one);
                }
            }
        }

        /// Long ones: each number meets the one at its place, wherever they lie.
        #[test]
        fn places_agree(bytes in prop::collection::vec(any::<u8>(), 0..200), shift in 0usize..8) {
            for element in Element::ALL {
                let n = element.len_bytes();
                let from = shift.min(bytes.len());
                let (_, rest) = bytes.split_at(from);
                let with: Vec<u8> = rest.iter().rev().copied().collect();
                for op in Reduce::ALL {
                    let mut into = rest.to_vec();
                    element.reduce(op, &mut into, &with);
                    let mut want = rest.to_vec();
                    for (a, b) in want.chunks_exact_mut(n).zip(with.chunks_exact(n)) {
                        element.reduce(op, a, b);
                    }
                    prop_assert_eq!(into, want, "{:?} {:?}", element, op);
                }
            }
        }
    }
}
