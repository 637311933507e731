//! Pools of values that are addressed by index. A pool reserves address space at the start, and the kernel allocates
//! memory when a slot is first used. A freed slot is reused before a new slot is used.

use base::memory::{Hints, HintsExt};

/// The index that stands for no slot.
pub(crate) const NONE: u32 = u32::MAX;

pub(crate) struct Pool<T> {
    /// The values of the slots. The slots from the index `used` on are not in use.
    items: Vec<T>,
    used: usize,
    free: Vec<u32>,
    most: usize,
    /// Number of slots that were used before the last [`Pool::clear`]; their memory remains allocated.
    touched: usize,
}

/// Number of slots that the pool initialises together.
const BLOCK: usize = 64;

impl<T: Default> Pool<T> {
    /// A pool for at most `most` values.
    pub fn new(most: usize, hints: impl Hints) -> Self {
        Self { items: hints.reserve(most), used: 0, free: Vec::new(), most, touched: 0 }
    }

    /// Allocates a slot and returns its index and its old value, to be overwritten; `None` if all slots are in use.
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

    /// The probable address of the slot of a later allocation, after `after` other allocations.
    #[inline(always)]
    pub fn upcoming(&self, after: usize) -> *const T {
        match self.free.len().checked_sub(after + 1) {
            Some(at) => &self.items[self.free[at] as usize],
            None => self.items.as_ptr().wrapping_add(self.used + after),
        }
    }

    /// The address that a slot has or would have; the slot need not be allocated.
    #[inline(always)]
    pub fn address(&self, place: u32) -> *const T {
        self.items.as_ptr().wrapping_add(place as usize)
    }

    /// Stores a value and returns its index; `None` if all slots are in use.
    #[inline(always)]
    pub fn put(&mut self, value: T) -> Option<u32> {
        let (place, item) = self.place()?;
        *item = value;
        Some(place)
    }

    /// Initialises further slots; false if the pool has reached its limit.
    #[cold]
    #[inline(never)]
    fn grow(&mut self) -> bool {
        self.items.resize_with((self.used + BLOCK).min(self.most), T::default);
        self.used < self.items.len()
    }

    /// Frees a slot. The slot's value remains readable until the slot is allocated again.
    #[inline(always)]
    pub fn free(&mut self, place: u32) {
        self.free.push(place);
    }

    /// All slots allocated since the last [`Pool::clear`], including freed slots.
    pub fn taken(&self) -> impl Iterator<Item = (u32, &T)> {
        self.items[..self.used].iter().enumerate().map(|(place, item)| (place as u32, item))
    }

    /// Frees all slots.
    pub fn clear(&mut self) {
        if std::mem::needs_drop::<T>() {
            self.touched = self.touched.max(self.items.len());
            self.items.clear();
        }
        self.used = 0;
        self.free.clear();
    }

    /// True if all slots are in use.
    #[inline(always)]
    pub fn is_full(&self) -> bool {
        self.free.is_empty() && self.used >= self.most
    }

    /// The number of slots allocated since the last [`Pool::clear`], including freed slots.
    pub fn len(&self) -> usize {
        self.used
    }

    /// Bytes of the slots in use and of the list of free slots.
    pub fn held(&self) -> usize {
        (self.used - self.free.len()) * size_of::<T>() + self.free.capacity() * size_of::<u32>()
    }

    /// Bytes touched so far.
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
