//! Whose instructions: reads what callgrind wrote and sums it by object (program or library).
//!
//! The format is that of "Callgrind Format Specification" in Valgrind's manual: names are written once with a number and
//! by their number after that; a line that begins with a position holds the cost of the present function itself, unless
//! it follows a `calls=`, when it is the whole cost of that call.

use std::collections::HashMap;

/// Instructions of a program: of its own code, and of a library that is counted apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Split {
    /// The program's own, and those of other libraries (the C library's copies) but for what `library` has.
    pub(crate) ours: u64,
    /// The library's, with those of others that it calls. They call nobody back.
    pub(crate) library: u64,
}

/// Splits a profile between the object whose name ends with `program` and that with `library`.
pub(crate) fn split(profile: &str, program: &str, library: &str) -> Split {
    let mut names: HashMap<&str, &str> = HashMap::new();
    let mut out = Split { ours: 0, library: 0 };
    let (mut object, mut callee, mut in_call, mut lent_out) = ("", None, false, 0);
    for line in profile.lines() {
        if let Some(text) = line.strip_prefix("ob=") {
            object = resolve(&mut names, text);
        } else if let Some(text) = line.strip_prefix("cob=") {
            callee = Some(resolve(&mut names, text));
        } else if line.starts_with("calls=") {
            in_call = true;
        } else if line.starts_with(|c: char| c.is_ascii_digit() || "+-*".contains(c)) {
            let cost = line.split_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok());
            let cost = cost.unwrap_or(0);
            // What a call costs belongs to its callee, but for the library's calls of libraries that are neither.
            let elsewhere = |other: &str| !other.ends_with(program) && !other.ends_with(library);
            let lent = core::mem::take(&mut in_call)
                .then(|| callee.take().is_some_and(elsewhere) && object.ends_with(library));
            match lent {
                Some(false) => {}
                Some(true) => {
                    out.library += cost;
                    lent_out += cost;
                }
                None if object.ends_with(library) => out.library += cost,
                None => out.ours += cost,
            }
        }
    }
    out.ours = out.ours.saturating_sub(lent_out);
    out
}

/// The name that `(7) name` gives to number 7, or that `(7)` was given before.
fn resolve<'p>(names: &mut HashMap<&'p str, &'p str>, text: &'p str) -> &'p str {
    match text.split_once(' ') {
        Some((number, name)) => {
            names.insert(number, name);
            name
        }
        None => names.get(text).copied().unwrap_or(text),
    }
}

#[cfg(test)]
mod tests {
    use super::{Split, split};

    #[test]
    fn costs_belong_to_their_objects() {
        let profile = "\
version: 1
events: Ir
positions: line

ob=(1) /x/bench
fn=(1) main
16 400
+3 7
cob=(2) /x/libstand.so
cfn=(2) put
calls=10 0
* 5000
cob=(3) /lib/libc.so.6
cfn=(3) memcpy
calls=10 0
+1 60
cfn=(4) inner
calls=1 0
20 30

ob=(2)
fn=(2)
5 4500
cob=(3)
cfn=(3)
calls=10 0
6 40
cob=(1)
cfn=(4)
calls=10 0
7 460

ob=(3)
fn=(3)
0 100

ob=(1)
fn=(4)
3 490
";
        let found = split(profile, "/bench", "libstand.so");
        assert_eq!(found, Split { ours: 400 + 7 + 490 + (100 - 40), library: 4500 + 40 });
    }
}
