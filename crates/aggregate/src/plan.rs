//! What is to be added up, and how the key of a group lies in memory.
//!
//! ```text
//! a group:  | addresses, 2 words each | family 1 bit, other fields packed, none across words | amounts, 1 word each |
//! ```

use super::{Field, Measure, ReportError, Value};
use base::hash;
use flow::Record;

/// Most groups, unless a plan says otherwise: with three amounts and one address a group takes about 64 bytes, so this
/// is a quarter of a GiB.
pub const GROUPS_MAX: usize = 1 << 22;

/// What to group by, what to add up, and what is wanted of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    fields: Vec<Field>,
    measures: Vec<Measure>,
    key_spans: Vec<KeySpan>,
    words: usize,
    family: Option<usize>,
    is_either: bool,
    by: usize,
    keep: usize,
    limit: usize,
    seed: u64,
}

/// Where a field lies in the key.
#[derive(Clone, Copy, Debug, PartialEq)]
struct KeySpan {
    word: usize,
    shift: u32,
}

impl Plan {
    /// Groups by `fields` (none: everything is one group), adds up `measures` and ranks by `by`, greatest first, which
    /// is added to the measures where it is missing.
    ///
    /// # Errors
    /// When fields do not go together.
    pub fn new(fields: &[Field], measures: &[Measure], by: Measure) -> Result<Self, ReportError> {
        for (i, field) in fields.iter().enumerate() {
            if fields[..i].iter().any(|f| f.name() == field.name()) {
                return Err(ReportError::Twice(field.name().to_owned()));
            }
        }
        let is_either = fields.iter().any(|f| f.is_either());
        if is_either && fields.iter().any(|f| f.is_one_end()) {
            return Err(ReportError::MixedEnds);
        }
        let mut all: Vec<Measure> = Vec::new();
        for measure in measures.iter().chain([&by]) {
            if !all.contains(measure) {
                all.push(*measure);
            }
        }
        let is_address = |f: &Field| f.bits() == 128;
        let addresses = fields.iter().filter(|f| is_address(f)).count();
        let family = (addresses > 0).then_some(2 * addresses);
        // The first bit of the packed words is that of the family.
        let (mut next, mut word, mut shift) = (0, 2 * addresses, u32::from(addresses > 0));
        let mut spots = Vec::new();
        for field in fields {
            if is_address(field) {
                spots.push(KeySpan { word: next, shift: 0 });
                next += 2;
                continue;
            }
            if shift + field.bits() > u64::BITS {
                (word, shift) = (word + 1, 0);
            }
            spots.push(KeySpan { word, shift });
            shift += field.bits();
        }
        let by = all.iter().position(|m| *m == by).unwrap_or(0);
        Ok(Self {
            fields: fields.to_vec(),
            measures: all,
            key_spans: spots,
            words: word + usize::from(shift > 0),
            family,
            is_either,
            by,
            keep: usize::MAX,
            limit: GROUPS_MAX,
            seed: 0,
        })
    }

    /// Only so many of the greatest are wanted.
    pub fn keep(mut self, groups: usize) -> Self {
        self.keep = groups;
        self
    }

    /// At most so many groups; 2^31 and more are as many.
    pub fn limit(mut self, groups: usize) -> Self {
        self.limit = groups.min(1 << 31);
        self
    }

    /// A secret that makes it hopeless to choose addresses which slow the sums down. It changes no answer.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Reads fields as people write them: `src/24,dport`.
    ///
    /// # Errors
    /// When one of them is none.
    pub fn fields_of(text: &str) -> Result<Vec<Field>, ReportError> {
        text.split(',').map(|word| Field::parse(word.trim())).collect()
    }

    /// What it groups by.
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// What it adds up.
    pub fn measures(&self) -> &[Measure] {
        &self.measures
    }

    /// What it ranks by: an index of [`Plan::measures`].
    pub fn by(&self) -> usize {
        self.by
    }

    pub(crate) fn kept(&self) -> usize {
        self.keep
    }

    pub(crate) fn most(&self) -> usize {
        self.limit
    }

    /// Words of a key.
    pub(crate) fn words(&self) -> usize {
        self.words
    }

    /// Whether a record counts for both of its ends.
    pub(crate) fn is_either(&self) -> bool {
        self.is_either
    }

    /// Whether every flow is a group of its own.
    pub(crate) fn is_by_flow(&self) -> bool {
        self.fields.contains(&Field::Flow)
    }

    /// Writes the key of a record, seen from its source or (`turned`) from its destination, over zeros.
    #[inline]
    pub(crate) fn key(&self, record: &Record, turned: bool, key: &mut [u64]) {
        let mut is_v6 = false;
        for (field, spot) in self.fields.iter().zip(&self.key_spans) {
            match field {
                Field::Src(_) | Field::Dst(_) | Field::Host(_) => {
                    let words;
                    (words, is_v6) = field.address(record, turned);
                    key[spot.word..spot.word + 2].copy_from_slice(&words);
                }
                _ => key[spot.word] |= field.small(record, turned) << spot.shift,
            }
        }
        if let Some(word) = self.family {
            key[word] |= u64::from(is_v6);
        }
    }

    /// What a key says, field by field.
    pub(crate) fn values(&self, key: &[u64]) -> Vec<Value> {
        let is_v6 = self.family.is_some_and(|word| key[word] & 1 == 1);
        let value = |(field, spot): (&Field, &KeySpan)| match field.bits() {
            128 => field.address_value([key[spot.word], key[spot.word + 1]], is_v6),
            64 => field.small_value(key[spot.word]),
            bits => field.small_value(key[spot.word] >> spot.shift & ((1 << bits) - 1)),
        };
        self.fields.iter().zip(&self.key_spans).map(value).collect()
    }

    #[inline]
    pub(crate) fn hash(&self, key: &[u64]) -> u64 {
        key.iter().fold(self.seed, |state, word| hash::combine(state, *word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_go_together_is_refused() {
        let plan = |text: &str| Plan::new(&Plan::fields_of(text)?, &[], Measure::Bytes);
        assert_eq!(plan("host,dport"), Err(ReportError::MixedEnds));
        assert_eq!(plan("src/24,dst,src"), Err(ReportError::Twice("src".into())));
        assert!(matches!(plan("src,,dst"), Err(ReportError::UnknownField(_))));
        assert!(plan("host, port,proto").is_ok());
    }

    #[test]
    fn fields_never_share_a_bit_nor_cross_a_word() {
        let all = "src,flow,dst,sport,dport,proto,vlan,mpls,tunnel,interface,end,state";
        let plan = Plan::new(&Plan::fields_of(all).expect("fields"), &[], Measure::Flows).expect("a plan");
        let mut taken = vec![0u64; plan.words];
        taken[plan.family.expect("addresses")] |= 1;
        for (field, spot) in plan.fields.iter().zip(&plan.key_spans) {
            for bit in 0..field.bits() {
                let (word, bit) = (spot.word + (bit / 64) as usize, spot.shift + bit % 64);
                assert!(bit < 64 && taken[word] >> bit & 1 == 0, "{field:?}");
                taken[word] |= 1 << bit;
            }
        }
    }
}
