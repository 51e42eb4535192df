//! Bugs that are planted in a build with `--cfg hmc_mutants`: one is switched on in a process by its environment
//! (`HMC_MUTANT`), and so in the processes that it starts.

/// Switches on the bug that the environment names, if it names one.
///
/// # Panics
/// When this build has no such bug: a run that was to be attacked in vain would pass for one.
pub fn activate() {
    #[cfg(hmc_mutants)]
    crate::mutants::plant();
    #[cfg(not(hmc_mutants))]
    assert!(std::env::var_os("HMC_MUTANT").is_none(), "this build has no planted bugs");
}
