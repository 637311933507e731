//! The plan of an aggregation, and the layout of the key of a group.
//!
//! ```text
//! a group:  | addresses, 2 words each | family 1 bit, other fields packed, none across words | amounts, 1 word each |
//! ```

use super::{Field, Measure, ReportError, Value};
use base::hash;
use flow::Record;

/// Default limit of groups: with three amounts and one address a group takes about 64 bytes, so the default is a
/// quarter of a GiB.
pub const GROUPS_MAX: usize = 1 << 22;

/// The fields to group by, the measures, and the length of the ranking.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    fields: Vec<Field>,
    measures: Vec<Measure>,
    key_spans: Vec<KeySpan>,
    words: usize,
    family: Option<usize>,
    counts_both_ends: bool,
    by: usize,
    keep: usize,
    limit: usize,
    seed: u64,
}

/// The position of a field in the key.
#[derive(Clone, Copy, Debug, PartialEq)]
struct KeySpan {
    word: usize,
    shift: u32,
}

impl Plan {
    /// Groups by `fields` (without fields, all records are one group), sums `measures`, and ranks by `by`, the greatest
    /// first. If `by` is not one of the measures, the plan adds it to them.
    ///
    /// # Errors
    /// If fields occur twice or cannot be combined.
    pub fn new(fields: &[Field], measures: &[Measure], by: Measure) -> Result<Self, ReportError> {
        for (i, field) in fields.iter().enumerate() {
            if fields[..i].iter().any(|f| f.name() == field.name()) {
                return Err(ReportError::Twice(field.name().to_owned()));
            }
        }
        let counts_both_ends = fields.iter().any(|f| f.counts_both_ends());
        if counts_both_ends && fields.iter().any(|f| f.is_of_one_end()) {
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
        // The first bit of the packed words is the address family.
        let (mut next, mut word, mut shift) = (0, 2 * addresses, u32::from(addresses > 0));
        let mut spans = Vec::new();
        for field in fields {
            if is_address(field) {
                spans.push(KeySpan { word: next, shift: 0 });
                next += 2;
                continue;
            }
            if shift + field.bits() > u64::BITS {
                (word, shift) = (word + 1, 0);
            }
            spans.push(KeySpan { word, shift });
            shift += field.bits();
        }
        let by = all.iter().position(|m| *m == by).unwrap_or(0);
        Ok(Self {
            fields: fields.to_vec(),
            measures: all,
            key_spans: spans,
            words: word + usize::from(shift > 0),
            family,
            counts_both_ends,
            by,
            keep: usize::MAX,
            limit: GROUPS_MAX,
            seed: 0,
        })
    }

    /// Sets the number of groups in the ranking.
    pub fn keep(mut self, groups: usize) -> Self {
        self.keep = groups;
        self
    }

    /// Sets the limit of groups, at most 2^31.
    pub fn limit(mut self, groups: usize) -> Self {
        self.limit = groups.min(1 << 31);
        self
    }

    /// Sets the secret seed of the hash, so that a sender cannot choose addresses that collide and slow the aggregation
    /// down. The seed does not change a result.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Parses a list of fields: `src/24,dport`.
    ///
    /// # Errors
    /// If a field is invalid.
    pub fn fields_of(text: &str) -> Result<Vec<Field>, ReportError> {
        text.split(',').map(|word| Field::parse(word.trim())).collect()
    }

    /// The fields to group by.
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// The measures.
    pub fn measures(&self) -> &[Measure] {
        &self.measures
    }

    /// The measure by which groups are ranked, as an index into [`Plan::measures`].
    pub fn by(&self) -> usize {
        self.by
    }

    pub(crate) fn ranking_length(&self) -> usize {
        self.keep
    }

    pub(crate) fn limit_of_groups(&self) -> usize {
        self.limit
    }

    /// Number of words of a key.
    pub(crate) fn words(&self) -> usize {
        self.words
    }

    /// True if a record counts for both of its endpoints.
    pub(crate) fn counts_both_ends(&self) -> bool {
        self.counts_both_ends
    }

    /// True if every flow is a separate group.
    pub(crate) fn is_by_flow(&self) -> bool {
        self.fields.contains(&Field::Flow)
    }

    /// Writes the key of a record to `key`, whose words must be 0. With `from_destination`, [`Field::Host`] and
    /// [`Field::Port`] are those of the destination, otherwise those of the source.
    #[inline]
    pub(crate) fn key(&self, record: &Record, from_destination: bool, key: &mut [u64]) {
        let mut is_v6 = false;
        for (field, span) in self.fields.iter().zip(&self.key_spans) {
            match field {
                Field::Src(_) | Field::Dst(_) | Field::Host(_) => {
                    let words;
                    (words, is_v6) = field.address(record, from_destination);
                    key[span.word..span.word + 2].copy_from_slice(&words);
                }
                _ => key[span.word] |= field.packed_bits(record, from_destination) << span.shift,
            }
        }
        if let Some(word) = self.family {
            key[word] |= u64::from(is_v6);
        }
    }

    /// The values of the fields of a key.
    pub(crate) fn values(&self, key: &[u64]) -> Vec<Value> {
        let is_v6 = self.family.is_some_and(|word| key[word] & 1 == 1);
        let value = |(field, span): (&Field, &KeySpan)| match field.bits() {
            128 => field.address_value([key[span.word], key[span.word + 1]], is_v6),
            64 => field.packed_value(key[span.word]),
            bits => field.packed_value(key[span.word] >> span.shift & ((1 << bits) - 1)),
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
    fn fields_that_cannot_be_combined_are_rejected() {
        let plan = |text: &str| Plan::new(&Plan::fields_of(text)?, &[], Measure::Bytes);
        assert_eq!(plan("host,dport"), Err(ReportError::MixedEnds));
        assert_eq!(plan("src/24,dst,src"), Err(ReportError::Twice("src".into())));
        assert!(matches!(plan("src,,dst"), Err(ReportError::UnknownField(_))));
        assert!(plan("host, port,proto").is_ok());
    }

    #[test]
    fn fields_of_a_key_do_not_overlap_or_cross_words() {
        let all = "src,flow,dst,sport,dport,proto,vlan,mpls,tunnel,interface,end,state";
        let plan = Plan::new(&Plan::fields_of(all).expect("fields"), &[], Measure::Flows).expect("a plan");
        let mut taken = vec![0u64; plan.words];
        taken[plan.family.expect("addresses")] |= 1;
        for (field, span) in plan.fields.iter().zip(&plan.key_spans) {
            for bit in 0..field.bits() {
                let (word, bit) = (span.word + (bit / 64) as usize, span.shift + bit % 64);
                assert!(bit < 64 && taken[word] >> bit & 1 == 0, "{field:?}");
                taken[word] |= 1 << bit;
            }
        }
    }
}
