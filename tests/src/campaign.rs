//! What a run of many seeds has shown: a campaign without a seed, and a search without a planted bug, show nothing.

/// Checks the outcome of seeds that must pass.
///
/// # Errors
/// Words: seeds failed, did not all run, or asked nothing of the sessions.
pub fn seeds(wanted: u64, ran: u64, asks: u64, failed: usize) -> Result<(), String> {
    match (wanted, ran, asks, failed) {
        (_, _, _, 1..) => Err(format!("{failed} of {ran} seeds failed")),
        (0, ..) => Err("no seed was asked for: nothing is shown".to_owned()),
        _ if ran < wanted => Err(format!("only {ran} of {wanted} seeds ran")),
        (_, _, 0, _) => Err(format!("nothing was asked of a session in {ran} seeds")),
        _ => Ok(()),
    }
}

/// Checks the outcome of a search for planted bugs: `sound` is the verdict for the seeds without any, `all` were looked for.
///
/// # Errors
/// Words: a bug was not found, there was none to be found, or seeds fail without one.
pub fn bugs(sound: Result<(), String>, found: u32, all: u32) -> Result<(), String> {
    sound.map_err(|why| format!("without any planted bug: {why}"))?;
    match all.checked_sub(found) {
        _ if all == 0 => Err("no planted bug was looked for: nothing is shown".to_owned()),
        Some(0) => Ok(()),
        _ => Err(format!("{found} of {all} planted bugs were found")),
    }
}

#[cfg(test)]
mod tests {
    use super::{bugs, seeds};

    #[test]
    fn a_campaign_without_seeds_is_no_pass() {
        assert_eq!(seeds(500, 500, 9_000, 0), Ok(()));
        for (wanted, ran, asks, failed, why) in [
            (0, 0, 0, 0, "no seed was asked for"),
            (500, 0, 0, 0, "only 0 of 500"),
            (500, 499, 9_000, 0, "only 499 of 500"),
            (500, 500, 0, 0, "nothing was asked"),
            (500, 3, 9, 1, "1 of 3 seeds failed"),
        ] {
            let said = seeds(wanted, ran, asks, failed).expect_err("no pass");
            assert!(said.contains(why), "{said}");
        }
    }

    #[test]
    fn a_search_without_bugs_is_no_pass() {
        assert_eq!(bugs(Ok(()), 30, 30), Ok(()));
        for (sound, found, all, why) in [
            (Ok(()), 0, 0, "no planted bug was looked for"),
            (Ok(()), 29, 30, "29 of 30"),
            (Err("no seed was asked for".to_owned()), 30, 30, "no seed was asked for"),
        ] {
            let said = bugs(sound, found, all).expect_err("no pass");
            assert!(said.contains(why), "{said}");
        }
    }
}
