//! The modules of a crate as one graph: which file names items of which other file. A module is a file here; an inline module
//! belongs to the file that holds it. Code under `cfg(test)` is left out: tests may look anywhere.
//!
//! A name is resolved as rustc does it, as far as no types are needed: `use` with its renames and globs, re-exports, `crate`,
//! `self`, `super`, child modules, paths in bodies and in the arguments of macros. What only types tell (which file has the
//! method that is called) is not seen.

mod load;
mod names;
mod visit;

pub(super) use visit::Edge;

use crate::tree::Tree;

/// The files below one root and the names between them.
#[derive(Debug)]
pub(super) struct Graph {
    /// Paths from the project's root.
    pub(super) files: Vec<String>,
    /// The modules that they are: `a/b` for `crate::a::b`, empty for the root.
    pub(super) modules: Vec<String>,
    /// Without those of a file to itself.
    pub(super) edges: Vec<Edge>,
}

impl Graph {
    /// The graph of all that the root file declares.
    ///
    /// # Errors
    /// Words, for a file that is missing or is no Rust.
    pub(super) fn read(tree: &Tree, root: &str) -> Result<Self, String> {
        let program = load::Program::read(tree, root)?;
        let edges = visit::edges(&program);
        let module = |m: usize| program.modules.get(m).map_or(String::new(), |m| m.path.join("/"));
        let modules = program.files.iter().map(|f| module(f.module)).collect();
        Ok(Self { files: program.files.into_iter().map(|f| f.path).collect(), modules, edges })
    }

    /// Groups of files each of which leads to each other of its group: one or more cycles each.
    pub(super) fn cycles(&self) -> Vec<Vec<usize>> {
        let to = |from: usize| self.edges.iter().filter(move |e| e.from == from).map(|e| e.to);
        let reach: Vec<Vec<bool>> = (0..self.files.len())
            .map(|start| {
                let mut seen = vec![false; self.files.len()];
                let mut open: Vec<usize> = to(start).collect();
                while let Some(at) = open.pop() {
                    if let Some(seen) = seen.get_mut(at).filter(|s| !**s) {
                        *seen = true;
                        open.extend(to(at));
                    }
                }
                seen
            })
            .collect();
        let leads = |a: usize, b: usize| reach.get(a).and_then(|r| r.get(b)) == Some(&true);
        let mut out: Vec<Vec<usize>> = Vec::new();
        for a in 0..self.files.len() {
            if leads(a, a) && !out.iter().flatten().any(|b| *b == a) {
                out.push((0..self.files.len()).filter(|b| leads(a, *b) && leads(*b, a)).collect());
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::Graph;
    use crate::tree::Tree;

    /// The edges of a crate of those files, as `from -> to: name`.
    fn edges(files: &[(&str, &str)]) -> Vec<String> {
        let graph = Graph::read(&Tree::planted(files), "c/src/lib.rs").expect("Rust");
        let short = |i: usize| {
            let path = graph.files.get(i).expect("an index of the graph");
            path.trim_start_matches("c/src/").trim_end_matches(".rs").to_owned()
        };
        let mut out: Vec<String> = graph
            .edges
            .iter()
            .map(|e| format!("{} -> {}: {}", short(e.from), short(e.to), e.name))
            .collect();
        out.sort();
        out.dedup();
        out
    }

    fn two(text: &str) -> Vec<String> {
        let lib = ("c/src/lib.rs", "mod a; mod b; pub use b::Shown; pub use b::inner as renamed;");
        let b = "pub struct Thing; pub struct Shown; pub mod inner { pub struct Deep; pub fn go() {} } #[macro_export] macro_rules! shout { () => {} }";
        let all = edges(&[lib, ("c/src/a.rs", text), ("c/src/b.rs", b)]);
        all.into_iter().filter(|e| e.starts_with("a ")).collect()
    }

    #[test]
    fn each_way_to_name_another_file_is_an_edge() {
        for (text, name) in [
            ("use crate::b::Thing;", "crate::b::Thing"),
            ("use super::b::Thing;", "super::b::Thing"),
            ("use crate::{b::{Thing as T}};", "crate::b::Thing"),
            ("use crate::Shown;", "crate::Shown"),
            ("use crate::renamed::Deep;", "crate::renamed::Deep"),
            ("use crate::b::*;", "crate::b"),
            ("fn f() -> crate::b::Thing { loop {} }", "crate::b::Thing"),
            ("fn f() { super::b::inner::go(); }", "super::b::inner::go"),
            ("fn f() { let _ = crate::b::Thing::new(); }", "crate::b::Thing::new"),
            ("fn f() { vec![crate::b::inner::go()]; }", "crate::b::inner::go"),
            ("macro_rules! m { () => { $crate::b::inner::go() } }", "crate::b::inner::go"),
            ("fn f() { use crate::b::Thing; }", "crate::b::Thing"),
            ("mod within { use super::super::b::Thing; }", "super::super::b::Thing"),
            ("impl crate::b::Thing {}", "crate::b::Thing"),
            ("fn f() { crate::shout!(); }", "crate::shout"),
        ] {
            assert_eq!(two(text), [format!("a -> b: {name}")], "{text}");
        }
        let both = two("use crate::b; fn f() { b::inner::go(); }");
        assert_eq!(both, ["a -> b: b::inner::go", "a -> b: crate::b"]);
        assert_eq!(two("use super::*; fn f(x: Shown) {}"), ["a -> b: Shown", "a -> lib: super"]);
    }

    #[test]
    fn what_names_no_other_file_is_none() {
        let none: [&str; 0] = [];
        for text in [
            "struct Thing; fn f(x: Thing) {}",
            "use std::fmt; fn f() -> fmt::Result { Ok(()) }",
            "#[cfg(test)] mod tests { use crate::b::Thing; }",
            "#[cfg(all(test, not(loom)))] mod tests { use crate::b::Thing; }",
            "/// See crate::b::Thing.\nfn f() {}",
            "mod within { pub struct Own; } use within::Own;",
            "use self::within::Own; mod within { pub struct Own; }",
        ] {
            assert_eq!(two(text), none, "{text}");
        }
    }

    #[test]
    fn a_name_leads_to_the_file_that_defines_it() {
        let files = [
            ("c/src/lib.rs", "pub mod a; mod d;"),
            ("c/src/a/mod.rs", "mod low; pub use low::Low; pub(crate) struct Head;"),
            ("c/src/a/low.rs", "use super::Head; pub struct Low;"),
            ("c/src/d.rs", "use crate::a::Low; #[path = \"other.rs\"] mod e;"),
            ("c/src/other.rs", "use crate::d;"),
        ];
        let found = edges(&files);
        let wanted = [
            "a/low -> a/mod: super::Head",
            "a/mod -> a/low: low::Low",
            "d -> a/low: crate::a::Low",
            "other -> d: crate::d",
        ];
        assert_eq!(found, wanted);
        let cycles = Graph::read(&Tree::planted(&files), "c/src/lib.rs").expect("Rust").cycles();
        assert_eq!(cycles.len(), 1);
        assert_eq!(cycles.first().map(Vec::len), Some(2));
    }

    #[test]
    fn what_cannot_be_read_is_reported() {
        let read =
            |text: &str| Graph::read(&Tree::planted(&[("c/src/lib.rs", text)]), "c/src/lib.rs");
        assert!(read("mod gone;").is_err_and(|e| e.contains("gone")));
        assert!(read("fn (").is_err_and(|e| e.contains("c/src/lib.rs")));
    }
}
