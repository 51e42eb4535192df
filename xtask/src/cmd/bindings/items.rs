//! Reads what bindgen wrote: one item after the other, each with what the rest has to know of it.
//!
//! Not a parser of Rust: it knows the few shapes that bindgen writes for C, formatted by rustfmt. A
//! shape that it does not know is an error, never left out silently.

use std::collections::{BTreeMap, BTreeSet};

/// One declaration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Item {
    /// Its name in Rust.
    pub(super) name: String,
    /// Its text, with attributes.
    pub(super) text: String,
    /// What it is.
    pub(super) kind: Kind,
}

/// What an item is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A constant, with its type.
    Constant(String),
    /// A name for another type.
    Alias(String),
    /// A structure; without fields if it is opaque.
    Structure(Vec<Field>),
    /// A union.
    Union(Vec<Field>),
    /// A function of the library; the text is its signature from `fn` to `;`.
    Function,
}

/// A field of a structure or union.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Field {
    /// Its name.
    pub(super) name: String,
    /// Its type.
    pub(super) of: String,
}

/// What bindgen calls a structure or union that has no name in C.
const NAMELESS: &str = "__bindgen_ty_";

/// Reads a whole text. A nameless type of a field is called after its structure and field.
///
/// # Errors
/// The shape that is not known.
pub(super) fn parse(text: &str) -> Result<Vec<Item>, String> {
    let first = parse_once(text)?;
    let mut names = BTreeMap::new();
    for item in &first {
        for field in item.fields().iter().filter(|f| f.of.contains(NAMELESS)) {
            let parent = item.name.strip_suffix("_t").unwrap_or(&item.name);
            names.insert(field.of.clone(), format!("{parent}_{}", field.name));
        }
    }
    parse_once(&words(text).map(|w| names.get(w).map_or(w, String::as_str)).collect::<String>())
}

fn parse_once(text: &str) -> Result<Vec<Item>, String> {
    let mut out = Vec::new();
    for chunk in chunks(text) {
        let body: Vec<&str> = chunk.lines().filter(|l| !l.starts_with("#[")).collect();
        let code = body.join(" ").split_whitespace().collect::<Vec<_>>().join(" ");
        let unknown = || format!("an item of an unknown shape: {code}");
        if let Some(functions) = code.strip_prefix("unsafe extern \"C\" {") {
            let functions = functions.strip_suffix('}').ok_or_else(unknown)?;
            for function in functions.split(';').map(str::trim).filter(|f| !f.is_empty()) {
                let signature = function.strip_prefix("pub fn ").ok_or_else(unknown)?;
                let (name, _) = signature.split_once('(').ok_or_else(unknown)?;
                out.push(Item {
                    name: name.to_owned(),
                    text: format!("fn {signature};"),
                    kind: Kind::Function,
                });
            }
            continue;
        }
        let (name, kind, text) = if let Some(rest) = code.strip_prefix("pub const ") {
            let (name, rest) = rest.split_once(": ").ok_or_else(unknown)?;
            let (of, _) = rest.split_once(" = ").ok_or_else(unknown)?;
            (name, Kind::Constant(of.to_owned()), chunk.clone())
        } else if let Some(rest) = code.strip_prefix("pub type ") {
            let (name, target) = rest.split_once(" = ").ok_or_else(unknown)?;
            (name, Kind::Alias(target.trim_end_matches(';').to_owned()), chunk.clone())
        } else if let Some(rest) = code.strip_prefix("pub use self::") {
            let (target, name) =
                rest.trim_end_matches(';').split_once(" as ").ok_or_else(unknown)?;
            let text = format!("pub type {name} = {target};");
            (name, Kind::Alias(target.to_owned()), text)
        } else if let Some(rest) = code.strip_prefix("pub struct ") {
            let (name, fields) = rest.split_once(" {").ok_or_else(unknown)?;
            (name, Kind::Structure(fields_of(fields).ok_or_else(unknown)?), chunk.clone())
        } else if let Some(rest) = code.strip_prefix("pub union ") {
            let (name, fields) = rest.split_once(" {").ok_or_else(unknown)?;
            (name, Kind::Union(fields_of(fields).ok_or_else(unknown)?), chunk.clone())
        } else {
            return Err(unknown());
        };
        out.push(Item { name: name.to_owned(), text, kind });
    }
    Ok(out)
}

/// Items as text: from the first attribute to the line that ends in `;` or `}` with no bracket open.
fn chunks(text: &str) -> Vec<String> {
    let mut out = Vec::new();
    let mut lines: Vec<&str> = Vec::new();
    let mut open = 0_usize;
    for line in text.lines() {
        let comment = line.starts_with("/*") || line.starts_with("//");
        if line.trim().is_empty() || (comment && lines.is_empty()) {
            continue;
        }
        lines.push(line);
        for c in line.chars() {
            match c {
                '(' | '[' | '{' => open = open.saturating_add(1),
                ')' | ']' | '}' => open = open.saturating_sub(1),
                _ => {}
            }
        }
        if open == 0 && (line.ends_with(';') || line.ends_with('}')) {
            out.push(lines.join("\n"));
            lines.clear();
        }
    }
    if !lines.is_empty() {
        out.push(lines.join("\n"));
    }
    out
}

/// The public fields of `pub a: T, pub b: U, }`; none for a structure with private ones only.
fn fields_of(text: &str) -> Option<Vec<Field>> {
    let text = text.trim().strip_suffix('}')?;
    let mut out = Vec::new();
    // A type may hold commas of its own, but no `pub`.
    for part in text.split("pub ").skip(1) {
        let (name, of) = part.trim().trim_end_matches(',').split_once(": ")?;
        out.push(Field { name: name.to_owned(), of: of.to_owned() });
    }
    Some(out)
}

/// The text cut into words and what stands between them; put together it is the text again.
pub(super) fn words(text: &str) -> impl Iterator<Item = &str> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut rest = text;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        let end = rest.find(|c: char| is_word(c) != is_word(first)).unwrap_or(rest.len());
        let (word, tail) = rest.split_at(end);
        rest = tail;
        Some(word)
    })
}

impl Item {
    /// The fields of a structure or union.
    pub(super) fn fields(&self) -> &[Field] {
        match &self.kind {
            Kind::Structure(fields) | Kind::Union(fields) => fields,
            Kind::Constant(_) | Kind::Alias(_) | Kind::Function => &[],
        }
    }
}

/// The items that a function or constant needs, directly or not, in their order.
pub(super) fn needed(items: Vec<Item>) -> Vec<Item> {
    let mut names: BTreeSet<String> = BTreeSet::new();
    let mut next: Vec<String> = items
        .iter()
        .filter(|i| matches!(i.kind, Kind::Constant(_) | Kind::Function))
        .map(|i| i.name.clone())
        .collect();
    while let Some(name) = next.pop() {
        if let Some(item) = items.iter().find(|i| i.name == name)
            && names.insert(name)
        {
            next.extend(words(&item.text).map(str::to_owned));
        }
    }
    items.into_iter().filter(|i| names.contains(&i.name)).collect()
}

#[cfg(test)]
mod tests {
    use super::{Kind, needed, parse, words};

    const TEXT: &str = r#"/* automatically generated */

pub const UCX_A: ucx_kind = 0;
pub type ucx_kind = ::core::ffi::c_uint;
pub use self::ucx_kind as ucx_kind_t;
pub type ucx_back =
    ::core::option::Option<unsafe extern "C" fn(a: *mut ucx_hidden, b: ucx_kind)>;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ucx_hidden {
    _unused: [u8; 0],
}
#[repr(C)]
pub struct ucx_param_t {
    pub mask: u64,
    pub cb: ucx_param_t__bindgen_ty_1,
    pub name: [::core::ffi::c_char; 32usize],
}
#[repr(C)]
pub union ucx_param_t__bindgen_ty_1 {
    pub send: ucx_back,
}
pub type ucx_stray = ucx_kind;
unsafe extern "C" {
    pub fn ucx_go(
        kind: ucx_kind_t,
        param: *const ucx_param_t,
    ) -> ucx_kind;
    pub fn ucx_end();
}
"#;

    #[test]
    fn every_shape_is_read() {
        let items = parse(TEXT).unwrap();
        let names: Vec<&str> = items.iter().map(|i| i.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "UCX_A",
                "ucx_kind",
                "ucx_kind_t",
                "ucx_back",
                "ucx_hidden",
                "ucx_param_t",
                "ucx_param_cb",
                "ucx_stray",
                "ucx_go",
                "ucx_end"
            ]
        );
        assert_eq!(items[0].kind, Kind::Constant("ucx_kind".to_owned()));
        assert_eq!(items[2].text, "pub type ucx_kind_t = ucx_kind;");
        assert!(items[4].fields().is_empty());
        let fields: Vec<&str> = items[5].fields().iter().map(|f| f.of.as_str()).collect();
        assert_eq!(fields, ["u64", "ucx_param_cb", "[::core::ffi::c_char; 32usize]"]);
        assert!(matches!(&items[6].kind, Kind::Union(f) if f.len() == 1));
        assert!(items[8].text.starts_with("fn ucx_go( kind: ucx_kind_t,"), "{}", items[8].text);
        assert_eq!(items[9].text, "fn ucx_end();");
    }

    #[test]
    fn what_nothing_needs_is_dropped() {
        let kept = needed(parse(TEXT).unwrap());
        assert_eq!(kept.len(), 9);
        assert!(kept.iter().all(|i| i.name != "ucx_stray"));
    }

    #[test]
    fn an_unknown_shape_is_an_error() {
        assert!(parse("pub static X: u8 = 1;").is_err());
        assert!(parse("pub struct Half {").is_err());
        assert!(parse("unsafe extern \"C\" {\n    pub static x: u8;\n}").is_err());
    }

    #[test]
    fn words_put_together_are_the_text() {
        assert_eq!(words("a_1::b {c};").collect::<Vec<_>>(), ["a_1", "::", "b", " {", "c", "};"]);
    }
}
