//! Where flows are found: buckets of one cache line with ten places each, and a tag of 16 bits beside every place.
//!
//! ```text
//! byte  0        20               60        62      64
//!       | 10 tags | 10 flow numbers | spilled | taken |      taken: a bit per place
//! ```
//! A flow lies in the bucket that its hash names, or, when that is full, in one of the [`REACH`] - 1 after it; `spilled`
//! counts how many flows of a bucket lie elsewhere, so that nearly every search ends in its first line and
//! nothing is left behind by removal. A hash is 64 bits: the lower 32 name the bucket, the next 16 are the tag, the upper 16
//! the shard. The table compares tags only; whether a flow is the right one is for the caller to say.

/// Places in a bucket.
const PLACES: usize = 10;
/// Flows per bucket when as many are there as were reserved: one bucket in fifteen is then over full.
const LOAD: usize = 6;
/// Buckets that are searched at most.
const REACH: usize = 8;

#[derive(Clone)]
#[repr(align(64))]
struct Bucket {
    tags: [u16; PLACES],
    flows: [u32; PLACES],
    spilled: u16,
    taken: u16,
}

const _: () = assert!(size_of::<Bucket>() == 64);

pub(crate) struct Table {
    buckets: Vec<Bucket>,
}

/// All [`REACH`] buckets are full.
pub(crate) struct Crowded;

impl Table {
    /// A table in which `capacity` flows find room.
    pub fn new(capacity: usize) -> Self {
        let empty = Bucket { tags: [0; PLACES], flows: [0; PLACES], spilled: 0, taken: 0 };
        Self { buckets: vec![empty; capacity.div_ceil(LOAD).max(1)] }
    }

    pub fn bytes(&self) -> usize {
        self.buckets.len() * size_of::<Bucket>()
    }

    #[inline(always)]
    fn home(&self, hash: u64) -> usize {
        (((hash & 0xffff_ffff) * self.buckets.len() as u64) >> 32) as usize
    }

    #[inline(always)]
    fn after(&self, home: usize, step: usize) -> usize {
        (home + step) % self.buckets.len()
    }

    fn reach(&self) -> usize {
        REACH.min(self.buckets.len())
    }

    /// Reads the line where a search for `hash` begins, and nothing else.
    #[inline(always)]
    pub fn touch(&self, hash: u64) -> u16 {
        self.buckets[self.home(hash)].taken
    }

    /// The flow that a search for `hash` would look at first, if there is one.
    #[inline(always)]
    pub fn guess(&self, hash: u64) -> Option<u32> {
        let bucket = &self.buckets[self.home(hash)];
        let hits = bucket.hits(tag(hash));
        (hits != 0).then(|| bucket.flows[hits.trailing_zeros() as usize])
    }

    /// The flow with this hash for which `same` holds.
    #[inline(always)]
    pub fn find(&self, hash: u64, same: impl Fn(u32) -> bool) -> Option<u32> {
        let home = self.home(hash);
        let bucket = &self.buckets[home];
        let found = bucket.find(tag(hash), &same);
        if found.is_some() || bucket.spilled == 0 {
            return found;
        }
        (1..self.reach()).find_map(|step| self.buckets[self.after(home, step)].find(tag(hash), &same))
    }

    /// Enters a flow that is not there.
    pub fn insert(&mut self, hash: u64, flow: u32) -> Result<(), Crowded> {
        let home = self.home(hash);
        for step in 0..self.reach() {
            let at = self.after(home, step);
            if self.buckets[at].put(tag(hash), flow) {
                self.buckets[home].spilled += u16::from(step > 0);
                return Ok(());
            }
        }
        Err(Crowded)
    }

    /// Removes a flow that is there.
    pub fn remove(&mut self, hash: u64, flow: u32) {
        let home = self.home(hash);
        for step in 0..self.reach() {
            let at = self.after(home, step);
            if self.buckets[at].take(tag(hash), flow) {
                self.buckets[home].spilled -= u16::from(step > 0);
                return;
            }
        }
        debug_assert!(false, "flow {flow} is in no bucket within reach");
    }

    /// The flows in the bucket that `hash` names.
    pub fn neighbours(&self, hash: u64) -> impl Iterator<Item = u32> + '_ {
        let bucket = &self.buckets[self.home(hash)];
        (0..PLACES).filter(|p| bucket.taken & 1 << p != 0).map(|p| bucket.flows[p])
    }
}

#[inline(always)]
const fn tag(hash: u64) -> u16 {
    (hash >> 32) as u16
}

impl Bucket {
    /// A bit for each place that is taken under this tag.
    #[inline(always)]
    fn hits(&self, tag: u16) -> u16 {
        let mut hits = 0;
        for (place, t) in self.tags.iter().enumerate() {
            hits |= u16::from(*t == tag) << place;
        }
        hits & self.taken
    }

    #[inline(always)]
    fn find(&self, tag: u16, same: &impl Fn(u32) -> bool) -> Option<u32> {
        let mut hits = self.hits(tag);
        while hits != 0 {
            let flow = self.flows[hits.trailing_zeros() as usize];
            if same(flow) {
                return Some(flow);
            }
            hits &= hits - 1;
        }
        None
    }

    fn put(&mut self, tag: u16, flow: u32) -> bool {
        let place = (!self.taken).trailing_zeros() as usize;
        if place >= PLACES {
            return false;
        }
        (self.tags[place], self.flows[place]) = (tag, flow);
        self.taken |= 1 << place;
        true
    }

    fn take(&mut self, tag: u16, flow: u32) -> bool {
        let mut hits = self.hits(tag);
        while hits != 0 {
            let place = hits.trailing_zeros();
            if self.flows[place as usize] == flow {
                self.taken &= !(1 << place);
                return true;
            }
            hits &= hits - 1;
        }
        false
    }
}
