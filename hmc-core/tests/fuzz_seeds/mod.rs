//! The inputs of `fuzz/corpus`, made from good ones by rule: cut at every byte, every field at its limits
//! and one beyond, wrong magics, versions, types, flags and counts, bytes too many. A rule that knows what
//! must be wrong says so; the class that is stored beside the corpus must contain that.

pub(crate) mod control;
pub(crate) mod frames;
pub(crate) mod scripts;

/// One input.
pub(crate) struct Seed {
    /// The target.
    pub(crate) target: &'static str,
    /// The file's name.
    pub(crate) name: String,
    /// Its bytes.
    pub(crate) bytes: Vec<u8>,
    /// What its class must contain, where the rule knows it; such an input is malformed.
    pub(crate) want: Option<String>,
}

impl Seed {
    /// An input that is good, or of which the rule knows nothing.
    pub(crate) fn plain(target: &'static str, name: impl Into<String>, bytes: Vec<u8>) -> Self {
        Self { target, name: name.into(), bytes, want: None }
    }

    /// An input that is malformed.
    pub(crate) fn bad(
        target: &'static str,
        name: impl Into<String>,
        bytes: Vec<u8>,
        want: &str,
    ) -> Self {
        Self { target, name: name.into(), bytes, want: Some(want.into()) }
    }
}

/// `bytes` with `value` in `width` bytes at `at`, little-endian.
pub(crate) fn patched(bytes: &[u8], at: usize, width: usize, value: u64) -> Vec<u8> {
    let mut out = bytes.to_vec();
    out[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
    out
}

/// A control frame whose header says how long it is.
pub(crate) fn resized(mut frame: Vec<u8>) -> Vec<u8> {
    let len = (frame.len() - 8) as u64;
    frame = patched(&frame, 4, 4, len);
    frame
}

/// All inputs.
pub(crate) fn all() -> Vec<Seed> {
    let mut seeds = frames::messages();
    seeds.extend(frames::adverts());
    seeds.extend(frames::data_frames());
    seeds.extend(control::streams());
    seeds.extend(control::states());
    seeds.extend(control::handshakes());
    seeds.extend(control::proofs());
    seeds.extend(control::cxx_protocol());
    seeds.extend(scripts::all());
    seeds
}
