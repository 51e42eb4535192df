//! A table of objects of one kind. A caller has a pointer to a C structure, whose address is the name of the object.
//!
//! The structures are never freed and their addresses not reused: a stale pointer is found by its address, and the
//! inline calls of `infiniband/verbs.h`, which read `context` out of a destroyed object, still arrive here.

use std::collections::BTreeMap;

/// The number of an object. It is not reused; 0 is none.
pub(crate) type Id = u32;

/// All objects of one kind.
#[derive(Debug)]
pub(crate) struct Table<T> {
    /// What messages call the objects.
    pub(crate) kind: &'static str,
    last: Id,
    ids: BTreeMap<usize, Id>,
    items: BTreeMap<Id, (usize, T)>,
}

impl<T> Table<T> {
    pub(crate) const fn new(kind: &'static str) -> Self {
        Self { kind, last: 0, ids: BTreeMap::new(), items: BTreeMap::new() }
    }

    /// The number that the next object will have.
    pub(crate) const fn next_id(&self) -> Id {
        self.last + 1
    }

    /// Inserts the object of a C structure, whose memory is never freed, and returns its number.
    pub(crate) fn insert<C>(&mut self, structure: *const C, value: T) -> Id {
        self.last += 1;
        self.ids.insert(structure.addr(), self.last);
        self.items.insert(self.last, (structure.addr(), value));
        self.last
    }

    /// Returns the number of the object of a C structure, if it is alive.
    pub(crate) fn id<C>(&self, structure: *const C) -> Option<Id> {
        self.ids.get(&structure.addr()).copied()
    }

    pub(crate) fn get(&self, id: Id) -> Option<&T> {
        self.items.get(&id).map(|(_, value)| value)
    }

    pub(crate) fn get_mut(&mut self, id: Id) -> Option<&mut T> {
        self.items.get_mut(&id).map(|(_, value)| value)
    }

    /// Removes an object; pointers to its structure find nothing from now on.
    pub(crate) fn remove(&mut self, id: Id) -> Option<T> {
        let (address, value) = self.items.remove(&id)?;
        self.ids.remove(&address);
        Some(value)
    }

    /// All objects in the order in which they were made.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Id, &T)> {
        self.items.iter().map(|(id, (_, value))| (*id, value))
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.items.values().map(|(_, value)| value)
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.items.values_mut().map(|(_, value)| value)
    }

    pub(crate) fn live(&self) -> usize {
        self.items.len()
    }

    /// Removes all objects.
    pub(crate) fn clear(&mut self) {
        self.ids.clear();
        self.items.clear();
    }
}
