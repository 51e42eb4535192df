//! The kernel modules that the guest loads, each after its dependencies.
//!
//! Kernel packages have no `modules.dep`, which depmod(8) writes at their installation. The dependencies are those of the modules'
//! `.modinfo` sections.

use super::compression;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Required modules: without them the guest has no root file system or no RDMA device.
const REQUIRED: [&str; 11] = [
    "virtio_pci",
    "9pnet_virtio",
    "9p",
    "overlay",
    "ib_core",
    "ib_uverbs",
    "rdma_cm",
    "rdma_ucm",
    "rdma_rxe",
    "veth",
    "dummy",
];
/// Optional modules, loaded if the kernel package has them.
const OPTIONAL: [&str; 7] = [
    // rxe requests these algorithms by name; they are not among its dependencies, and newer kernels have them built in.
    "crc32_generic",
    "crc32c_generic",
    "virtio_net",
    "ib_cm",
    "iw_cm",
    "siw",
    "sch_netem",
];

/// A kernel module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Module {
    /// The name.
    pub(super) name: String,
    /// The content of its file, decompressed.
    pub(super) bytes: Vec<u8>,
}

/// Returns the names of all required and optional modules.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    REQUIRED.into_iter().chain(OPTIONAL)
}

/// Returns the modules to load, in load order, from the folder `lib/modules/RELEASE`.
///
/// # Errors
/// A message if a required module is missing or a file cannot be read.
pub(super) fn needed(folder: &Path) -> Result<Vec<Module>, String> {
    let files = files(folder)?;
    let built_in = std::fs::read_to_string(folder.join("modules.builtin")).unwrap_or_default();
    let built_in: BTreeSet<String> = built_in.lines().map(|line| name(Path::new(line))).collect();
    let is_known = |name: &str| files.contains_key(name) || built_in.contains(name);
    if let Some(lacking) = REQUIRED.iter().find(|name| !is_known(name)) {
        return Err(format!("the kernel has no module `{lacking}` ({})", folder.display()));
    }
    let wanted: Vec<&str> = names().filter(|name| files.contains_key(*name)).collect();
    let mut bytes = BTreeMap::new();
    let order = ordered(&wanted, |name| {
        let Some(file) = files.get(name) else {
            let found = built_in.contains(name).then(Vec::new);
            return found.ok_or_else(|| format!("the kernel has no module `{name}`"));
        };
        let content = compression::read(file)?;
        let needs = depends(&content);
        bytes.insert(name.to_owned(), content);
        Ok(needs)
    })?;
    let module = |name: String| bytes.remove(&name).map(|bytes| Module { name, bytes });
    Ok(order.into_iter().filter_map(module).collect())
}

/// Returns the module files below a folder, by module name.
fn files(folder: &Path) -> Result<BTreeMap<String, PathBuf>, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let failed = |e| format!("{}: {e}", folder.display());
        for entry in std::fs::read_dir(&folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let path = entry.path();
            if entry.file_type().map_err(failed)?.is_dir() {
                folders.push(path);
            } else if entry.file_name().to_string_lossy().contains(".ko") {
                found.insert(name(&path), path);
            }
        }
    }
    Ok(found)
}

/// Returns the module name of a file: the file name without extensions, with `_` for `-`.
fn name(file: &Path) -> String {
    let file = file.file_name().unwrap_or_default().to_string_lossy();
    file.split('.').next().unwrap_or_default().replace('-', "_")
}

/// Returns the dependencies of a module, from the strings of its `.modinfo` section.
fn depends(module: &[u8]) -> Vec<String> {
    let found = module.split(|byte| *byte == 0).find_map(|text| text.strip_prefix(b"depends="));
    let text = String::from_utf8_lossy(found.unwrap_or_default()).into_owned();
    text.split(',').filter(|name| !name.is_empty()).map(|name| name.replace('-', "_")).collect()
}

/// Returns the wanted names and their dependencies, each name once and after its dependencies.
///
/// # Errors
/// An error of `needs`, or a message if dependencies form a cycle.
fn ordered(
    wanted: &[&str],
    mut needs: impl FnMut(&str) -> Result<Vec<String>, String>,
) -> Result<Vec<String>, String> {
    enum Step {
        Enter(String),
        Leave(String),
    }
    let mut order = Vec::new();
    let mut entered = BTreeSet::new();
    let mut steps: Vec<Step> = wanted.iter().rev().map(|n| Step::Enter((*n).to_owned())).collect();
    while let Some(step) = steps.pop() {
        match step {
            Step::Leave(name) => order.push(name),
            Step::Enter(name) if order.contains(&name) => {}
            Step::Enter(name) => {
                let below = needs(&name)?;
                if !entered.insert(name.clone()) {
                    return Err(format!("the module `{name}` depends on itself"));
                }
                steps.push(Step::Leave(name));
                steps.extend(below.into_iter().rev().map(Step::Enter));
            }
        }
    }
    Ok(order)
}

#[cfg(test)]
mod tests {
    use super::{depends, name, needed, ordered};
    use std::path::Path;

    /// Load order of `(name, dependencies)` pairs.
    fn order(wanted: &[&str], table: &[(&str, &str)]) -> Result<String, String> {
        let order = ordered(wanted, |name| {
            let row = table.iter().find(|(n, _)| *n == name).ok_or(format!("no {name}"))?;
            Ok(row.1.split_whitespace().map(str::to_owned).collect())
        })?;
        Ok(order.join(" "))
    }

    #[test]
    fn each_module_comes_after_its_dependencies() {
        let table = [("a", "b c"), ("b", "d"), ("c", "b d"), ("d", ""), ("e", "c")];
        assert_eq!(order(&["a", "e", "a"], &table).unwrap(), "d b c a e");
        assert_eq!(order(&["d", "c"], &table).unwrap(), "d b c");
        assert_eq!(order(&[], &table).unwrap(), "");
    }

    #[test]
    fn a_cycle_and_a_missing_module_are_errors() {
        let table = [("a", "b"), ("b", "a"), ("c", "x")];
        assert!(order(&["a"], &table).unwrap_err().contains("depends on itself"));
        assert_eq!(order(&["c"], &table).unwrap_err(), "no x");
    }

    #[test]
    fn dependencies_are_read_from_modinfo() {
        let module = b"\x7fELF..\0license=GPL\0depends=ib-core,udp_tunnel\0intree=Y\0";
        assert_eq!(depends(module), ["ib_core", "udp_tunnel"]);
        assert_eq!(depends(b"\x7fELF\0depends=\0"), [""; 0]);
        assert_eq!(depends(b"\x7fELF"), [""; 0]);
    }

    #[test]
    fn module_names_have_underscores() {
        assert_eq!(name(Path::new("kernel/crypto/crc32c-intel.ko.xz")), "crc32c_intel");
        assert_eq!(name(Path::new("kernel/net/9p/9pnet.ko")), "9pnet");
    }

    #[test]
    fn a_missing_required_module_is_named() {
        let folder = std::env::temp_dir().join(format!("hmc-vm-modules-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("kernel")).unwrap();
        std::fs::write(folder.join("kernel/virtio_pci.ko"), "x\0depends=\0").unwrap();
        assert!(needed(&folder).unwrap_err().contains("`9pnet_virtio`"));
        // Built-in modules have no file.
        let builtin: String =
            super::REQUIRED[1..].iter().map(|n| format!("kernel/{n}.ko\n")).collect();
        std::fs::write(folder.join("modules.builtin"), builtin).unwrap();
        let found = needed(&folder).unwrap();
        assert_eq!(found.iter().map(|m| m.name.as_str()).collect::<Vec<_>>(), ["virtio_pci"]);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
