//! Memory of one session that is joined with memory of another one of the same process.

use hmc_std::Session;

use super::{Context, Outcome};

/// Joins spans of the first regions of two sessions, which have the same place in their tables.
///
/// # Panics
/// When there is no memory.
pub fn spans(context: &mut Context) -> Outcome {
    let session = || Session::builder(0).buffer(4096).start().expect("a session");
    while context.again(20) {
        let (a, b) = (session(), session());
        let small = a.memory().allocate(4096).expect("memory");
        let large = b.memory().allocate(1 << 20).expect("memory");
        let low = small.take(0, 4096).expect("free");
        let high = large.take(4096, (1 << 20) - 4096).expect("free");
        let (low, high) = match low.join(high) {
            Err(apart) => apart,
            Ok(both) => {
                let len = both.len();
                std::mem::forget(both);
                return context.broken(format!("{len} bytes over a region of 4096"));
            }
        };
        let low_of_large = large.take(0, 4096).expect("free");
        let Err((low, low_of_large)) = low.join(low_of_large) else {
            return context.broken("two spans of one range joined");
        };
        assert_eq!(low_of_large.join(high).expect("neighbours").len(), 1 << 20);
        drop(low);
        assert!(small.take_all().is_ok(), "it came back to its own region");
    }
    context.held("spans of two sessions do not join")
}
