//! A C program that prints what the compiler makes of the declarations: sizes, offsets, values.
//!
//! bindgen computes layouts too; this asks the compiler that builds UCX, so that a mistake of bindgen
//! is seen as well.

use super::items::{Item, Kind};
use std::collections::BTreeMap;

/// Names of integer types as bindgen writes them.
const INTEGERS: [&str; 16] = [
    "::core::ffi::c_char",
    "::core::ffi::c_schar",
    "::core::ffi::c_uchar",
    "::core::ffi::c_short",
    "::core::ffi::c_ushort",
    "::core::ffi::c_int",
    "::core::ffi::c_uint",
    "::core::ffi::c_long",
    "::core::ffi::c_ulong",
    "::core::ffi::c_longlong",
    "::core::ffi::c_ulonglong",
    "u16",
    "u32",
    "u64",
    "i32",
    "i64",
];

/// The lines before the first one of the compiler.
pub(super) fn head(release: &str) -> String {
    format!(
        "# What a C compiler makes of the headers of UCX {release} (64-bit Linux).\n\
         # Written by `cargo xtask bindings`; tests.rs compares it with sys/*.\n\
         # type NAME SIZE SIGN; struct NAME SIZE; field STRUCT.FIELD OFFSET SIZE; const NAME VALUE.\n"
    )
}

/// The program.
pub(super) fn program(items: &[Item]) -> String {
    let mut body = String::new();
    let mut line = |format: &str, values: &str| {
        body.push_str(&format!("    printf(\"{format}\\n\", {values});\n"));
    };
    let nameless = nameless(items);
    for item in items {
        let name = &item.name;
        match &item.kind {
            // The names of C's own library that begin with `__` are its own business.
            Kind::Alias(target)
                if name.ends_with("_t") && !name.starts_with("__") && is_integer(items, target) =>
            {
                let sign = format!("({name})-1 < ({name})1 ? \"signed\" : \"unsigned\"");
                line(&format!("type {name} %zu %s"), &format!("sizeof({name}), {sign}"));
            }
            Kind::Structure(fields) | Kind::Union(fields) if !fields.is_empty() => {
                let word = if matches!(item.kind, Kind::Union(_)) { "union" } else { "struct" };
                let (shown, c) = match nameless.get(name) {
                    Some(c) => (name.clone(), c.clone()),
                    None => {
                        let c = in_c(items, name);
                        (c.strip_prefix("struct ").unwrap_or(&c).to_owned(), c)
                    }
                };
                line(&format!("{word} {shown} %zu"), &format!("sizeof({c})"));
                for field in fields.iter().map(|f| &f.name) {
                    line(
                        &format!("field {shown}.{field} %zu %zu"),
                        &format!("offsetof({c}, {field}), sizeof((({c} *)0)->{field})"),
                    );
                }
            }
            Kind::Constant(_) => line(&format!("const {name} %lld"), &format!("(long long){name}")),
            _ => {}
        }
    }
    format!(
        "#include <ucp/api/ucp.h>\n#include <stddef.h>\n#include <stdio.h>\n\n\
         int main(void)\n{{\n{body}    return 0;\n}}\n"
    )
}

/// Types that have no name in C, and how C can speak of them: by the field that has them.
fn nameless(items: &[Item]) -> BTreeMap<String, String> {
    let mut out = BTreeMap::new();
    for item in items {
        let parent = item.name.strip_suffix("_t").unwrap_or(&item.name);
        for field in item.fields() {
            if field.of == format!("{parent}_{}", field.name) {
                let parent = in_c(items, &item.name);
                out.insert(
                    field.of.clone(),
                    format!("__typeof__((({parent} *)0)->{})", field.name),
                );
            }
        }
    }
    out
}

/// The name of a structure in C: that of its typedef, or its tag.
fn in_c(items: &[Item], name: &str) -> String {
    let alias = format!("{name}_t");
    if name.ends_with("_t") {
        name.to_owned()
    } else if items.iter().any(|i| i.name == alias && i.kind == Kind::Alias(name.to_owned())) {
        alias
    } else {
        format!("struct {name}")
    }
}

/// Whether a type is, through any names, an integer.
fn is_integer(items: &[Item], of: &str) -> bool {
    INTEGERS.contains(&of)
        || items.iter().any(
            |i| matches!(&i.kind, Kind::Alias(target) if i.name == of && is_integer(items, target)),
        )
}

#[cfg(test)]
mod tests {
    use super::program;
    use crate::cmd::bindings::items::parse;

    const TEXT: &str = r#"pub const UCX_A: ucx_kind = 0;
pub type ucx_kind = ::core::ffi::c_uint;
pub type ucx_kind_t = ucx_kind;
pub type ucx_handle_t = *mut ucx_hidden;
pub struct ucx_hidden {
    _unused: [u8; 0],
}
pub struct ucx_plain {
    pub mask: u64,
}
pub type ucx_plain_t = ucx_plain;
pub struct tagged {
    pub mask: u64,
}
pub struct ucx_param_t {
    pub cb: ucx_param_t__bindgen_ty_1,
}
pub union ucx_param_t__bindgen_ty_1 {
    pub send: u64,
}
"#;

    #[test]
    fn the_program_asks_for_everything_with_its_name_in_c() {
        let text = program(&parse(TEXT).unwrap());
        let asked: Vec<&str> = text.lines().filter(|l| l.contains("printf(")).collect();
        for (line, wanted) in asked.iter().zip([
            "\"const UCX_A %lld\\n\", (long long)UCX_A",
            "\"type ucx_kind_t %zu %s\\n\", sizeof(ucx_kind_t), (ucx_kind_t)-1 < (ucx_kind_t)1",
            "\"struct ucx_plain_t %zu\\n\", sizeof(ucx_plain_t)",
            "offsetof(ucx_plain_t, mask), sizeof(((ucx_plain_t *)0)->mask)",
            "\"struct tagged %zu\\n\", sizeof(struct tagged)",
            "offsetof(struct tagged, mask)",
            "\"struct ucx_param_t %zu\\n\"",
            "\"field ucx_param_t.cb %zu %zu\\n\"",
            "\"union ucx_param_cb %zu\\n\", sizeof(__typeof__(((ucx_param_t *)0)->cb))",
            "offsetof(__typeof__(((ucx_param_t *)0)->cb), send)",
        ]) {
            assert!(line.contains(wanted), "{line}\n{wanted}");
        }
        assert_eq!(asked.len(), 10, "{text}");
    }
}
