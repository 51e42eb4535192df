//! Images in the cache: the kernel, its initramfs, the guest's tools, and QEMU if none is installed.

use super::apt;
use super::apt_state::apt_state;
use super::merged_usr::merge_usr;
use super::packages::{Packages, recipe};
use super::qemu::Qemu;
use super::{compression, initramfs, kernel, modules};
use crate::verdict::Verdict;
use serde_json::{Value, json};
use std::io::BufWriter;
use std::path::{Path, PathBuf};

/// File with the properties of an image. It is written last.
const FACTS: &str = "facts.json";
/// File with the state of apt in which the packages of an image were looked up last.
const STATE: &str = "apt-state";

/// A complete image.
#[derive(Debug)]
pub(crate) struct Image {
    folder: PathBuf,
    /// The release of the kernel.
    pub(super) release: String,
    /// The name of the kernel file.
    kernel: String,
    /// The QEMU that runs the image.
    pub(super) qemu: Qemu,
}

impl Image {
    /// Returns the image with the current versions of all packages. Builds it if it is not in the cache.
    ///
    /// # Errors
    /// A verdict with a remedy.
    pub(crate) fn prepare(cache: &Path) -> Result<Self, Verdict> {
        if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
            let remedy = "such a machine";
            return Err(Verdict::skipped("the VM needs Linux on x86-64", remedy));
        }
        std::fs::create_dir_all(cache).map_err(|e| {
            let what = format!("{}: {e}; --cache selects another folder", cache.display());
            Verdict::failed(what)
        })?;
        let state = apt_state();
        if let Some(image) = Self::newest(cache, Some(&state)) {
            return Ok(image);
        }
        let packages = match Packages::look_up(Qemu::installed().is_none()) {
            Ok(packages) => packages,
            Err(verdict) => {
                let kept = Self::newest(cache, None).ok_or_else(|| verdict.clone())?;
                eprintln!("vm: using the newest image of the cache: {}", verdict.detail());
                return Ok(kept);
            }
        };
        let folder = cache.join(format!("image-{}", packages.key()));
        if Self::open(&folder).is_none() {
            build(cache, &packages, &folder)?;
        }
        let incomplete = || Verdict::failed(format!("{}: incomplete", folder.display()));
        let image = Self::open(&folder).ok_or_else(incomplete)?;
        // Without this file the next run looks up the packages again.
        let _ = std::fs::write(folder.join(STATE), state);
        Ok(image)
    }

    /// Returns the image in a folder if it is complete and its recipe is the current one.
    fn open(folder: &Path) -> Option<Self> {
        let facts = std::fs::read_to_string(folder.join(FACTS)).ok()?;
        let facts: Value = serde_json::from_str(&facts).ok()?;
        let text = |name| facts.get(name).and_then(Value::as_str).map(str::to_owned);
        if text("recipe")? != recipe() {
            return None;
        }
        let qemu = Qemu::installed().or_else(|| Qemu::extracted(&folder.join("qemu")))?;
        let (release, kernel) = (text("release")?, text("kernel")?);
        let image = Self { folder: folder.to_path_buf(), release, kernel, qemu };
        let is_complete = image.kernel().is_file() && image.initramfs().is_file();
        is_complete.then_some(image)
    }

    /// Returns the newest image of a cache, or the newest whose packages were looked up in a given state of apt.
    fn newest(cache: &Path, state: Option<&str>) -> Option<Self> {
        let images = std::fs::read_dir(cache).ok()?.flatten().filter_map(|entry| {
            let (folder, made) = (entry.path(), entry.metadata().ok()?.modified().ok()?);
            let looked_up = std::fs::read_to_string(folder.join(STATE)).unwrap_or_default();
            let is_wanted = state.is_none_or(|state| state == looked_up);
            Some((made, is_wanted.then(|| Self::open(&folder))??))
        });
        images.max_by_key(|(made, _)| *made).map(|(_, image)| image)
    }

    /// Returns the path of the kernel.
    pub(super) fn kernel(&self) -> PathBuf {
        self.folder.join(&self.kernel)
    }

    /// Returns the path of the initramfs.
    pub(super) fn initramfs(&self) -> PathBuf {
        self.folder.join("initramfs")
    }

    /// Returns the folder with the guest's tools, which is mounted above the root of the host.
    pub(super) fn tools(&self) -> PathBuf {
        self.folder.join("tools")
    }
}

/// Builds an image in a temporary folder and renames that to `folder`.
fn build(cache: &Path, packages: &Packages, folder: &Path) -> Result<(), Verdict> {
    let debs = cache.join("packages");
    // Downloads come first, since they fail most often.
    let base = apt::download(&packages.base, &debs)?;
    let tools = apt::download(&packages.tools, &debs)?;
    let qemu = apt::download(&packages.qemu, &debs)?;
    remove_unfinished(cache);
    let work = cache.join(format!("unfinished-{}", std::process::id()));
    eprintln!("vm: building the image {}", folder.display());
    apt::extract(&qemu, &work.join("qemu"))?;
    apt::extract(&tools, &work.join("tools"))?;
    apt::extract(&base, &work.join("base"))?;
    write_files(&work).map_err(Verdict::Failed)?;
    // Another process may have built the same image meanwhile.
    if Image::open(folder).is_none() {
        let _ = std::fs::remove_dir_all(folder);
    }
    if let Err(e) = std::fs::rename(&work, folder) {
        let _ = std::fs::remove_dir_all(&work);
        if Image::open(folder).is_none() {
            return Err(Verdict::failed(format!("{}: {e}", folder.display())));
        }
    }
    Ok(())
}

/// Writes the files of an image from the packages extracted in its folder.
fn write_files(work: &Path) -> Result<(), String> {
    let base = work.join("base");
    for place in ["base", "tools"] {
        merge_usr(&work.join(place))?;
    }
    let release = release(&base.join("boot"))?;
    let image = base.join(format!("boot/vmlinuz-{release}"));
    let (kernel, bytes) = match kernel::decompressed(&image, &base.join("payload")) {
        Some(bytes) => ("vmlinux", bytes),
        None => ("vmlinuz", read(&image)?),
    };
    write(&work.join(kernel), &bytes)?;
    let modules = modules::needed(&base.join("usr/lib/modules").join(&release))?;
    let busybox = compression::read(&base.join("usr/bin/busybox"))?;
    let file = work.join("initramfs");
    let failed = |e| format!("{}: {e}", file.display());
    let to = BufWriter::new(std::fs::File::create(&file).map_err(failed)?);
    let to = initramfs::write(to, &busybox, &modules).map_err(failed)?;
    to.into_inner().map_err(|e| failed(e.into_error()))?.sync_all().map_err(failed)?;
    std::fs::remove_dir_all(&base).map_err(|e| format!("{}: {e}", base.display()))?;
    let facts = json!({ "recipe": recipe(), "release": release, "kernel": kernel });
    write(&work.join(FACTS), facts.to_string().as_bytes())
}

/// Returns the release of the kernel in a folder.
fn release(boot: &Path) -> Result<String, String> {
    let entries = std::fs::read_dir(boot).map_err(|e| format!("{}: {e}", boot.display()))?;
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut releases = names.filter_map(|name| name.strip_prefix("vmlinuz-").map(str::to_owned));
    releases.next().ok_or_else(|| format!("{}: no kernel", boot.display()))
}

/// Removes temporary folders of processes that have ended.
fn remove_unfinished(cache: &Path) {
    for entry in std::fs::read_dir(cache).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name.strip_prefix("unfinished-").and_then(|id| id.parse::<u32>().ok());
        let is_over = owner.is_some_and(|id| {
            id == std::process::id() || !Path::new(&format!("/proc/{id}")).exists()
        });
        if is_over {
            // A folder that cannot be removed has no effect on the images.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

fn read(file: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(file).map_err(|e| format!("{}: {e}", file.display()))
}

fn write(file: &Path, bytes: &[u8]) -> Result<(), String> {
    std::fs::write(file, bytes).map_err(|e| format!("{}: {e}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::{FACTS, Image, STATE, recipe, remove_unfinished};
    use crate::verdict::Verdict;
    use std::collections::BTreeSet;
    use std::path::{Path, PathBuf};

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("hmc-vm-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn plant(path: &Path, text: &str) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    #[test]
    fn an_incomplete_image_is_not_used() {
        let cache = folder("images");
        let image = cache.join("image-1");
        for file in ["qemu/usr/bin/qemu-system-x86_64", "k", "initramfs"] {
            plant(&image.join(file), "");
        }
        let facts = |recipe: &str| format!(r#"{{"recipe":"{recipe}","release":"6","kernel":"k"}}"#);
        for (text, taken) in
            [("", false), ("{}", false), (&facts("old"), false), (&facts(&recipe()), true)]
        {
            plant(&image.join(FACTS), text);
            assert_eq!(Image::newest(&cache, None).is_some(), taken, "{text}");
        }
        assert_eq!(Image::newest(&cache, None).unwrap().kernel(), image.join("k"));
        // Packages are looked up again after each change of apt's state.
        plant(&image.join(STATE), "state");
        assert!(Image::newest(&cache, Some("state")).is_some());
        assert!(Image::newest(&cache, Some("other")).is_none());
        std::fs::remove_file(image.join("initramfs")).unwrap();
        assert!(Image::newest(&cache, None).is_none());
        std::fs::remove_dir_all(cache).unwrap();
    }

    #[test]
    fn an_unwritable_cache_is_named_with_a_remedy() {
        let Err(Verdict::Failed(why)) = Image::prepare(Path::new("/proc/cache")) else {
            panic!("the folder was created");
        };
        assert!(why.contains("/proc/cache") && why.contains("--cache"), "{why}");
    }

    #[test]
    fn temporary_folders_of_ended_processes_are_removed() {
        let cache = folder("unfinished");
        for name in ["unfinished-1", "unfinished-4194999", "image-x", "unfinished-x"] {
            plant(&cache.join(name).join("file"), "");
        }
        remove_unfinished(&cache);
        let left = std::fs::read_dir(&cache).unwrap();
        let left: BTreeSet<_> = left.map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["image-x", "unfinished-1", "unfinished-x"].map(Into::into).into());
        std::fs::remove_dir_all(cache).unwrap();
    }
}
