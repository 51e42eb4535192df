//! A measuring program under callgrind: how many instructions a sample takes.
//!
//! Callgrind counts a string instruction as often as it repeats, so that a byte copied by one weighs 32 times as much as one
//! copied by vectors. Ours are in one function, whose count is taken for that of a loop of vectors; libc is told to use none.

use std::path::Path;
use std::process::{Command, Stdio};

/// The function that copies by a string instruction, byte by byte.
const REPEATING: &str = "copy::x86_64::rep";
/// Bytes that one instruction of a loop of vectors copies: 32 are loaded by one and stored by another.
const BYTES_EACH: u64 = 16;
/// glibc's `memcpy` and `memset` (Tunables, glibc manual 39.5): nothing is so long that they repeat.
const LOOPS: &str =
    "glibc.cpu.x86_rep_movsb_threshold=0x7fffffff:glibc.cpu.x86_rep_stosb_threshold=0x7fffffff";
/// Counts of which the least is taken: a thread that spins for another process only adds to one.
const COUNTS: usize = 3;

/// Instructions of one sample of a series, by callgrind: the difference of three samples and one.
///
/// # Errors
/// Why they could not be counted.
pub(crate) fn instructions(program: &Path, row: &str, series: u64) -> Result<f64, String> {
    let least = |samples: u32| -> Result<u64, String> {
        let mut least = u64::MAX;
        for _ in 0..COUNTS {
            least = least.min(count(program, row, &format!("{series},{samples}"))?);
        }
        Ok(least)
    };
    let (three, one) = (least(3)?, least(1)?);
    #[expect(clippy::as_conversions, clippy::cast_precision_loss, reason = "far below 2^53")]
    Ok(three.saturating_sub(one) as f64 / 2.0)
}

/// Instructions of a run.
fn count(program: &Path, row: &str, samples: &str) -> Result<u64, String> {
    let file = std::env::temp_dir().join(format!("hmc-bench-{}.callgrind", std::process::id()));
    let out = Command::new("timeout")
        .args(["600", "valgrind", "--tool=callgrind"])
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg(program)
        .args(["--only", row, "--count", samples])
        .env("GLIBC_TUNABLES", LOOPS)
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("no valgrind ({e}); install valgrind"))?;
    let words = String::from_utf8_lossy(&out.stderr);
    let text = std::fs::read_to_string(&file);
    let _ = std::fs::remove_file(&file);
    if !out.status.success() {
        return Err(format!("valgrind: {}", words.lines().last().unwrap_or("nothing was said")));
    }
    let text = text.map_err(|e| format!("{}: {e}", file.display()))?;
    counted(&text).ok_or_else(|| "valgrind gave no count".to_owned())
}

/// What a profile (Callgrind Format Specification, Valgrind manual) counts in all.
fn counted(text: &str) -> Option<u64> {
    let total: u64 = text.lines().find_map(|l| l.strip_prefix("summary: ")?.trim().parse().ok())?;
    let repeated = self_cost(text, REPEATING);
    Some(total.saturating_sub(repeated).saturating_add(repeated / BYTES_EACH))
}

/// The cost of functions whose name ends like that, less that of what they call.
fn self_cost(text: &str, name: &str) -> u64 {
    // A name is written once, `(number) name`; then its number stands for it.
    let mut numbers = Vec::new();
    let mut is_in = false;
    let mut calls = false;
    let mut sum: u64 = 0;
    for line in text.lines() {
        if let Some((function, named)) = named(line) {
            if named.is_some_and(|n| n.ends_with(name)) {
                numbers.push(function);
            }
            if line.starts_with("fn=") {
                is_in = numbers.contains(&function);
            }
        } else if line.starts_with("calls=") {
            calls = true;
        } else if line.starts_with(|c: char| c.is_ascii_digit() || "+-*".contains(c)) {
            // The line after `calls=` has the callee's cost.
            if is_in && !std::mem::take(&mut calls) {
                let cost = line.split_whitespace().nth(1).and_then(|n| n.parse().ok());
                sum = sum.saturating_add(cost.unwrap_or(0));
            }
            calls = false;
        }
    }
    sum
}

/// The number of the function that a line is about, and its name where the line has it.
fn named(line: &str) -> Option<(&str, Option<&str>)> {
    let rest = line.strip_prefix("fn=").or_else(|| line.strip_prefix("cfn="))?;
    Some(rest.split_once(' ').map_or((rest, None), |(number, name)| (number, Some(name))))
}

#[cfg(test)]
mod tests {
    use super::{counted, self_cost};

    const PROFILE: &str = "events: Ir\nfn=(1) main\n16 400\ncfn=(2) hmc_mem::copy::x86_64::rep\ncalls=1 50\n16 3200\n\n\
        fn=(2)\n50 1600\n+1 1600\ncfn=(3) leaf\ncalls=2 9\n* 7\n\nfn=(3)\n9 7\nsummary: 3607\n";

    #[test]
    fn what_repeats_counts_as_a_loop() {
        assert_eq!(self_cost(PROFILE, "copy::x86_64::rep"), 3200);
        assert_eq!((self_cost(PROFILE, "main"), self_cost(PROFILE, "leaf")), (400, 7));
        assert_eq!(self_cost(PROFILE, "nobody"), 0);
        assert_eq!(counted(PROFILE), Some(607));
        assert_eq!(counted("fn=(1) main\n16 400\n"), None);
    }
}
