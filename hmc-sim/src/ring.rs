//! A first-in first-out queue of fixed size, allocated once.

/// At most as many values as it was made for.
#[derive(Debug)]
pub(crate) struct Ring<T> {
    places: Box<[T]>,
    head: usize,
    len: usize,
}

impl<T: Copy> Ring<T> {
    /// A ring for at least `capacity` values, rounded up to a power of two.
    pub(crate) fn new(capacity: usize, empty: T) -> Self {
        Self { places: vec![empty; capacity.next_power_of_two()].into(), head: 0, len: 0 }
    }

    #[inline]
    fn place(&self, at: usize) -> usize {
        // The capacity is a power of two.
        self.head.wrapping_add(at) & self.places.len().wrapping_sub(1)
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.len == self.places.len()
    }

    /// Appends; returns the value if the ring is full.
    #[inline]
    pub(crate) fn push(&mut self, value: T) -> Result<(), T> {
        if self.is_full() {
            return Err(value);
        }
        let at = self.place(self.len);
        if let Some(place) = self.places.get_mut(at) {
            *place = value;
            // Cannot wrap: it was below the ring's size.
            self.len = self.len.wrapping_add(1);
        }
        Ok(())
    }

    /// Takes the oldest.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<T> {
        self.len = self.len.checked_sub(1)?;
        let value = self.places.get(self.head).copied();
        self.head = self.place(1);
        value
    }

    /// From the oldest to the newest.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        (0..self.len).filter_map(|at| self.places.get(self.place(at)))
    }
}

#[cfg(test)]
mod tests {
    use super::Ring;
    use std::collections::VecDeque;

    #[test]
    fn it_behaves_as_a_bounded_deque() {
        let mut rng = crate::rng::Rng::new(5);
        let (mut ring, mut model) = (Ring::new(4, 0u64), VecDeque::new());
        for n in 0..2000 {
            if rng.below(2) == 0 {
                let want = if model.len() == 4 { Err(n) } else { Ok(()) };
                assert_eq!(ring.push(n), want);
                if want.is_ok() {
                    model.push_back(n);
                }
            } else {
                assert_eq!(ring.pop(), model.pop_front());
            }
            assert!(ring.iter().eq(model.iter()));
            assert_eq!((ring.len(), ring.is_full()), (model.len(), model.len() == 4));
        }
    }
}
