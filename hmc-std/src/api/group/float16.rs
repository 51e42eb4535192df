//! Numbers of 16 bits with a fraction, IEEE 754's binary16 and bfloat16, to and from `f32`. Bits alone: nothing here
//! knows what they are for.

/// Above all finite numbers of `f32`: an infinity, without its sign.
const INFINITY: u32 = 0x7F80_0000;
const SIGN: u32 = 0x8000_0000;

/// The lower half of `bits`.
const fn low(bits: u32) -> u16 {
    let [a, b, _, _] = bits.to_le_bytes();
    u16::from_le_bytes([a, b])
}

/// The value of a binary16, exactly.
pub(super) fn from_f16(half: u16) -> f32 {
    let sign = u32::from(half & 0x8000) << 16;
    let rest = u32::from(half & 0x7FFF);
    let value = if rest >= 0x7C00 {
        // An infinity, or no number: the fraction moves along.
        INFINITY | rest << 13
    } else {
        // Exponents differ by 112. A product also makes numbers below the least normal one right.
        (f32::from_bits(rest << 13) * f32::from_bits(0x7780_0000)).to_bits()
    };
    f32::from_bits(sign | value)
}

/// The nearest binary16, of two that are equally near the even one. From 65,520 on it is an infinity.
pub(super) fn to_f16(value: f32) -> u16 {
    let bits = value.to_bits();
    let (sign, rest) = (low((bits & SIGN) >> 16), bits & !SIGN);
    let half = if rest > INFINITY {
        0x7E00
    } else if rest >= 0x4780_0000 {
        // 65,536 and more.
        0x7C00
    } else if rest < 0x3880_0000 {
        // Less than 2^-14. The sum with 0.5 has the last place of such a binary16, and rounds.
        let sum = f32::from_bits(rest) + 0.5;
        low(sum.to_bits().wrapping_sub(0x3F00_0000))
    } else {
        let odd = rest >> 13 & 1;
        // Exponents differ by 112. What is rounded up beyond the last number is an infinity.
        let rounded = rest.wrapping_sub(112 << 23).wrapping_add(0x0FFF).wrapping_add(odd);
        low(rounded >> 13)
    };
    sign | half
}

/// The value of a bfloat16, exactly.
pub(super) fn from_bf16(half: u16) -> f32 {
    f32::from_bits(u32::from(half) << 16)
}

/// The nearest bfloat16, of two that are equally near the even one.
pub(super) fn to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    if bits & !SIGN > INFINITY {
        // Its fraction may be in the lower half alone: it must not become an infinity.
        return low(bits >> 16) | 0x0040;
    }
    let odd = bits >> 16 & 1;
    low(bits.wrapping_add(0x7FFF).wrapping_add(odd) >> 16)
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, reason = "tests may panic")]
mod tests {
    use super::{from_bf16, from_f16, to_bf16, to_f16};
    use proptest::prelude::*;

    /// What the standard says of a number of 16 bits with an exponent of `exponent` bits, slowly and in `f64`.
    fn by_the_book(half: u16, exponent: u32) -> f64 {
        let fraction_bits = 15 - exponent;
        let sign = if half & 0x8000 == 0 { 1.0 } else { -1.0 };
        let e = i32::from(half >> fraction_bits) & ((1 << exponent) - 1);
        let fraction = f64::from(half & ((1 << fraction_bits) - 1));
        let unit = 2f64.powi(-i32::try_from(fraction_bits).expect("small"));
        let bias = (1 << (exponent - 1)) - 1;
        sign * match e {
            0 => fraction * unit * 2f64.powi(1 - bias),
            e if e == (1 << exponent) - 1 => {
                if fraction == 0.0 {
                    f64::INFINITY
                } else {
                    f64::NAN
                }
            }
            e => (1.0 + fraction * unit) * 2f64.powi(e - bias),
        }
    }

    /// The nearest of all finite numbers, by looking at each; what is half-way to the next beyond them is infinite.
    fn nearest(value: f32, exponent: u32) -> u16 {
        let sign = if value.is_sign_negative() { 0x8000 } else { 0 };
        let value = f64::from(value.abs());
        let infinite = ((1u16 << exponent) - 1) << (15 - exponent);
        let last = by_the_book(infinite - 1, exponent);
        let step = last - by_the_book(infinite - 2, exponent);
        if value >= last + step / 2.0 {
            return sign | infinite;
        }
        let (mut low, mut high) = (0, infinite - 1);
        while low < high {
            let mid = low + (high - low).div_ceil(2);
            if by_the_book(mid, exponent) <= value { low = mid } else { high = mid - 1 }
        }
        if low == infinite - 1 {
            return sign | low;
        }
        let (below, above) = (by_the_book(low, exponent), by_the_book(low + 1, exponent));
        let up = match (value - below).partial_cmp(&(above - value)).expect("finite") {
            std::cmp::Ordering::Less => false,
            std::cmp::Ordering::Equal => low & 1 == 1,
            std::cmp::Ordering::Greater => true,
        };
        sign | if up { low + 1 } else { low }
    }

    #[test]
    fn every_number_of_16_bits_has_its_value_and_comes_back() {
        for half in 0..=u16::MAX {
            for (value, back, exponent) in [
                (from_f16(half), to_f16(from_f16(half)), 5),
                (from_bf16(half), to_bf16(from_bf16(half)), 8),
            ] {
                let book = by_the_book(half, exponent);
                if book.is_nan() {
                    assert!(value.is_nan(), "{half:#06x}");
                    let there = by_the_book(back, exponent);
                    assert!(there.is_nan(), "{half:#06x} came back as {back:#06x}");
                } else {
                    assert!(f64::from(value) == book, "{half:#06x} is {book}, not {value}");
                    assert_eq!(back, half, "of {exponent} bits of exponent");
                }
            }
        }
    }

    /// What says that it is none may stand in the part that is cut off.
    #[test]
    fn what_is_no_number_never_becomes_one() {
        for bits in [0x7F80_0001, 0x7F80_FFFF, 0xFF80_0001, 0x7FC0_0000, u32::MAX] {
            let value = f32::from_bits(bits);
            assert!(from_f16(to_f16(value)).is_nan(), "{bits:#010x}");
            assert!(from_bf16(to_bf16(value)).is_nan(), "{bits:#010x}");
        }
    }

    /// Where rounding goes wrong first: half-way between neighbours, and the next of `f32` on either side.
    #[test]
    fn half_way_goes_to_the_even_one() {
        for exponent in [5, 8] {
            let infinite = ((1u16 << exponent) - 1) << (15 - exponent);
            for half in 0..infinite {
                let (a, b) =
                    (by_the_book(half, exponent), by_the_book(half.wrapping_add(1), exponent));
                let b = if half + 1 == infinite {
                    a + (a - by_the_book(half - 1, exponent))
                } else {
                    b
                };
                // Exact: the middle needs one place more.
                #[allow(clippy::cast_possible_truncation, clippy::as_conversions, reason = "exact")]
                let middle = ((a + b) / 2.0) as f32;
                for bits in [-1i32, 0, 1] {
                    let value = f32::from_bits(middle.to_bits().wrapping_add_signed(bits));
                    if value.is_nan() {
                        continue;
                    }
                    let got = if exponent == 5 { to_f16(value) } else { to_bf16(value) };
                    assert_eq!(got, nearest(value, exponent), "{value:e}, {exponent} bits");
                    let got = if exponent == 5 { to_f16(-value) } else { to_bf16(-value) };
                    assert_eq!(got, nearest(-value, exponent), "-{value:e}, {exponent} bits");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn any_number_goes_to_the_nearest(bits: u32) {
            let value = f32::from_bits(bits);
            if value.is_nan() {
                prop_assert!(from_f16(to_f16(value)).is_nan() && from_bf16(to_bf16(value)).is_nan());
            } else if value.is_infinite() {
                prop_assert_eq!(from_f16(to_f16(value)), value);
                prop_assert_eq!(from_bf16(to_bf16(value)), value);
            } else {
                prop_assert_eq!(to_f16(value), nearest(value, 5));
                prop_assert_eq!(to_bf16(value), nearest(value, 8));
            }
        }
    }
}
