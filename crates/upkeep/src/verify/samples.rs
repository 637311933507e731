//! A sample of a sequence whose length is not known in advance.

/// Maximum number of samples.
const MAX: usize = 64;

/// Evenly spaced items of a sequence, from its first item on: at most [`MAX`], and at least half as many if the
/// sequence has [`MAX`] items or more.
pub(super) struct Samples<T> {
    items: Vec<T>,
    /// Number of items offered so far.
    offered: usize,
    /// Each item whose number is a multiple of this value is a sample.
    stride: usize,
}

impl<T> Default for Samples<T> {
    fn default() -> Self {
        Self { items: Vec::new(), offered: 0, stride: 1 }
    }
}

impl<T> Samples<T> {
    /// Takes the next item of the sequence if its turn has come. If the list is full, the distance between the samples
    /// doubles, and every second sample is removed.
    pub fn offer(&mut self, item: T) {
        let number = self.offered;
        self.offered += 1;
        if !number.is_multiple_of(self.stride) {
            return;
        }
        if self.items.len() == MAX {
            let mut keep = [true, false].into_iter().cycle();
            self.items.retain(|_| keep.next().unwrap_or(true));
            self.stride *= 2;
        }
        // The number of the item that finds a full list is a multiple of the new distance too, because the list has an
        // even number of items.
        self.items.push(item);
    }

    /// The samples, in the order of the sequence.
    pub fn items(&self) -> &[T] {
        &self.items
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_evenly_spaced_over_the_whole_sequence() {
        for len in (0..300).chain([1000, 4095, 4096, 4097, 100_000]) {
            let mut samples = Samples::default();
            (0..len).for_each(|item| samples.offer(item));
            let items = samples.items();
            assert!(items.len() <= MAX && items.len() >= len.min(MAX / 2), "{} samples of {len}", items.len());
            let distance = items.get(1).map_or(1, |second| second - items[0]);
            assert!(items.iter().enumerate().all(|(i, item)| *item == i * distance), "{len}: {items:?}");
            assert!(items.last().is_none_or(|last| len - last <= distance), "{len}: {items:?}");
        }
    }
}
