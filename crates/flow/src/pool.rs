//! Numbered places for values: reserved at the start, touched when they are first needed, used again before new ones are.

use crate::memory::{Hints, HintsExt};

/// No place.
pub(crate) const NONE: u32 = u32::MAX;

pub(crate) struct Pool<T> {
    /// Those beyond `used` are nobody's.
    items: Vec<T>,
    used: usize,
    free: Vec<u32>,
    most: usize,
    /// Places that were made before the last [`Pool::clear`]: their memory is still there.
    touched: usize,
}

/// Places that are made at once.
const BLOCK: usize = 64;

impl<T: Default> Pool<T> {
    /// Room for `most` values.
    pub fn new(most: usize, hints: impl Hints) -> Self {
        Self { items: hints.reserve(most), used: 0, free: Vec::new(), most, touched: 0 }
    }

    /// A place for a value, and what lies there, to be written over; `None` if all are taken.
    #[inline(always)]
    pub fn place(&mut self) -> Option<(u32, &mut T)> {
        let place = match self.free.pop() {
            Some(place) => place as usize,
            None => {
                if self.used == self.items.len() && !self.grow() {
                    return None;
                }
                self.used += 1;
                self.used - 1
            }
        };
        Some((place as u32, &mut self.items[place]))
    }

    /// Where the value will lie, probably, for which a place is asked after so many others.
    #[inline(always)]
    pub fn upcoming(&self, after: usize) -> *const T {
        match self.free.len().checked_sub(after + 1) {
            Some(at) => &self.items[self.free[at] as usize],
            None => self.items.as_ptr().wrapping_add(self.used + after),
        }
    }

    /// Where the value of a place lies, if there is one.
    #[inline(always)]
    pub fn address(&self, place: u32) -> *const T {
        self.items.as_ptr().wrapping_add(place as usize)
    }

    /// A place for a value; `None` if all are taken.
    #[inline(always)]
    pub fn put(&mut self, value: T) -> Option<u32> {
        let (place, item) = self.place()?;
        *item = value;
        Some(place)
    }

    /// Makes some more places, if there may be more.
    #[cold]
    #[inline(never)]
    fn grow(&mut self) -> bool {
        self.items.resize_with((self.used + BLOCK).min(self.most), T::default);
        self.used < self.items.len()
    }

    /// Gives a place back. Its value stays until another takes it.
    #[inline(always)]
    pub fn free(&mut self, place: u32) {
        self.free.push(place);
    }

    /// All places that were taken since the last [`Pool::clear`], those given back included.
    pub fn taken(&self) -> impl Iterator<Item = (u32, &T)> {
        self.items[..self.used].iter().enumerate().map(|(place, item)| (place as u32, item))
    }

    /// Gives all places back.
    pub fn clear(&mut self) {
        if std::mem::needs_drop::<T>() {
            self.touched = self.touched.max(self.items.len());
            self.items.clear();
        }
        self.used = 0;
        self.free.clear();
    }

    /// Whether there is no place for another value.
    #[inline(always)]
    pub fn is_full(&self) -> bool {
        self.free.is_empty() && self.used >= self.most
    }

    /// How many places were taken at once since the last [`Pool::clear`].
    pub fn len(&self) -> usize {
        self.used
    }

    /// Bytes of the places that are taken, and of the list of those that are not.
    pub fn held(&self) -> usize {
        (self.used - self.free.len()) * size_of::<T>() + self.free.capacity() * size_of::<u32>()
    }

    /// Bytes that were ever touched.
    pub fn bytes(&self) -> usize {
        self.items.len().max(self.touched) * size_of::<T>() + self.free.capacity() * size_of::<u32>()
    }
}

impl<T> std::ops::Index<u32> for Pool<T> {
    type Output = T;

    #[inline(always)]
    fn index(&self, place: u32) -> &T {
        &self.items[place as usize]
    }
}

impl<T> std::ops::IndexMut<u32> for Pool<T> {
    #[inline(always)]
    fn index_mut(&mut self, place: u32) -> &mut T {
        &mut self.items[place as usize]
    }
}
