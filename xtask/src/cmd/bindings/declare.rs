//! The text of the generated files: types and constants as bindgen wrote them, functions as one `dyn_api!`.

use super::headers::BINDGEN;
use super::items::{Item, Kind, words};
use super::wanted::{OPTIONAL, REQUIRED};
use std::collections::BTreeSet;

/// The longest line of a signature; rustfmt does not look into a macro.
const WIDTH: usize = 100;

/// The head of a file; what it has, `RELEASE` and `BINDGEN` are put in.
const HEAD: &str = r#"//! The WHAT that the headers of UCX RELEASE declare, as far as they are wanted. Generated; never edit it.
//!
//! Written by `cargo xtask bindings` with bindgen BINDGEN from `ucp/api/ucp.h`; the list of what is
//! wanted is in `xtask/src/cmd/bindings/wanted.rs`.NOTES
#![allow(dead_code, reason = "declared as a whole, whether used or not")]

"#;

/// What a reader of the types has to know.
const OF_TYPES: &str = " `tests.rs` compares sizes and offsets with what a
//! C compiler says.
//!
//! - Structures only ever grew at their end. A zeroed structure of this file serves an older library
//!   too, as long as no mask has a bit that it does not know.
//! - `ucs_status_t` is one byte, also as a result and in callbacks; the upper bits of the register are
//!   undefined. A wider declaration would read them.
#![allow(non_camel_case_types, clippy::upper_case_acronyms, reason = \"the names of the C headers\")]";

/// What a reader of the constants has to know.
const OF_CONSTANTS: &str = " `tests.rs` compares the values with what a C compiler says.
//!
//! - `UCS_MEMORY_TYPE_LAST` and `_UNKNOWN` are left out: their value differs between versions.
//! - Constants of a mask have the type of the field that holds them.";

/// What a reader of the functions has to know.
const OF_FUNCTIONS: &str = " There is no foreign block: nothing links against UCX.
//!
//! - Inline or macros in C, so written by hand where they are needed: `ucp_init` (calls
//!   `ucp_init_version` with the version of the headers), `ucp_dt_make_contig` and its kin,
//!   `UCS_PTR_IS_ERR`, `UCS_PTR_RAW_STATUS`, `UCS_STATUS_IS_ERR` and the ranges of errors (`result.rs`).
//! - `ucs_status_string` is libucs's; dlsym finds it through libucp, which depends on it.";

/// The files before rustfmt, by their names.
///
/// # Errors
/// The wanted functions that the headers lack.
pub(super) fn texts(items: &[Item], release: &str) -> Result<[(&'static str, String); 3], String> {
    let is_constant = |i: &&Item| matches!(i.kind, Kind::Constant(_));
    let is_type = |i: &&Item| !is_constant(i) && i.kind != Kind::Function;
    let types: BTreeSet<&str> = items.iter().filter(is_type).map(|i| i.name.as_str()).collect();
    let c_types: BTreeSet<&str> = items.iter().flat_map(|i| c_types(&i.text)).collect();
    let file = |what: &str, notes: &str, from: &str, body: String| {
        let head = HEAD.replace("WHAT", what).replace("NOTES", notes);
        let head = head.replace("RELEASE", release).replace("BINDGEN", BINDGEN);
        let body = body.replace("::core::option::", "").replace("::core::ffi::", "");
        let c = import("core::ffi", &c_types, &body);
        let own = if from.is_empty() { String::new() } else { import(from, &types, &body) };
        format!("{head}{c}{own}{body}")
    };
    let constants = declared(items.iter().filter(is_constant));
    let structures = declared(items.iter().filter(is_type));
    let functions = format!("use crate::api::dyn_api;\n{}", table(items)?);
    Ok([
        ("sys/constants.rs", file("constants", OF_CONSTANTS, "super::types", constants)),
        ("sys/types.rs", file("types", OF_TYPES, "", structures)),
        ("functions.rs", file("functions", OF_FUNCTIONS, "super::sys", functions)),
    ])
}

/// The C types that a text of bindgen's names.
fn c_types(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices("::core::ffi::")
        .filter_map(|(at, path)| words(text.get(at..)?.strip_prefix(path)?).next())
}

/// The import of those names that a text has.
fn import(from: &str, names: &BTreeSet<&str>, body: &str) -> String {
    let named: BTreeSet<&str> = words(body).filter(|w| names.contains(w)).collect();
    if named.is_empty() {
        return String::new();
    }
    format!("use {from}::{{{}}};\n", named.into_iter().collect::<Vec<_>>().join(", "))
}

/// Items as bindgen wrote them, for this crate alone.
fn declared<'i>(items: impl Iterator<Item = &'i Item>) -> String {
    let mut out = String::new();
    let mut last = None;
    for item in items {
        // Constants and names stand together; a structure stands alone.
        let plain = matches!(item.kind, Kind::Constant(_) | Kind::Alias(_));
        if last != Some(true) || !plain {
            out.push('\n');
        }
        last = Some(plain);
        for line in item.text.lines() {
            let indent = line.len().saturating_sub(line.trim_start().len());
            let (space, code) = line.split_at(indent);
            match code.strip_prefix("pub ") {
                Some(code) => out.push_str(&format!("{space}pub(crate) {code}\n")),
                None => out.push_str(&format!("{line}\n")),
            }
        }
    }
    out
}

/// The functions, as one table.
fn table(items: &[Item]) -> Result<String, String> {
    let required = section(items, &REQUIRED)?;
    let optional = section(items, &OPTIONAL)?;
    Ok(format!(
        "
dyn_api! {{
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
    ))
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
    use super::{differences, section, signature, texts};
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
    fn each_kind_has_its_file_which_imports_what_it_names() {
        let mut items: Vec<Item> = REQUIRED
            .iter()
            .chain(&OPTIONAL)
            .map(|n| function(n, "a: *const s, b: ::core::ffi::c_int"))
            .collect();
        for (name, text, kind) in [
            ("C", "pub const C: kind = 0;", Kind::Constant("kind".to_owned())),
            (
                "kind",
                "pub type kind = ::core::ffi::c_uint;",
                Kind::Alias("::core::ffi::c_uint".to_owned()),
            ),
            ("s", "pub struct s {\n    pub a: kind,\n}", Kind::Structure(Vec::new())),
        ] {
            items.push(Item { name: name.to_owned(), text: text.to_owned(), kind });
        }
        let [constants, types, functions] = texts(&items, "1.2.3").unwrap().map(|(_, text)| text);
        let has = |text: &str, parts: &[&str]| {
            parts.iter().for_each(|p| assert!(text.contains(p), "no {p} in {text}"));
        };
        has(
            &constants,
            &["UCX 1.2.3", "use super::types::{kind};\n\npub(crate) const C: kind = 0;"],
        );
        has(&types, &["use core::ffi::{c_uint};\n\npub(crate) type kind = c_uint;"]);
        has(&types, &["\n\npub(crate) struct s {\n    pub(crate) a: kind,\n}"]);
        has(
            &functions,
            &["use core::ffi::{c_int};\nuse super::sys::{s};\nuse crate::api::dyn_api;"],
        );
        has(&functions, &["fn ucp_cleanup(a: *const s, b: c_int);"]);
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
