//! Data frames that are none: those of `hmc-core/tests/malformed_data.txt`.

use hmc_core::wire::data::{DATA_FRAME_BYTES, DataFrame};

const TABLE: &str = include_str!("../../../hmc-core/tests/malformed_data.txt");

/// A frame, and why it is none.
#[derive(Debug)]
pub struct Malformed {
    /// What is wrong with it.
    pub what: &'static str,
    /// Its bytes.
    pub bytes: [u8; DATA_FRAME_BYTES],
    /// The words of the check that finds it.
    pub check: String,
}

/// All of them.
///
/// # Panics
/// When the table has another form.
#[must_use]
pub fn all() -> Vec<Malformed> {
    let rows = TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    rows.map(parse).collect()
}

fn parse(line: &'static str) -> Malformed {
    let (row, _) = line.split_once(" => ").expect("a frame");
    let (what, bytes) = row.rsplit_once(": ").expect("a name");
    let bytes = hex(bytes).try_into().expect("the bytes of a frame");
    Malformed { what, bytes, check: check_of(&bytes) }
}

/// Bytes that are written as two digits each.
///
/// # Panics
/// When they are not.
#[must_use]
pub fn hex(text: &str) -> Vec<u8> {
    let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("a byte");
    (0..text.len()).step_by(2).map(byte).collect()
}

/// The words of the check that finds a frame.
///
/// # Panics
/// When it is one.
#[must_use]
pub fn check_of(bytes: &[u8; DATA_FRAME_BYTES]) -> String {
    let error = DataFrame::parse(bytes).expect_err("it is none");
    format!("a malformed data frame: {error}")
}
