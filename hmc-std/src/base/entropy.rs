//! Random bytes: of the system, or of a source that the caller passes in.

use std::sync::Arc;

use crate::base::error::{Error, Result};

/// A source of random bytes in place of the system's.
#[allow(unreachable_pub, reason = "hmc-testkit implements it, through `internals`")]
pub trait RandomSource: Send + Sync {
    /// Fills `bytes`.
    fn fill(&self, bytes: &mut [u8]);
}

/// Where the random bytes of a session come from: the system, unless a source was handed in.
#[derive(Clone, Default)]
pub(crate) struct Entropy(Option<Arc<dyn RandomSource>>);

impl From<Arc<dyn RandomSource>> for Entropy {
    fn from(source: Arc<dyn RandomSource>) -> Self {
        Self(Some(source))
    }
}

impl Entropy {
    /// Returns random bytes, for names and tokens that must not be guessed.
    ///
    /// # Errors
    /// `SystemLimit` if the system has none.
    pub(crate) fn random<const N: usize>(&self) -> Result<[u8; N]> {
        let Some(source) = &self.0 else { return random() };
        let mut bytes = [0; N];
        source.fill(&mut bytes);
        Ok(bytes)
    }
}

/// Returns random bytes of the system.
///
/// # Errors
/// `SystemLimit` if the system has none.
pub(crate) fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
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

#[cfg(test)]
mod tests {
    use super::{Entropy, RandomSource};
    use std::sync::Arc;

    struct Sevens;

    impl RandomSource for Sevens {
        fn fill(&self, bytes: &mut [u8]) {
            bytes.fill(7);
        }
    }

    #[test]
    fn the_source_that_was_handed_in_is_used_or_the_system() {
        let source: Arc<dyn RandomSource> = Arc::new(Sevens);
        assert_eq!(Entropy::from(source).random().ok(), Some([7; 9]));
        let bytes = || Entropy::default().random::<16>().expect("the system has some");
        assert_ne!(bytes(), bytes());
    }
}
