//! What two ends of a link over RDMA verbs tell each other. Shared by the fuzz target `verbs_note` and the ordinary tests. No device is
//! needed.

use crate::bodies::Subject;
use hmc_hw::verbs::reread;

/// Kinds of notes (docs/WIRE.md).
const CONN_INFO: u8 = 5;
const WINDOW_KEY: u8 = 6;

/// The longest note.
const MAX_BYTES: usize = 8192;

/// Takes numbers from the front.
struct Numbers<'a>(&'a [u8]);

impl Numbers<'_> {
    fn take(&mut self, len: usize) -> Option<u64> {
        let (front, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(front.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte)))
    }
}

/// Whether bytes are conn info, by the rules of docs/WIRE.md written out once more.
fn is_conn_info(bytes: &[u8]) -> Option<bool> {
    let mut n = Numbers(bytes);
    let head = [n.take(1)?, n.take(1)?, n.take(1)?, n.take(1)?];
    let [version, nics, lanes, receives] = head;
    let mut good = version == 4 && (1..=8).contains(&nics) && lanes >= nics && lanes <= 16;
    good &= receives >= 4;
    if !good {
        return Some(false);
    }
    n.take(8)?;
    for _ in 0..nics {
        good &= matches!(n.take(1)?, 1 | 2);
        good &= n.take(1)? <= 2;
        good &= (1..=5).contains(&n.take(1)?);
        good &= n.take(1)? != 0;
        n.take(2)?;
        n.take(8)?;
        n.take(8)?;
        n.take(4)?;
    }
    for _ in 0..2 * lanes {
        good &= n.take(4)? < 1 << 24;
    }
    Some(good && n.0.is_empty())
}

/// Whether bytes are the keys to a window.
fn is_window_key(bytes: &[u8]) -> Option<bool> {
    let mut n = Numbers(bytes);
    n.take(8)?;
    n.take(4)?;
    let access = n.take(1)?;
    let (len, base, count) = (n.take(8)?, n.take(8)?, n.take(2)?);
    for _ in 0..count {
        n.take(4)?;
    }
    Some(access <= 3 && base.checked_add(len).is_some() && n.0.is_empty())
}

/// With the planted bug, a byte of the last number in conn info of more than two queue pairs is lost.
fn read(kind: u8, bytes: &[u8], out: &mut [u8], subject: Subject) -> Option<Option<usize>> {
    let read = reread(kind, bytes, out)?.ok();
    if subject == Subject::Broken
        && kind == CONN_INFO
        && bytes.get(2).is_some_and(|lanes| *lanes > 2)
        && let Some(byte) = read.and_then(|len| out.get_mut(len - 4))
    {
        *byte = 0;
    }
    Some(read)
}

fn run(input: &[u8], subject: Subject) -> String {
    let Some((&kind, bytes)) = input.split_first() else { return "nothing".into() };
    // A note is no longer.
    let bytes = &bytes[..bytes.len().min(MAX_BYTES)];
    let mut out = vec![0; bytes.len()];
    let Some(read) = read(kind, bytes, &mut out, subject) else {
        assert!(!matches!(kind, CONN_INFO | WINDOW_KEY), "{kind}");
        return "another kind".into();
    };
    let (name, is_good) = match kind {
        CONN_INFO => ("conn info", is_conn_info(bytes)),
        _ => ("keys", is_window_key(bytes)),
    };
    assert_eq!(read.is_some(), is_good == Some(true), "{name} {bytes:?}");
    if let Some(len) = read {
        assert_eq!(&out[..len], bytes, "{name}: what was read is written as it came");
        return format!("good {name}");
    }
    format!("bad {name}")
}

/// The kind of a note, then its bytes.
pub fn verbs_note(bytes: &[u8], subject: Subject) {
    let _ = run(bytes, subject);
}

/// What a note is taken for.
pub fn class(bytes: &[u8]) -> String {
    run(bytes, Subject::Real)
}
