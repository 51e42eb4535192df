//! Random bytes of the system.

use crate::base::error::{Error, Result};

/// Returns random bytes of the system, for names and tokens that must not be guessed.
///
/// # Errors
/// `SystemLimit` if the system has none.
pub(crate) fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    #[cfg(feature = "testing")]
    if crate::base::clock::virtual_time::entropy(&mut bytes) {
        return Ok(bytes);
    }
    let mut filled: usize = 0;
    while filled < N {
        let rest = bytes.get_mut(filled..).unwrap_or_default();
        match rustix::rand::getrandom(rest, rustix::rand::GetRandomFlags::empty()) {
            Ok(n) => filled = filled.saturating_add(n),
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(Error::io("no random numbers from the system", e)),
        }
    }
    Ok(bytes)
}
