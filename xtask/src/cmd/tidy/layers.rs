//! Layers inside the crates: names lead downwards only, and in no circle. `layers.txt` has the layers of each crate.

use super::finding::Finding;
use super::modules::{Edge, Graph};
use crate::tree::Tree;

/// For each root file the layers below it, the highest first, one in a line. A layer is a list of modules, as `a/b`, the root as `.`;
/// the longest name that a module's path begins with decides.
const TABLE: &str = include_str!("layers.txt");

/// The layers of one crate.
struct Layers<'t> {
    root: &'t str,
    /// Names of files and folders, the highest layer first.
    rows: Vec<Vec<&'t str>>,
}

/// What one crate's graph holds.
struct Found {
    root: String,
    edges: usize,
    upward: Vec<Finding>,
    cycles: Vec<Vec<String>>,
    other: Vec<Finding>,
}

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    with_table(tree, TABLE)
}

/// One line for each crate.
pub(super) fn summary(tree: &Tree) -> String {
    let lines = found(tree, &parse(TABLE)).into_iter().map(|f| {
        let in_cycles: usize = f.cycles.iter().map(Vec::len).sum();
        let Found { root, edges, .. } = &f;
        format!(
            "{root}: {edges} edges, upward {}, cycles {} of {in_cycles} files",
            f.upward.len(),
            f.cycles.len()
        )
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn with_table(tree: &Tree, text: &str) -> Vec<Finding> {
    let table = parse(text);
    let mut out = Vec::new();
    for f in found(tree, &table) {
        out.extend(f.upward);
        out.extend(f.cycles.iter().map(|c| {
            let what = format!("these name each other in a circle: {}", c.join(" "));
            Finding::new(&f.root, 0, what)
        }));
        out.extend(f.other);
    }
    for row in table.iter().filter(|l| tree.file(l.root).is_none()) {
        out.push(Finding::new(row.root, 0, "in layers.txt, but not there"));
    }
    out
}

/// What all crates hold.
fn found(tree: &Tree, table: &[Layers<'_>]) -> Vec<Found> {
    let mut out = Vec::new();
    for c in tree.crates() {
        for root in ["src/lib.rs", "src/main.rs"] {
            let root = format!("{}/{root}", c.folder);
            if tree.file(&root).is_some() {
                let layers = table.iter().find(|l| l.root == root);
                out.push(one(tree, root, layers));
            }
        }
    }
    out
}

fn one(tree: &Tree, root: String, layers: Option<&Layers<'_>>) -> Found {
    let mut out =
        Found { root, edges: 0, upward: Vec::new(), cycles: Vec::new(), other: Vec::new() };
    let graph = match Graph::read(tree, &out.root) {
        Ok(graph) => graph,
        Err(why) => {
            out.other.push(Finding::new(&out.root, 0, why));
            return out;
        }
    };
    let path = |i: usize| graph.files.get(i).map_or("", String::as_str);
    let floor = |i: usize| layers.and_then(|l| l.of(graph.modules.get(i)?));
    out.edges = graph.edges.len();
    for Edge { from, to, line, name } in &graph.edges {
        if let (Some(a), Some(b)) = (floor(*from), floor(*to))
            && b < a
        {
            let what = format!("`{name}` leads up to {}", path(*to));
            out.upward.push(Finding::new(path(*from), *line, what));
        }
    }
    let named = |c: Vec<usize>| c.into_iter().map(|i| path(i).to_owned()).collect();
    out.cycles = graph.cycles().into_iter().map(named).collect();
    match layers {
        None => {
            out.other.push(Finding::new(&out.root, 0, "this crate has no layers in layers.txt"))
        }
        Some(l) if !l.rows.is_empty() => {
            for i in (0..graph.files.len()).filter(|i| floor(*i).is_none()) {
                let what = "this file is in no layer of its crate in layers.txt";
                out.other.push(Finding::new(path(i), 0, what));
            }
        }
        Some(_) => {}
    }
    out
}

impl Layers<'_> {
    /// The layer of a module, 0 the highest.
    fn of(&self, module: &str) -> Option<usize> {
        let below = |name: &str| match module.strip_prefix(name) {
            Some(rest) => rest.is_empty() || rest.starts_with('/'),
            None => name == "." && module.is_empty(),
        };
        let rows = self.rows.iter().enumerate();
        let named = rows.flat_map(|(row, names)| names.iter().map(move |name| (row, name)));
        named.filter(|(_, name)| below(name)).max_by_key(|(_, name)| name.len()).map(|(row, _)| row)
    }
}

/// Reads the table: a root file at the margin, its rows indented; `#` begins a remark.
fn parse(text: &str) -> Vec<Layers<'_>> {
    let mut out: Vec<Layers<'_>> = Vec::new();
    for line in text.lines().map(|l| l.split('#').next().unwrap_or("")) {
        if line.trim().is_empty() {
        } else if !line.starts_with(' ') {
            out.push(Layers { root: line.trim(), rows: Vec::new() });
        } else if let Some(last) = out.last_mut() {
            last.rows.push(line.split_whitespace().collect());
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{Edge, Graph, TABLE, check, found, one, parse, with_table};
    use crate::tree::{self, Tree};

    const LIB: (&str, &str) = ("c/src/lib.rs", "mod high; mod low; mod side;");

    fn findings(high: &str, low: &str, table: &str) -> Vec<String> {
        let tree = Tree::planted(&[
            ("c/Cargo.toml", "[package]\nname = \"c\"\n"),
            LIB,
            ("c/src/high.rs", high),
            ("c/src/low.rs", low),
            ("c/src/side.rs", "pub struct Side;"),
        ]);
        with_table(&tree, table).into_iter().map(|f| f.to_string()).collect()
    }

    const LAYERS: &str = "c/src/lib.rs\n  .\n  high # and more\n  low side\n";

    #[test]
    fn names_that_lead_down_pass() {
        let none: [&str; 0] = [];
        assert_eq!(
            findings("use crate::low::A;", "pub struct A; use crate::side::Side;", LAYERS),
            none
        );
    }

    #[test]
    fn planted_violations_are_found() {
        let up = "c/src/low.rs:1: `crate::high::B` leads up to c/src/high.rs";
        let found = findings("pub struct B;", "use crate::high::B;", LAYERS);
        assert!(found.contains(&up.to_owned()), "{found:?}");
        let round = findings(
            "use crate::low::A; pub struct B;",
            "pub struct A; use super::high::B;",
            LAYERS,
        );
        assert!(
            round.iter().any(|f| f.contains("in a circle: c/src/high.rs c/src/low.rs")),
            "{round:?}"
        );
        let flat = "c/src/lib.rs\n  . high low side\n";
        assert!(findings("pub struct B;", "use crate::high::B;", flat).is_empty());
        for (table, what) in [
            ("", "has no layers"),
            ("c/src/lib.rs\n .\n high\n low\n", "c/src/side.rs:0: this file is in no layer"),
            ("c/src/lib.rs\n . high low side\nd/src/lib.rs\n", "d/src/lib.rs:0: in layers.txt"),
        ] {
            let found = findings("", "", table);
            assert!(found.iter().any(|f| f.contains(what)), "{table:?}: {found:?}");
        }
    }

    /// In each crate of this project a name that leads up and one that closes a circle are seen.
    #[test]
    fn violations_planted_in_each_crate_are_found() {
        let tree = Tree::read(&tree::root()).expect("the project");
        assert!(check(&tree).is_empty(), "{:?}", check(&tree));
        let table = parse(TABLE);
        for before in found(&tree, &table) {
            let row = table.iter().find(|l| l.root == before.root).expect("its layers");
            let graph = Graph::read(&tree, &before.root).expect("Rust");
            let path = |i: usize| graph.files.get(i).expect("an index of the graph").as_str();
            let module = |i: usize| graph.modules.get(i).expect("an index of the graph").as_str();
            let is_low =
                |e: &&Edge| row.rows.is_empty() || row.of(module(e.from)) < row.of(module(e.to));
            // From what is named back to what names it.
            let low = graph.edges.iter().find(is_low);
            let edge = low.unwrap_or_else(|| panic!("{}: no name leads down", before.root));
            let mut planted = tree.clone();
            let name = format!("crate::{}::*", module(edge.from).replace('/', "::"));
            planted.append(path(edge.to), &format!("use {};", name.replace("::::", "::")));
            let after = one(&planted, before.root.clone(), Some(row));
            assert!(!after.cycles.is_empty(), "{}: {name}", path(edge.to));
            if !row.rows.is_empty() {
                assert!(after.upward.len() > before.upward.len(), "{}: {name}", path(edge.to));
            }
        }
    }
}
