//! QEMU's accelerator: the processor executes the guest's code (KVM), or QEMU translates it (TCG).

/// An accelerator of QEMU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Accelerator {
    /// The processor executes the guest's code.
    Kvm,
    /// QEMU translates the guest's code, with one thread for each processor.
    Tcg,
}

impl Accelerator {
    /// Returns `Kvm` if its device is writable, the processor supports it, and a trial start succeeds.
    pub(super) fn choose(writable: bool, processor: &str, trial: impl FnOnce() -> bool) -> Self {
        let has = |flag| {
            let mut flags = processor.lines().filter_map(|line| line.strip_prefix("flags"));
            flags.any(|line| line.split_whitespace().any(|word| word == flag))
        };
        if writable && (has("vmx") || has("svm")) && trial() { Self::Kvm } else { Self::Tcg }
    }

    /// Returns the name of the accelerator.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        }
    }

    /// Returns QEMU's arguments for the accelerator.
    pub(super) const fn arguments(self) -> [&'static str; 4] {
        match self {
            Self::Kvm => ["-accel", "kvm", "-cpu", "host"],
            Self::Tcg => ["-accel", "tcg,thread=multi", "-cpu", "max"],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Accelerator::{self, Kvm, Tcg};

    #[test]
    fn kvm_needs_device_processor_and_trial() {
        let intel = "model name\t: x\nflags\t\t: fpu vmx sse\nbugs\t: y\n";
        let amd = "flags\t\t: svm\n";
        let neither = "model name\t: vmx svm\nflags\t\t: fpu svm_lock\n";
        for (writable, processor, trial, expected) in [
            (true, intel, true, Kvm),
            (true, amd, true, Kvm),
            (false, intel, true, Tcg),
            (true, neither, true, Tcg),
            (true, intel, false, Tcg),
            (true, "", true, Tcg),
        ] {
            assert_eq!(Accelerator::choose(writable, processor, || trial), expected, "{processor}");
        }
    }

    #[test]
    fn no_trial_is_made_if_it_cannot_succeed() {
        let never = || -> bool { panic!("a trial") };
        assert_eq!(Accelerator::choose(false, "flags : vmx", never), Tcg);
        assert_eq!(Accelerator::choose(true, "flags : fpu", never), Tcg);
    }
}
