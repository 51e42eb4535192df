//! Sizes as people write them, rates as people read them.

/// Reads `4096`, `4K`, `1M`, `2G` (powers of 1024; `KiB` and `KB` mean the same), in bytes.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is no size: write bytes, or a number with K, M, G or T");
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    let power = match unit.to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" | "KB" | "KIB" => 10,
        "M" | "MB" | "MIB" => 20,
        "G" | "GB" | "GIB" => 30,
        "T" | "TB" | "TIB" => 40,
        _ => return Err(wrong()),
    };
    number.checked_mul(1 << power).ok_or_else(|| format!("`{text}` is more than 64 bits hold"))
}

/// Bytes as a short size: exact when it is a whole number of a unit.
pub(crate) fn short(bytes: u64) -> String {
    for (power, unit) in [(40, "T"), (30, "G"), (20, "M"), (10, "K")] {
        if bytes >> power > 0 && bytes.is_multiple_of(1 << power) {
            return format!("{}{unit}", bytes >> power);
        }
    }
    bytes.to_string()
}

/// Bytes for a person, in binary units.
pub(crate) fn human(bytes: u64) -> String {
    for (power, unit) in [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")] {
        if bytes >> power > 0 {
            return format!("{:.1} {unit}", bytes as f64 / (1u64 << power) as f64);
        }
    }
    format!("{bytes} B")
}

/// 10^9 bytes a second.
pub(crate) fn gb_per_s(bytes: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { bytes as f64 / seconds / 1e9 } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::{gb_per_s, human, short, size};

    #[test]
    fn sizes_are_read_and_written() {
        assert_eq!(size("8"), Ok(8));
        assert_eq!(size("4K"), Ok(4096));
        assert_eq!(size("3MiB"), Ok(3 << 20));
        assert_eq!(size("2g"), Ok(2 << 30));
        for bad in ["", "K", "4X", "-1", "1.5M", "99999999999999999999"] {
            assert!(size(bad).is_err(), "{bad}");
        }
        assert!(size("17000000T").is_err());
        assert_eq!((short(4096).as_str(), short(1500).as_str()), ("4K", "1500"));
        assert_eq!(human(1536), "1.5 KiB");
    }

    #[test]
    fn every_unit_has_its_names() {
        for (names, bytes) in [
            (["", "B", "b"], 7),
            (["K", "KB", "kib"], 7 << 10),
            (["M", "mB", "MIB"], 7 << 20),
            (["G", "GB", "GiB"], 7 << 30),
            (["T", "tb", "TiB"], 7 << 40),
        ] {
            for name in names {
                assert_eq!(size(&format!("7{name}")), Ok(bytes), "{name}");
            }
        }
        assert_eq!(size("16777215T"), Ok(16_777_215 << 40));
        assert!(size("16777216T").unwrap_err().contains("64 bits"));
    }

    #[test]
    fn sizes_change_their_unit_at_its_power() {
        for (bytes, said, exact) in [
            (0, "0 B", "0"),
            (1023, "1023 B", "1023"),
            (1024, "1.0 KiB", "1K"),
            (1025, "1.0 KiB", "1025"),
            ((1 << 20) - 1024, "1023.0 KiB", "1023K"),
            (1 << 20, "1.0 MiB", "1M"),
            (3 << 19, "1.5 MiB", "1536K"),
            (1 << 30, "1.0 GiB", "1G"),
            (5 << 39, "2.5 TiB", "2560G"),
            (3 << 40, "3.0 TiB", "3T"),
        ] {
            assert_eq!((human(bytes).as_str(), short(bytes).as_str()), (said, exact));
        }
    }

    #[test]
    fn a_rate_without_time_is_0() {
        assert_eq!(gb_per_s(3_000_000_000, 2.0), 1.5);
        assert_eq!(gb_per_s(3_000_000_000, 0.0), 0.0);
    }
}
