//! Handles of objects: a caller has a number in the form of a pointer, never a pointer.
//!
//! From low to high: 4 bits of kind, 20 of index, 24 of generation, 12 of the worker that the object belongs to. A handle
//! of a destroyed object, or of another kind, finds nothing, and the check reads no memory behind it.

const INDEX_BITS: usize = 20;
const GENERATION_BITS: usize = 24;
const OWNER_BITS: usize = 12;
/// Maximum number of workers: a handle has a worker's index.
pub(crate) const MAX_WORKERS: usize = 1 << OWNER_BITS;

/// The kind of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Context = 1,
    Config = 2,
    Worker = 3,
    Endpoint = 4,
    Memory = 5,
    Key = 6,
    Request = 7,
}

/// A handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Handle(pub(crate) usize);

impl Handle {
    /// The handle of no object.
    pub(crate) const NONE: Self = Self(0);

    pub(crate) fn of<T>(pointer: *const T) -> Self {
        Self(pointer.addr())
    }

    pub(crate) const fn pointer<T>(self) -> *mut T {
        core::ptr::without_provenance_mut(self.0)
    }

    /// The index of the worker that the object belongs to.
    pub(crate) const fn owner(self) -> usize {
        (self.0 >> (4 + INDEX_BITS + GENERATION_BITS)) & (MAX_WORKERS - 1)
    }

    pub(crate) const fn index(self) -> usize {
        (self.0 >> 4) & ((1 << INDEX_BITS) - 1)
    }

    const fn generation(self) -> usize {
        (self.0 >> (4 + INDEX_BITS)) & ((1 << GENERATION_BITS) - 1)
    }
}

#[derive(Debug)]
struct Slot<T> {
    generation: usize,
    owner: usize,
    value: Option<T>,
}

/// All objects of one kind.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    kind: Kind,
    slots: Vec<Slot<T>>,
    free: Vec<usize>,
}

impl<T> Slab<T> {
    pub(crate) const fn new(kind: Kind) -> Self {
        Self { kind, slots: Vec::new(), free: Vec::new() }
    }

    /// Inserts a value and returns its handle.
    pub(crate) fn insert(&mut self, owner: usize, value: T) -> Handle {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, owner: 0, value: None });
            // Capacity for all entries: `remove` does not allocate.
            self.free.reserve(self.slots.len());
            self.slots.len() - 1
        });
        assert!(index < 1 << INDEX_BITS, "too many objects of a kind");
        let at = &mut self.slots[index];
        at.value = Some(value);
        let owner = if self.kind == Kind::Worker { index } else { owner };
        assert!(owner < MAX_WORKERS, "too many workers");
        at.owner = owner;
        let high = owner << GENERATION_BITS | at.generation;
        Handle(high << (4 + INDEX_BITS) | index << 4 | self.kind as usize)
    }

    fn at(&self, name: Handle) -> Option<usize> {
        let index = self.slots.get(name.index())?;
        let fits = name.0 & 15 == self.kind as usize && index.generation == name.generation();
        (fits && index.value.is_some()).then_some(name.index())
    }

    pub(crate) fn get(&self, name: Handle) -> Option<&T> {
        self.slots[self.at(name)?].value.as_ref()
    }

    pub(crate) fn get_mut(&mut self, name: Handle) -> Option<&mut T> {
        let at = self.at(name)?;
        self.slots[at].value.as_mut()
    }

    /// Removes an object; its handle finds nothing from now on.
    pub(crate) fn remove(&mut self, name: Handle) -> Option<T> {
        let at = self.at(name)?;
        let index = &mut self.slots[at];
        index.generation = (index.generation + 1) & ((1 << GENERATION_BITS) - 1);
        self.free.push(at);
        index.value.take()
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().filter_map(|p| p.value.as_mut())
    }

    /// Number of slots, including empty ones.
    pub(crate) const fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns the handle of the object in a slot.
    pub(crate) fn name(&self, index: usize) -> Option<Handle> {
        let p = self.slots.get(index).filter(|p| p.value.is_some())?;
        let high = p.owner << GENERATION_BITS | p.generation;
        Some(Handle(high << (4 + INDEX_BITS) | index << 4 | self.kind as usize))
    }

    /// Returns the handles of all objects.
    pub(crate) fn names(&self) -> impl Iterator<Item = Handle> {
        (0..self.len()).filter_map(|index| self.name(index))
    }

    pub(crate) fn live(&self) -> usize {
        self.slots.iter().filter(|p| p.value.is_some()).count()
    }

    /// Removes all objects.
    pub(crate) fn clear(&mut self) {
        for (at, index) in self.slots.iter_mut().enumerate() {
            if index.value.take().is_some() {
                index.generation = (index.generation + 1) & ((1 << GENERATION_BITS) - 1);
                self.free.push(at);
            }
        }
    }
}
