//! The packages of an image, and the key of the image in the cache.

use super::apt::{self, Package};
use super::{initramfs, modules};
use crate::verdict::Verdict;

/// Version of the layout of images. To be raised with each change that [`recipe`] does not include.
const FORMAT: u32 = 1;

/// The package of QEMU; its dependencies follow.
const QEMU: [&str; 1] = ["qemu-system-x86"];
/// Packages of the guest's tools; their dependencies follow.
const TOOLS: [&str; 8] = [
    "ibverbs-utils",
    "rdmacm-utils",
    "ibverbs-providers",
    "libibverbs1",
    "librdmacm1",
    "perftest",
    "libucx0",
    "iproute2",
];
/// The package of busybox, which runs `/init`.
const BUSYBOX: &str = "busybox-static";

/// The packages of an image.
pub(super) struct Packages {
    /// QEMU; none if one is installed.
    pub(super) qemu: Vec<Package>,
    /// The guest's tools.
    pub(super) tools: Vec<Package>,
    /// The kernel and busybox.
    pub(super) base: Vec<Package>,
}

impl Packages {
    /// Looks up the current versions for this machine.
    ///
    /// # Errors
    /// A verdict with a remedy.
    pub(super) fn look_up(with_qemu: bool) -> Result<Self, Verdict> {
        let kernel = apt::kernel()?;
        Ok(Self {
            qemu: if with_qemu { apt::missing(&QEMU)? } else { Vec::new() },
            tools: apt::missing(&TOOLS)?,
            base: apt::candidates(&[&kernel, BUSYBOX])?,
        })
    }

    /// Returns the key of the image in the cache. It depends on the version of each package and on the recipe.
    pub(super) fn key(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        hasher.update(recipe().as_bytes());
        for (part, packages) in [("qemu", &self.qemu), ("tools", &self.tools), ("base", &self.base)]
        {
            for package in packages {
                let line = format!("{part} {}={}\n", package.name, package.version);
                hasher.update(line.as_bytes());
            }
        }
        hasher.finalize().to_hex().chars().take(16).collect()
    }
}

/// Returns a hash of everything but package versions that determines the content of an image.
pub(super) fn recipe() -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(format!("{FORMAT}\n{}", initramfs::INIT).as_bytes());
    for name in modules::names().chain(QEMU).chain(TOOLS) {
        hasher.update(format!("{name}\n").as_bytes());
    }
    hasher.finalize().to_hex().chars().take(16).collect()
}

#[cfg(test)]
mod tests {
    use super::Packages;
    use crate::cmd::vm::apt::Package;
    use std::collections::BTreeSet;

    #[test]
    fn the_key_depends_on_each_package_and_its_part() {
        let package =
            |name: &str, version: &str| Package { name: name.into(), version: version.into() };
        let key = |qemu: &[Package], tools: &[Package], base: &[Package]| {
            Packages { qemu: qemu.into(), tools: tools.into(), base: base.into() }.key()
        };
        let (a, b) = (package("a", "1"), package("b", "1"));
        let one = std::slice::from_ref(&a);
        let keys = [
            key(&[], &[], &[]),
            key(one, &[], &[]),
            key(&[], one, &[]),
            key(&[], &[], one),
            key(&[], &[], &[package("a", "2")]),
            key(&[], &[], &[a.clone(), b]),
        ];
        assert_eq!(BTreeSet::from(keys.clone()).len(), keys.len(), "{keys:?}");
        assert_eq!(key(one, &[], &[]), key(one, &[], &[]));
        assert_eq!(keys[0].len(), 16);
    }
}
