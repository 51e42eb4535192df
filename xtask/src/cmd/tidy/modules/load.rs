//! The files of a crate, parsed, and the modules that they hold.

use std::collections::HashMap;

use syn::visit::Visit;
use syn::{Attribute, Expr, ExprLit, Item, ItemUse, Lit, Meta, UseTree};

use crate::tree::Tree;

/// One parsed file.
pub(super) struct File {
    /// Its path from the project's root.
    pub(super) path: String,
    /// Its items.
    pub(super) items: Vec<Item>,
    /// The module that the file is.
    pub(super) module: usize,
}

/// What a name of a module stands for. A name may stand for several things: types and functions have names of their own, and so
/// have items under different `cfg`s.
#[derive(Clone, Debug)]
pub(super) enum Bound {
    /// An item of this module.
    Item,
    Module(usize),
    /// What that path leads to from this module.
    Import(Vec<String>),
}

/// A module: a file, or an inline module of one.
#[derive(Debug)]
pub(super) struct Module {
    pub(super) file: usize,
    pub(super) parent: Option<usize>,
    /// Its name, after those of its parents below the root.
    pub(super) path: Vec<String>,
    pub(super) names: HashMap<String, Vec<Bound>>,
    /// Paths whose names are all imported.
    pub(super) globs: Vec<Vec<String>>,
}

/// A crate: modules by number, the root first.
#[derive(Default)]
pub(super) struct Program {
    pub(super) files: Vec<File>,
    pub(super) modules: Vec<Module>,
    /// In which file each macro of `macro_rules` is.
    pub(super) macros: HashMap<String, usize>,
}

impl Program {
    /// Reads a crate from its root file on.
    ///
    /// # Errors
    /// Words, for a file that is missing or is no Rust.
    pub(super) fn read(tree: &Tree, root: &str) -> Result<Self, String> {
        let mut out = Self::default();
        let folder = root.rsplit_once('/').map_or("", |(folder, _)| folder);
        out.file(tree, root, folder, None, "")?;
        Ok(out)
    }

    /// Reads one file; its child modules lie in `folder`.
    fn file(
        &mut self,
        tree: &Tree,
        path: &str,
        folder: &str,
        parent: Option<usize>,
        name: &str,
    ) -> Result<usize, String> {
        let text = &tree.file(path).ok_or_else(|| format!("{path}: no such file"))?.text;
        let parsed = syn::parse_file(text).map_err(|e| {
            let at = e.span().start();
            format!("{path}:{}: {e}", at.line)
        })?;
        let file = self.files.len();
        let module = self.module(file, parent, name);
        let items: Vec<Item> = parsed.items.into_iter().filter(|i| !is_test(i)).collect();
        self.files.push(File { path: path.to_owned(), items: Vec::new(), module });
        self.items(tree, &items, module, path, folder)?;
        if let Some(file) = self.files.get_mut(file) {
            file.items = items;
        }
        Ok(module)
    }

    fn module(&mut self, file: usize, parent: Option<usize>, name: &str) -> usize {
        let above = parent.and_then(|p| self.modules.get(p)).map_or(&[][..], |p| &p.path);
        let own = parent.map(|_| name.to_owned());
        let path = above.iter().cloned().chain(own).collect();
        self.modules.push(Module { file, parent, path, names: HashMap::new(), globs: Vec::new() });
        self.modules.len().saturating_sub(1)
    }

    fn items(
        &mut self,
        tree: &Tree,
        items: &[Item],
        module: usize,
        path: &str,
        folder: &str,
    ) -> Result<(), String> {
        for item in items.iter().filter(|i| !is_test(i)) {
            match item {
                Item::Mod(m) => {
                    let name = m.ident.to_string();
                    let below = format!("{folder}/{name}");
                    let child = if let Some((_, inner)) = &m.content {
                        let file = self.modules.get(module).map_or(0, |m| m.file);
                        let child = self.module(file, Some(module), &name);
                        self.items(tree, inner, child, path, &below)?;
                        child
                    } else {
                        let (at, folder) = place(tree, &m.attrs, path, folder, &name)?;
                        self.file(tree, &at, &folder, Some(module), &name)?
                    };
                    self.bind(module, &name, Bound::Module(child));
                }
                Item::Use(u) => self.import(module, &mut Vec::new(), &u.tree),
                Item::Macro(m) => {
                    if let Some(name) = &m.ident {
                        let file = self.modules.get(module).map_or(0, |m| m.file);
                        self.macros.insert(name.to_string(), file);
                        self.bind(module, &name.to_string(), Bound::Item);
                    }
                }
                other => {
                    for name in names(other) {
                        self.bind(module, &name, Bound::Item);
                    }
                    let mut within = Within::default();
                    within.visit_item(other);
                    for tree in &within.0 {
                        self.import(module, &mut Vec::new(), tree);
                    }
                }
            }
        }
        Ok(())
    }

    fn bind(&mut self, module: usize, name: &str, bound: Bound) {
        if let Some(module) = self.modules.get_mut(module) {
            module.names.entry(name.to_owned()).or_default().push(bound);
        }
    }

    /// Binds what a `use` brings into a module.
    fn import(&mut self, module: usize, head: &mut Vec<String>, tree: &UseTree) {
        for (path, name) in imports(head, tree) {
            match name {
                Some(name) => self.bind(module, &name, Bound::Import(path)),
                None => {
                    if let Some(module) = self.modules.get_mut(module) {
                        module.globs.push(path);
                    }
                }
            }
        }
    }
}

/// What the bodies of an item import. Their names count as the module's.
#[derive(Default)]
struct Within(Vec<UseTree>);

impl<'ast> Visit<'ast> for Within {
    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        self.0.push(item.tree.clone());
    }
}

/// The paths of a `use`, each with the name that it gets here; none for a glob.
pub(super) fn imports(
    head: &mut Vec<String>,
    tree: &UseTree,
) -> Vec<(Vec<String>, Option<String>)> {
    let mut out = Vec::new();
    match tree {
        UseTree::Path(p) => {
            head.push(p.ident.to_string());
            out = imports(head, &p.tree);
            head.pop();
        }
        UseTree::Name(n) if n.ident == "self" => {
            out.push((head.clone(), head.last().cloned()));
        }
        UseTree::Name(n) => {
            let name = n.ident.to_string();
            let path = head.iter().cloned().chain([name.clone()]).collect();
            out.push((path, Some(name)));
        }
        UseTree::Rename(r) => {
            let mut path = head.clone();
            if r.ident != "self" {
                path.push(r.ident.to_string());
            }
            out.push((path, Some(r.rename.to_string())));
        }
        UseTree::Glob(_) => out.push((head.clone(), None)),
        UseTree::Group(g) => {
            for tree in &g.items {
                out.extend(imports(head, tree));
            }
        }
    }
    out
}

/// The file of `mod name;` and the folder of its children.
fn place(
    tree: &Tree,
    attrs: &[Attribute],
    from: &str,
    folder: &str,
    name: &str,
) -> Result<(String, String), String> {
    let given = attrs.iter().find_map(|a| match &a.meta {
        Meta::NameValue(v) if v.path.is_ident("path") => match &v.value {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    });
    if let Some(given) = given {
        let base = from.rsplit_once('/').map_or("", |(base, _)| base);
        let at = joined(base, &given);
        let below = at.rsplit_once('/').map_or("", |(below, _)| below).to_owned();
        return Ok((at, below));
    }
    let below = format!("{folder}/{name}");
    let tried = [format!("{below}.rs"), format!("{below}/mod.rs")];
    let found = tried.iter().find(|path| tree.file(path).is_some());
    found
        .map(|path| (path.clone(), below))
        .ok_or_else(|| format!("{from}: `mod {name};` has no file"))
}

/// A path relative to a folder, without `..`.
fn joined(folder: &str, path: &str) -> String {
    let mut out: Vec<&str> = folder.split('/').collect();
    for part in path.split('/') {
        match part {
            ".." => drop(out.pop()),
            "." => {}
            part => out.push(part),
        }
    }
    out.join("/")
}

/// The names that an item defines.
fn names(item: &Item) -> Vec<String> {
    let name = match item {
        Item::Const(i) => &i.ident,
        Item::Enum(i) => &i.ident,
        Item::Fn(i) => &i.sig.ident,
        Item::Static(i) => &i.ident,
        Item::Struct(i) => &i.ident,
        Item::Trait(i) => &i.ident,
        Item::Type(i) => &i.ident,
        Item::Union(i) => &i.ident,
        _ => return Vec::new(),
    };
    vec![name.to_string()]
}

/// Whether an item is compiled for tests alone.
pub(super) fn is_test(item: &Item) -> bool {
    let attrs = match item {
        Item::Const(i) => &i.attrs,
        Item::Enum(i) => &i.attrs,
        Item::Fn(i) => &i.attrs,
        Item::Impl(i) => &i.attrs,
        Item::Macro(i) => &i.attrs,
        Item::Mod(i) => &i.attrs,
        Item::Static(i) => &i.attrs,
        Item::Struct(i) => &i.attrs,
        Item::Trait(i) => &i.attrs,
        Item::Type(i) => &i.attrs,
        Item::Use(i) => &i.attrs,
        _ => return false,
    };
    attrs.iter().any(is_cfg_test)
}

/// `cfg(test)`, or `cfg(all(.., test, ..))`.
fn is_cfg_test(attr: &Attribute) -> bool {
    let Meta::List(list) = &attr.meta else {
        return false;
    };
    let text = list.tokens.to_string();
    list.path.is_ident("cfg")
        && (text == "test"
            || text.starts_with("all")
                && text.split([',', '(', ')']).any(|word| word.trim() == "test"))
}
