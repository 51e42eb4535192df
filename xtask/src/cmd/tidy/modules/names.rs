//! Where a path leads: the module or the file that defines what it names.

use super::load::{Bound, Program};

/// The target of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Module(usize),
    /// An item of that module; what follows in the path belongs to the item.
    Item(usize),
}

/// How many imports may stand between a name and its item; more is a cycle of imports.
const DEPTH: u8 = 16;

impl Program {
    /// Where a path of a module leads; none if it leaves the crate or names something local.
    pub(super) fn resolve(&self, from: usize, path: &[String]) -> Option<Target> {
        self.follow(from, path, DEPTH)
    }

    /// The file that has what a path leads to.
    pub(super) fn file_of(&self, target: Target) -> Option<usize> {
        let (Target::Module(module) | Target::Item(module)) = target;
        self.modules.get(module).map(|m| m.file)
    }

    fn follow(&self, from: usize, path: &[String], depth: u8) -> Option<Target> {
        let depth = depth.checked_sub(1)?;
        let (first, mut rest) = path.split_first()?;
        let mut at = match first.as_str() {
            "crate" => Target::Module(0),
            "self" => Target::Module(from),
            "super" => Target::Module(self.modules.get(from)?.parent?),
            name => self.lookup(from, name, depth)?,
        };
        while let (Target::Module(module), Some((next, more))) = (at, rest.split_first()) {
            at = match next.as_str() {
                "super" => Target::Module(self.modules.get(module)?.parent?),
                name => self.lookup(module, name, depth)?,
            };
            rest = more;
        }
        Some(at)
    }

    /// A name of a module. A module is preferred to an item of the same name, which cannot have more of a path behind it.
    fn lookup(&self, module: usize, name: &str, depth: u8) -> Option<Target> {
        let this = self.modules.get(module)?;
        let bound = this.names.get(name).into_iter().flatten();
        let mut found = None;
        for bound in bound {
            let target = match bound {
                Bound::Item => Some(Target::Item(module)),
                Bound::Module(child) => Some(Target::Module(*child)),
                Bound::Import(path) => self.follow(module, path, depth),
            };
            if matches!(target, Some(Target::Module(_))) {
                return target;
            }
            found = found.or(target);
        }
        if found.is_some() {
            return found;
        }
        this.globs.iter().find_map(|path| match self.follow(module, path, depth)? {
            Target::Module(other) if other != module => {
                self.lookup(other, name, depth.checked_sub(1)?)
            }
            Target::Module(_) | Target::Item(_) => None,
        })
    }
}
