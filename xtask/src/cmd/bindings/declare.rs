//! The text of `sys.rs`: types and constants as bindgen wrote them, functions as one `dyn_api!`.

use super::headers::BINDGEN;
use super::items::{Item, Kind, words};
use super::wanted::{OPTIONAL, REQUIRED};
use std::collections::BTreeSet;

/// The longest line of a signature; rustfmt does not look into a macro.
const WIDTH: usize = 100;

/// The head of the file; `RELEASE` and `BINDGEN` are put in.
const HEAD: &str = r#"//! What the headers of UCX RELEASE declare, as far as it is wanted. Generated; never edit it.
//!
//! Written by `cargo xtask bindings` with bindgen BINDGEN from `ucp/api/ucp.h`; the list of what is
//! wanted is in `xtask/src/cmd/bindings/wanted.rs`. `layout.rs` compares sizes and offsets with what a
//! C compiler says. There is no foreign block: nothing links against UCX.
//!
//! - Structures only ever grew at their end. A zeroed structure of this file serves an older library
//!   too, as long as no mask has a bit that it does not know.
//! - `ucs_status_t` is one byte, also as a result and in callbacks; the upper bits of the register are
//!   undefined. A wider declaration would read them.
//! - Inline or macros in C, so written by hand where they are needed: `ucp_init` (calls
//!   `ucp_init_version` with the version of the headers), `ucp_dt_make_contig` and its kin,
//!   `UCS_PTR_IS_ERR`, `UCS_PTR_RAW_STATUS`, `UCS_STATUS_IS_ERR` and the ranges of errors (`result.rs`).
//! - `ucs_status_string` is libucs's; dlsym finds it through libucp, which depends on it.
//! - `UCS_MEMORY_TYPE_LAST` and `_UNKNOWN` are left out: their value differs between versions.
//! - Constants of a mask have the type of the field that holds them.
#![allow(non_camel_case_types, clippy::upper_case_acronyms, reason = "the names of the C headers")]
#![allow(dead_code, reason = "declared as a whole, whether used or not")]

use crate::api::dyn_api;
"#;

/// The file before rustfmt.
///
/// # Errors
/// The wanted functions that the headers lack.
pub(super) fn text(items: &[Item], release: &str) -> Result<String, String> {
    let mut types = String::new();
    let mut last = None;
    for item in items.iter().filter(|i| i.kind != Kind::Function) {
        // Constants of an enumeration and names stand together; a structure stands alone.
        let plain = matches!(item.kind, Kind::Constant(_) | Kind::Alias(_));
        if last != Some(true) || !plain {
            types.push('\n');
        }
        last = Some(plain);
        for line in item.text.lines() {
            let indent = line.len().saturating_sub(line.trim_start().len());
            let (space, code) = line.split_at(indent);
            match code.strip_prefix("pub ") {
                Some(code) => types.push_str(&format!("{space}pub(crate) {code}\n")),
                None => types.push_str(&format!("{line}\n")),
            }
        }
    }
    let required = section(items, &REQUIRED)?;
    let optional = section(items, &OPTIONAL)?;
    let table = format!(
        "dyn_api! {{
    /// The functions of UCP, and one of UCS.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Ucp {{
        required {{
{required}        }}
        optional {{
{optional}        }}
    }}
}}
"
    );
    let body = format!("{types}\n{table}").replace("::core::option::", "");
    let ctypes: BTreeSet<&str> = body
        .match_indices("::core::ffi::")
        .filter_map(|(at, path)| words(body.get(at..)?.strip_prefix(path)?).next())
        .collect();
    let imports = ctypes.into_iter().collect::<Vec<_>>().join(", ");
    let head = HEAD.replace("RELEASE", release).replace("BINDGEN", BINDGEN);
    Ok(format!("{head}use core::ffi::{{{imports}}};\n{}", body.replace("::core::ffi::", "")))
}

/// The lines of one section of `dyn_api!`.
fn section(items: &[Item], names: &[&str]) -> Result<String, String> {
    let mut out = String::new();
    let mut absent = Vec::new();
    for name in names {
        match items.iter().find(|i| i.name == *name && i.kind == Kind::Function) {
            Some(item) => out.push_str(&signature(&item.text)),
            None => absent.push(*name),
        }
    }
    if absent.is_empty() {
        return Ok(out);
    }
    Err(format!("the headers declare no {}", absent.join(", ")))
}

/// A signature as rustfmt would write it: on one line if it fits, else one line an argument.
fn signature(text: &str) -> String {
    let text = text.replace("::core::ffi::", "").replace("( ", "(").replace(", )", ")");
    let line = format!("            {text}\n");
    if line.trim_end().len() <= WIDTH {
        return line;
    }
    // No argument of a wanted function has brackets or commas of its own.
    match (text.split_once('('), text.rsplit_once(')')) {
        (Some((head, _)), Some((front, tail))) => {
            let arguments = front.get(head.len().saturating_add(1)..).unwrap_or("");
            let mut out = format!("            {head}(\n");
            for argument in arguments.split(", ") {
                out.push_str(&format!("                {argument},\n"));
            }
            out.push_str(&format!("            ){tail}\n"));
            out
        }
        _ => line,
    }
}

/// The wanted functions that the two sets of headers declare otherwise, or that an older one lacks
/// although they are required.
pub(super) fn differences(newer: &[Item], older: &[Item]) -> Vec<String> {
    let find = |items: &[Item], name: &str| {
        items.iter().find(|i| i.name == name && i.kind == Kind::Function).map(|i| i.text.clone())
    };
    let differs = |name: &&str| find(newer, name) != find(older, name);
    let missing = |name: &&str| find(older, name).is_none();
    let required = REQUIRED.iter().copied().filter(differs);
    required
        .chain(OPTIONAL.iter().copied().filter(|n| differs(n) && !missing(n)))
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{differences, section, signature};
    use crate::cmd::bindings::items::{Item, Kind};
    use crate::cmd::bindings::wanted::{OPTIONAL, REQUIRED};

    fn function(name: &str, arguments: &str) -> Item {
        Item {
            name: name.to_owned(),
            text: format!("fn {name}({arguments});"),
            kind: Kind::Function,
        }
    }

    #[test]
    fn a_short_signature_stays_on_its_line() {
        assert_eq!(signature("fn f( a: u8, ) -> u8;"), "            fn f(a: u8) -> u8;\n");
    }

    #[test]
    fn a_long_signature_has_a_line_for_each_argument() {
        let argument = "x".repeat(60);
        let text = signature(&format!("fn f( a: {argument}, b: {argument}, ) -> u8;"));
        assert_eq!(
            text,
            format!(
                "            fn f(\n                a: {argument},\n                b: {argument},\n            ) -> u8;\n"
            )
        );
    }

    #[test]
    fn a_function_that_the_headers_lack_is_an_error() {
        assert!(section(&[function("a", "")], &["a", "b"]).is_err_and(|e| e.contains("no b")));
    }

    #[test]
    fn functions_that_changed_or_lack_are_found() {
        let newer: Vec<Item> =
            REQUIRED.iter().chain(&OPTIONAL).map(|n| function(n, "a: u8")).collect();
        assert!(differences(&newer, &newer).is_empty());
        // An older library may lack what is optional.
        let (older, _) = newer.split_at(REQUIRED.len());
        assert!(differences(&newer, older).is_empty());
        let (_, older) = newer.split_at(1);
        assert_eq!(differences(&newer, older), REQUIRED[..1]);
        let mut older = newer.clone();
        older[REQUIRED.len()] = function(OPTIONAL[0], "a: u16");
        assert_eq!(differences(&newer, &older), OPTIONAL[..1]);
    }
}
