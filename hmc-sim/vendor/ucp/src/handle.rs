//! Names of objects: what a caller holds is a number with the look of a pointer, and never one.
//!
//! From low to high: 4 bits of kind, 20 of place, 24 of generation, 12 of the worker that the object belongs to. A name
//! of something that was destroyed, or of another kind, finds nothing, and no memory is read to see it.

const PLACE_BITS: usize = 20;
const GENERATION_BITS: usize = 24;
const OWNER_BITS: usize = 12;
/// Workers at a time, so that a name can hold one's place.
pub(crate) const MAX_WORKERS: usize = 1 << OWNER_BITS;

/// What a name names.
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

/// A name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Handle(pub(crate) usize);

impl Handle {
    /// What no object is named.
    pub(crate) const NONE: Self = Self(0);

    pub(crate) fn of<T>(pointer: *const T) -> Self {
        Self(pointer.addr())
    }

    pub(crate) const fn pointer<T>(self) -> *mut T {
        core::ptr::without_provenance_mut(self.0)
    }

    /// The place of the worker that the object belongs to.
    pub(crate) const fn owner(self) -> usize {
        (self.0 >> (4 + PLACE_BITS + GENERATION_BITS)) & (MAX_WORKERS - 1)
    }

    pub(crate) const fn place(self) -> usize {
        (self.0 >> 4) & ((1 << PLACE_BITS) - 1)
    }

    const fn generation(self) -> usize {
        (self.0 >> (4 + PLACE_BITS)) & ((1 << GENERATION_BITS) - 1)
    }
}

#[derive(Debug)]
struct Place<T> {
    generation: usize,
    owner: usize,
    value: Option<T>,
}

/// All objects of one kind.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    kind: Kind,
    places: Vec<Place<T>>,
    free: Vec<usize>,
}

impl<T> Slab<T> {
    pub(crate) const fn new(kind: Kind) -> Self {
        Self { kind, places: Vec::new(), free: Vec::new() }
    }

    /// Takes a value in and names it.
    pub(crate) fn insert(&mut self, owner: usize, value: T) -> Handle {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place { generation: 0, owner: 0, value: None });
            // Room for all to come back: giving one back allocates nothing.
            self.free.reserve(self.places.len());
            self.places.len() - 1
        });
        assert!(place < 1 << PLACE_BITS, "too many objects of a kind");
        let at = &mut self.places[place];
        at.value = Some(value);
        let owner = if self.kind == Kind::Worker { place } else { owner };
        assert!(owner < MAX_WORKERS, "too many workers");
        at.owner = owner;
        let high = owner << GENERATION_BITS | at.generation;
        Handle(high << (4 + PLACE_BITS) | place << 4 | self.kind as usize)
    }

    fn at(&self, name: Handle) -> Option<usize> {
        let place = self.places.get(name.place())?;
        let fits = name.0 & 15 == self.kind as usize && place.generation == name.generation();
        (fits && place.value.is_some()).then_some(name.place())
    }

    pub(crate) fn get(&self, name: Handle) -> Option<&T> {
        self.places[self.at(name)?].value.as_ref()
    }

    pub(crate) fn get_mut(&mut self, name: Handle) -> Option<&mut T> {
        let at = self.at(name)?;
        self.places[at].value.as_mut()
    }

    /// Forgets an object; its name finds nothing from now on.
    pub(crate) fn remove(&mut self, name: Handle) -> Option<T> {
        let at = self.at(name)?;
        let place = &mut self.places[at];
        place.generation = (place.generation + 1) & ((1 << GENERATION_BITS) - 1);
        self.free.push(at);
        place.value.take()
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.places.iter_mut().filter_map(|p| p.value.as_mut())
    }

    /// Places, empty ones too.
    pub(crate) const fn places(&self) -> usize {
        self.places.len()
    }

    /// The name of the object at a place.
    pub(crate) fn name(&self, place: usize) -> Option<Handle> {
        let p = self.places.get(place).filter(|p| p.value.is_some())?;
        let high = p.owner << GENERATION_BITS | p.generation;
        Some(Handle(high << (4 + PLACE_BITS) | place << 4 | self.kind as usize))
    }

    /// The names of all objects.
    pub(crate) fn names(&self) -> impl Iterator<Item = Handle> {
        (0..self.places()).filter_map(|place| self.name(place))
    }

    pub(crate) fn live(&self) -> usize {
        self.places.iter().filter(|p| p.value.is_some()).count()
    }

    /// Forgets all objects.
    pub(crate) fn clear(&mut self) {
        for (at, place) in self.places.iter_mut().enumerate() {
            if place.value.take().is_some() {
                place.generation = (place.generation + 1) & ((1 << GENERATION_BITS) - 1);
                self.free.push(at);
            }
        }
    }
}
