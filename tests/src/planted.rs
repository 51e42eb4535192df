//! Bugs that are planted in a copy of the workspace, which is built with `--cfg hmc_mutants`: one is switched on in a process by its environment, and so in
//! the processes that it starts.

/// The variable of the environment that names the bug.
pub const VARIABLE: &str = "HMC_MUTANT";

/// Switches on the bug that the environment names, if it names one.
///
/// # Panics
/// When this build has no such bug: a run that was to be attacked in vain would pass for one.
pub fn activate() {
    let Some(name) = std::env::var_os(VARIABLE) else { return };
    #[cfg(hmc_mutants)]
    {
        let mutant = name.to_str().and_then(hmc_core::mutant::named);
        assert!(mutant.is_some(), "{VARIABLE}={name:?}: no bug has that name");
        hmc_core::mutant::activate(mutant);
    }
    #[cfg(not(hmc_mutants))]
    panic!("{VARIABLE}={name:?}: this build has no planted bugs");
}
