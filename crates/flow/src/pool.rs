//! Numbered places for values: reserved at the start, touched when they are first needed, used again before new ones are.

use crate::memory::{Ask, Hints};

/// No place.
pub(crate) const NONE: u32 = u32::MAX;

pub(crate) struct Pool<T> {
    items: Vec<T>,
    free: Vec<u32>,
    most: usize,
    /// Places that were taken before the last [`Pool::clear`]: their memory is still there.
    touched: usize,
}

impl<T> Pool<T> {
    /// Room for `most` values.
    pub fn new(most: usize, hints: impl Hints) -> Self {
        Self { items: hints.room(most), free: Vec::new(), most, touched: 0 }
    }

    /// A place for a value; `None` if all are taken.
    #[inline(always)]
    pub fn put(&mut self, value: T) -> Option<u32> {
        if let Some(place) = self.free.pop() {
            self.items[place as usize] = value;
            return Some(place);
        }
        if self.items.len() >= self.most {
            return None;
        }
        self.items.push(value);
        Some(self.items.len() as u32 - 1)
    }

    /// Gives a place back. Its value stays until another takes it.
    #[inline(always)]
    pub fn free(&mut self, place: u32) {
        self.free.push(place);
    }

    /// Gives all places back.
    pub fn clear(&mut self) {
        self.touched = self.touched.max(self.items.len());
        self.items.clear();
        self.free.clear();
    }

    /// Whether there is no place for another value.
    #[inline(always)]
    pub fn is_full(&self) -> bool {
        self.free.is_empty() && self.items.len() >= self.most
    }

    /// How many places were taken at once since the last [`Pool::clear`].
    pub fn len(&self) -> usize {
        self.items.len()
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
