//! Numbers of a block, one behind the other in as few bytes as the widest of them needs above the least.
//!
//! A strip is a byte that says the width (0, 1, 2, 4 or 8) and whether a base follows, that base, and the numbers. How many
//! there are is known beside it. There is no branch that depends on a value, and each loop is one over slices.
//! [`Narrow`] is many strips as one that any of its numbers can be taken from.

/// In the first byte of a strip: a base follows.
const HAS_BASE: u8 = 0x80;

/// Writes so many numbers, each read by `at`.
#[inline]
pub fn write<T: Copy>(values: &[T], number: impl Fn(T) -> i64, out: &mut Vec<u8>) {
    let Some(first) = values.first().map(|value| number(*value)) else {
        out.push(0);
        return;
    };
    let ends = values.iter().fold((first, first), |(least, most), value| {
        let value = number(*value);
        (least.min(value), most.max(value))
    });
    let width = width(ends.1.wrapping_sub(ends.0) as u64);
    // Without a base where it saves nothing.
    let base = if ends.0 >= 0 && self::width(ends.1 as u64) == width { 0 } else { ends.0 };
    out.push(width as u8 | if base == 0 { 0 } else { HAS_BASE });
    if base != 0 {
        out.extend_from_slice(&base.to_le_bytes());
    }
    let above = |value: &T| number(*value).wrapping_sub(base);
    let begin = out.len();
    match width {
        0 => {}
        1 => out.extend(values.iter().map(|value| above(value) as u8)),
        2 => {
            out.resize(begin + 2 * values.len(), 0);
            let room = out[begin..].as_chunks_mut().0;
            room.iter_mut().zip(values).for_each(|(room, value)| *room = (above(value) as u16).to_le_bytes());
        }
        4 => {
            out.resize(begin + 4 * values.len(), 0);
            let room = out[begin..].as_chunks_mut().0;
            room.iter_mut().zip(values).for_each(|(room, value)| *room = (above(value) as u32).to_le_bytes());
        }
        _ => {
            out.resize(begin + 8 * values.len(), 0);
            let room = out[begin..].as_chunks_mut().0;
            room.iter_mut().zip(values).for_each(|(room, value)| *room = above(value).to_le_bytes());
        }
    }
}

/// Bytes that a number takes, as far as there is a loop for it.
fn width(most: u64) -> usize {
    match most {
        0 => 0,
        1..0x100 => 1,
        0x100..0x1_0000 => 2,
        0x1_0000..0x1_0000_0000 => 4,
        _ => 8,
    }
}

/// A strip where it lies.
#[derive(Clone, Copy)]
pub struct Strip<'a> {
    base: i64,
    width: usize,
    count: usize,
    bytes: &'a [u8],
}

impl<'a> Strip<'a> {
    /// Takes one of so many numbers from the beginning of `bytes`; `None` if that is none.
    pub fn take(bytes: &mut &'a [u8], count: usize) -> Option<Self> {
        let head = *bytes.split_off_first()?;
        let width = usize::from(head & !HAS_BASE);
        let base = if head & HAS_BASE == 0 { 0 } else { i64::from_le_bytes(*bytes.split_off(..8)?.first_chunk()?) };
        if !matches!(width, 0 | 1 | 2 | 4 | 8) {
            return None;
        }
        Some(Self { base, width, count, bytes: bytes.split_off(..width.checked_mul(count)?)? })
    }

    /// The number that all are, if that is known without looking.
    pub fn same(&self) -> Option<i64> {
        (self.width == 0).then_some(self.base)
    }

    /// Each of them.
    pub fn each(&self, mut each: impl FnMut(i64)) {
        match self.width {
            0 => (0..self.count).for_each(|_| each(self.base)),
            1 => self.bytes.iter().for_each(|byte| each(self.base.wrapping_add(i64::from(*byte)))),
            2 => words(self.bytes, |b| u64::from(u16::from_le_bytes(b)), |n| each(self.base.wrapping_add(n as i64))),
            4 => words(self.bytes, |b| u64::from(u32::from_le_bytes(b)), |n| each(self.base.wrapping_add(n as i64))),
            _ => words(self.bytes, u64::from_le_bytes, |n| each(self.base.wrapping_add(n as i64))),
        }
    }

    /// The greatest that there can be in it, above the base.
    fn reach(&self) -> u64 {
        match self.width {
            0 => 0,
            1 => 0xff,
            2 => 0xffff,
            4 => 0xffff_ffff,
            _ => u64::MAX,
        }
    }
}

#[inline]
fn words<const N: usize>(bytes: &[u8], word: impl Fn([u8; N]) -> u64, mut each: impl FnMut(u64)) {
    bytes.as_chunks().0.iter().for_each(|bytes| each(word(*bytes)));
}

/// Which rows of a block have a number.
#[derive(Clone, Copy)]
pub enum There<'a> {
    /// So many, and all have.
    All(usize),
    /// So many, and none has.
    None(usize),
    /// Those with a 1.
    Some(&'a [u8]),
}

impl<'a> There<'a> {
    /// Of a strip that says 0 or 1 of each row; `None` if it says anything else.
    pub fn of(strip: Strip<'a>) -> Option<Self> {
        match (strip.same(), strip.width, strip.base) {
            (Some(0), ..) => Some(Self::None(strip.count)),
            (Some(1), ..) => Some(Self::All(strip.count)),
            (None, 1, 0) if strip.bytes.iter().all(|byte| *byte <= 1) => Some(Self::Some(strip.bytes)),
            _ => None,
        }
    }

    /// How many have one.
    pub fn count(&self) -> usize {
        match self {
            Self::All(rows) => *rows,
            Self::None(_) => 0,
            Self::Some(rows) => rows.iter().map(|one| usize::from(*one)).sum(),
        }
    }
}

/// Numbers, by their places, as wide as the widest: those of many strips. Where there is none it is any.
pub enum Narrow {
    /// The same everywhere.
    Same(i64),
    /// Above this base.
    Bytes(i64, Vec<u8>),
    /// Of two bytes.
    Shorts(i64, Vec<u16>),
    /// Of four.
    Ints(i64, Vec<u32>),
    /// Of eight.
    Longs(i64, Vec<u64>),
}

impl Narrow {
    /// These strips, one behind the other.
    pub fn of(strips: &[(Strip<'_>, There<'_>)]) -> Self {
        let some = || strips.iter().filter(|(strip, _)| strip.count > 0).map(|(strip, _)| strip);
        let Some(base) = some().map(|strip| strip.base).min() else { return Self::Same(0) };
        let reach = |strip: &Strip<'_>| (strip.base.wrapping_sub(base) as u64).saturating_add(strip.reach());
        match width(some().map(reach).max().unwrap_or(0)) {
            0 => Self::Same(base),
            1 => Self::Bytes(base, spread(strips, base, |n| n as u8)),
            2 => Self::Shorts(base, spread(strips, base, |n| n as u16)),
            4 => Self::Ints(base, spread(strips, base, |n| n as u32)),
            _ => Self::Longs(base, spread(strips, base, |n| n)),
        }
    }

    /// The one at this place, which must be one.
    pub fn at(&self, place: usize) -> i64 {
        match self {
            Self::Same(value) => *value,
            Self::Bytes(base, all) => base.wrapping_add(i64::from(all[place])),
            Self::Shorts(base, all) => base.wrapping_add(i64::from(all[place])),
            Self::Ints(base, all) => base.wrapping_add(i64::from(all[place])),
            Self::Longs(base, all) => base.wrapping_add(all[place] as i64),
        }
    }

    /// Those at these places, in their order.
    #[inline]
    pub fn gather<T: Clone>(&self, places: &[u32], made: impl Fn(i64) -> T, out: &mut Vec<T>) {
        match self {
            Self::Same(value) => out.resize(out.len() + places.len(), made(*value)),
            Self::Bytes(base, all) => pick(all, places, |n| made(base.wrapping_add(i64::from(n))), out),
            Self::Shorts(base, all) => pick(all, places, |n| made(base.wrapping_add(i64::from(n))), out),
            Self::Ints(base, all) => pick(all, places, |n| made(base.wrapping_add(i64::from(n))), out),
            Self::Longs(base, all) => pick(all, places, |n| made(base.wrapping_add(n as i64)), out),
        }
    }

    /// Those at these places that are there, in their order.
    #[inline]
    pub fn gather_some<T: Clone + Default>(&self, places: &[u32], there: &[u8], made: impl Fn(i64) -> T, out: &mut Vec<T>) {
        let begin = out.len();
        out.resize(begin + places.len(), T::default());
        let room = &mut out[begin..];
        let count = match self {
            Self::Same(value) => {
                let count = there.iter().map(|one| usize::from(*one)).sum();
                room[..count].fill(made(*value));
                count
            }
            Self::Bytes(base, all) => pick_some(all, places, there, |n| made(base.wrapping_add(i64::from(n))), room),
            Self::Shorts(base, all) => pick_some(all, places, there, |n| made(base.wrapping_add(i64::from(n))), room),
            Self::Ints(base, all) => pick_some(all, places, there, |n| made(base.wrapping_add(i64::from(n))), room),
            Self::Longs(base, all) => pick_some(all, places, there, |n| made(base.wrapping_add(n as i64)), room),
        };
        out.truncate(begin + count);
    }
}

#[inline]
fn pick<N: Copy, T>(all: &[N], places: &[u32], made: impl Fn(N) -> T, out: &mut Vec<T>) {
    out.extend(places.iter().map(|place| made(all[*place as usize])));
}

/// Every number is put where the next one belongs, and stays if it is there: no branch.
#[inline]
fn pick_some<N: Copy, T>(all: &[N], places: &[u32], there: &[u8], made: impl Fn(N) -> T, room: &mut [T]) -> usize {
    let mut count = 0;
    for (place, there) in places.iter().zip(there) {
        room[count] = made(all[*place as usize]);
        count += usize::from(*there);
    }
    count
}

fn spread<N: Copy + Default>(strips: &[(Strip<'_>, There<'_>)], base: i64, narrow: impl Fn(u64) -> N) -> Vec<N> {
    let rows = |there: &There<'_>| match there {
        There::All(rows) | There::None(rows) => *rows,
        There::Some(rows) => rows.len(),
    };
    let mut out = Vec::with_capacity(strips.iter().map(|(_, there)| rows(there)).sum());
    let mut few = Vec::new();
    for (strip, there) in strips {
        let above = strip.base.wrapping_sub(base) as u64;
        match there {
            There::None(rows) => out.resize(out.len() + rows, N::default()),
            There::All(_) => widen(strip, above, &narrow, &mut out),
            There::Some(rows) => {
                few.clear();
                widen(strip, above, &narrow, &mut few);
                few.push(N::default());
                let mut next = 0;
                out.extend(rows.iter().map(|one| {
                    let value = few[next];
                    next += usize::from(*one);
                    value
                }));
            }
        }
    }
    out
}

/// The numbers of a strip, each `above` higher.
#[inline]
fn widen<N: Copy>(strip: &Strip<'_>, above: u64, narrow: &impl Fn(u64) -> N, out: &mut Vec<N>) {
    let made = |n: u64| narrow(n.wrapping_add(above));
    match strip.width {
        0 => out.resize(out.len() + strip.count, made(0)),
        1 => out.extend(strip.bytes.iter().map(|b| made(u64::from(*b)))),
        2 => out.extend(strip.bytes.as_chunks().0.iter().map(|b| made(u64::from(u16::from_le_bytes(*b))))),
        4 => out.extend(strip.bytes.as_chunks().0.iter().map(|b| made(u64::from(u32::from_le_bytes(*b))))),
        _ => out.extend(strip.bytes.as_chunks().0.iter().map(|b| made(u64::from_le_bytes(*b)))),
    }
}
