//! One set of UCX's headers: its version, what bindgen and a C compiler make of it.

use super::items::{self, Item, Kind};
use super::{layout, wanted};
use crate::shell;
use crate::verdict::Verdict;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The version of bindgen that wrote the committed files; another one would write another text.
pub(super) const BINDGEN: &str = "0.72.1";

/// C's stream is passed through and never looked into; bindgen would write the C library's own
/// structure, which is another one elsewhere.
const STREAM: &str = "\
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct FILE {
    _unused: [u8; 0],
}
";

/// Why there is no result.
#[derive(Debug)]
pub(super) enum Trouble {
    /// It went wrong.
    Failed(String),
    /// bindgen runs, but finds no libclang.
    NoClang,
}

impl From<String> for Trouble {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

impl From<Trouble> for Verdict {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Failed(why) => Self::Failed(why),
            Trouble::NoClang => Self::skipped(
                "bindgen finds no libclang",
                "install libclang, or name its folder in LIBCLANG_PATH",
            ),
        }
    }
}

/// A folder with `ucp/api/ucp.h` of one version.
#[derive(Debug)]
pub(super) struct Headers {
    folder: PathBuf,
    release: &'static str,
}

impl Headers {
    /// Looks whether the folder holds the headers of that release.
    ///
    /// # Errors
    /// Words, when it does not.
    pub(super) fn open(folder: &Path, release: &'static str) -> Result<Self, String> {
        let path = folder.join("ucp/api/ucp_version.h");
        let text = std::fs::read_to_string(&path)
            .map_err(|_| format!("no headers of UCX {release} in {}", folder.display()))?;
        // The headers have only the first two numbers.
        let found = api_version(&text).unwrap_or_default();
        let wanted = release.rsplit_once('.').map_or(release, |(api, _)| api);
        if found != wanted {
            return Err(format!(
                "the headers in {} are those of UCX {found}, not {release}",
                folder.display()
            ));
        }
        Ok(Self { folder: folder.to_path_buf(), release })
    }

    /// The selected items.
    ///
    /// # Errors
    /// Why bindgen or its text failed.
    pub(super) fn items(&self, root: &Path) -> Result<Vec<Item>, Trouble> {
        let functions: Vec<&str> =
            wanted::REQUIRED.iter().chain(&wanted::OPTIONAL).copied().collect();
        let out = shell::capture(
            Command::new("bindgen")
                .arg(self.folder.join("ucp/api/ucp.h"))
                .args(["--use-core", "--no-doc-comments", "--no-layout-tests"])
                .args(["--default-enum-style=consts", "--no-prepend-enum-name"])
                .arg("--merge-extern-blocks")
                .args(["--allowlist-function", &functions.join("|")])
                .args(["--allowlist-type", &wanted::ENUMS.join("|")])
                .args(["--allowlist-var", wanted::NAMELESS])
                .args(["--blocklist-type", "FILE"])
                .arg("--rustfmt-configuration-file")
                .arg(root.join("rustfmt.toml"))
                .args(["--", "-I"])
                .arg(&self.folder),
        )?;
        if !out.success {
            if out.stderr.contains("libclang") {
                return Err(Trouble::NoClang);
            }
            return Err(Trouble::Failed(format!("bindgen: {}: {}", out.why(), out.stderr)));
        }
        let mut kept = Vec::new();
        for mut item in items::parse(&format!("{}{STREAM}", out.stdout))? {
            if let Kind::Constant(of) = &item.kind {
                match wanted::constant(&item.name) {
                    None => continue,
                    Some(None) => {}
                    Some(Some(field)) => {
                        item.text = item.text.replace(&format!(": {of} "), &format!(": {field} "));
                    }
                }
            }
            kept.push(item);
        }
        Ok(items::needed(kept))
    }

    /// What the compiled program prints of the layout, with its head.
    ///
    /// # Errors
    /// Words, when it does not compile or run.
    pub(super) fn printed(&self, items: &[Item], work: &Path) -> Result<String, String> {
        let source = work.join(format!("layout-{}.c", self.release));
        let program = source.with_extension("out");
        std::fs::write(&source, layout::program(items))
            .map_err(|e| format!("{}: {e}", source.display()))?;
        let compiled = shell::capture(
            Command::new("cc").arg("-I").arg(&self.folder).arg(&source).arg("-o").arg(&program),
        )?;
        if !compiled.success {
            return Err(format!("cc {}: {}", source.display(), compiled.stderr));
        }
        let ran = shell::capture(&mut Command::new(&program))?;
        if !ran.success {
            return Err(format!("{}: {}", program.display(), ran.why()));
        }
        Ok(format!("{}{}", layout::head(self.release), ran.stdout))
    }
}

/// The text of a Rust file as rustfmt writes it.
///
/// # Errors
/// Words, when rustfmt refuses it.
pub(super) fn formatted(text: &str, root: &Path, work: &Path) -> Result<String, String> {
    let path = work.join("formatted.rs");
    std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
    let out = shell::capture(
        Command::new("rustfmt")
            .args(["--edition", "2024", "--config-path"])
            .arg(root.join("rustfmt.toml"))
            .arg(&path),
    )?;
    if !out.success {
        return Err(format!("rustfmt: {}", out.stderr));
    }
    std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))
}

/// `MAJOR.MINOR` of `ucp_version.h`.
fn api_version(text: &str) -> Option<String> {
    let number = |name: &str| {
        let line = text.lines().find(|l| l.split_whitespace().nth(1) == Some(name))?;
        line.split_whitespace().nth(2)
    };
    Some(format!("{}.{}", number("UCP_API_MAJOR")?, number("UCP_API_MINOR")?))
}

#[cfg(test)]
mod tests {
    use super::{Headers, Trouble, api_version};
    use crate::verdict::Verdict;
    use std::path::Path;

    #[test]
    fn the_version_is_read_from_the_macros() {
        let text = "#define UCP_API_MAJOR    1\n#define UCP_API_MINOR    22\n\
                    #define UCP_API_VERSION  UCP_VERSION(1, 22)\n";
        assert_eq!(api_version(text).as_deref(), Some("1.22"));
        assert_eq!(api_version("#define UCP_API_MAJOR 1\n"), None);
    }

    #[test]
    fn missing_headers_report_where_they_were_looked_for() {
        let why = Headers::open(Path::new("/no/such/folder"), "1.22.0").unwrap_err();
        assert!(why.contains("1.22.0") && why.contains("/no/such/folder"), "{why}");
    }

    #[test]
    fn a_missing_libclang_is_a_skip() {
        assert!(matches!(Verdict::from(Trouble::NoClang), Verdict::Skipped { .. }));
        assert_eq!(Verdict::from(Trouble::Failed("x".to_owned())), Verdict::failed("x"));
    }
}
