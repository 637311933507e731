//! The data structures that were considered for the hosts of a block, each in a plain implementation. All structures
//! receive the same keys: the two hosts of each packet, including repeated hosts.
//!
//! The output gives for each structure the bits per distinct key, the false positive rate for hosts that are in no
//! block, and the nanoseconds per inserted key. The column of bytes read gives the bytes that one query for one host
//! reads in a file of 1000 such blocks, if contiguous bytes cost one read.

use crate::key::{KeyKind, host_v4, host_v6};
use crate::set::{GROUP, Group, Set, bits_of, group_of, has_all};
use crate::set_sizing::{self, Occupancy};
use crate::traffic::Load;
use base::Prng;
use base::hash::mix64;
use std::collections::{BTreeMap, HashSet};
use std::hint::black_box;
use std::time::Instant;
use wire::{FlowKey, Headers};

/// Blocks of the queried file.
const BLOCKS: usize = 1000;

/// Number of groups of a filter before the filter is folded.
const FULL: usize = 256;

/// The structure for the hosts of one block: its size in bits, its membership test, and the number of its bytes that a
/// query reads.
struct Structure {
    bits: usize,
    admits: Box<dyn Fn(u64) -> bool>,
    read: usize,
}

type Make = fn(&[u64]) -> Structure;

pub fn compare(load: &Load) {
    let blocks: Vec<Vec<u64>> = load.blocks.iter().map(|b| hosts(b)).collect();
    let distinct: Vec<HashSet<u64>> = blocks.iter().map(|b| b.iter().copied().collect()).collect();
    let keys: usize = distinct.iter().map(HashSet::len).sum();
    println!("{}: {} hosts per block", load.name, keys / blocks.len());
    println!("{:<52} bits/key   wrong %   build ns/key   bytes read", "");
    let candidates: [(&str, Make); 6] = [
        ("split-block Bloom of distinct keys, 10 bits/key", distinct_bloom),
        ("split-block Bloom at full size, folded (netgrain)", folded),
        ("register-blocked Bloom (4 bits in a word), folded", register),
        ("plain bitmap of 64 Kbit, folded", bitmap),
        ("binary fuse of distinct keys, 8-bit fingerprints", fuse),
        ("sorted set of 32-bit hashes", sorted),
    ];
    for (name, make) in candidates {
        let (structures, nanos) = build(&blocks, make);
        let bits: usize = structures.iter().map(|m| m.bits).sum();
        let read: usize = structures.iter().map(|m| m.read).sum::<usize>() * BLOCKS / structures.len();
        let wrong = wrong(&structures, &distinct);
        println!("{name:<52} {:>8.1} {:>9.3} {nanos:>14.1} {read:>12}", bits as f64 / keys as f64, 100.0 * wrong);
    }
    inverted("inverted lists or bitmaps, same hosts repeated", &blocks, keys, |key, _| key);
    inverted("inverted lists or bitmaps, new hosts per block", &blocks, keys, |key, n| mix64(key ^ (n as u64) << 48));
    println!();
}

fn hosts(packets: &[crate::traffic::Packet]) -> Vec<u64> {
    let hash = |a| match a {
        std::net::IpAddr::V4(a) => host_v4(a.to_bits()),
        std::net::IpAddr::V6(a) => host_v6(a.to_bits()),
    };
    packets
        .iter()
        .filter_map(|p| FlowKey::of(&p.frame, &Headers::of(&p.frame, p.wire_len, p.link_type)))
        .flat_map(|f| [hash(f.src), hash(f.dst)])
        .collect()
}

fn build(blocks: &[Vec<u64>], make: Make) -> (Vec<Structure>, f64) {
    let inserted: usize = blocks.iter().map(Vec::len).sum();
    let mut least = f64::MAX;
    for _ in 0..(500_000 / inserted.max(1)).clamp(2, 100) {
        let t = Instant::now();
        blocks.iter().for_each(|b| drop(black_box(make(b))));
        least = least.min(t.elapsed().as_nanos() as f64 / inserted as f64);
    }
    (blocks.iter().map(|b| make(b)).collect(), least)
}

fn wrong(structures: &[Structure], distinct: &[HashSet<u64>]) -> f64 {
    let mut prng = Prng::new(7);
    let (mut tested, mut admitted) = (0u64, 0u64);
    for _ in 0..300_000 / structures.len() {
        let key = prng.next_u64();
        for (m, keys) in structures.iter().zip(distinct) {
            if !keys.contains(&key) {
                tested += 1;
                admitted += u64::from((m.admits)(key));
            }
        }
    }
    admitted as f64 / tested.max(1) as f64
}

/// The distinct keys, found with a hash table with open addressing.
fn distinct_keys(keys: &[u64]) -> Vec<u64> {
    let mut table = vec![0u64; 64];
    let mut list: Vec<u64> = Vec::new();
    for key in keys.iter().map(|k| k.max(&1)) {
        if table.len() < 2 * (list.len() + 1) {
            table = vec![0; 2 * table.len()];
            list.iter().for_each(|k| _ = place(&mut table, *k));
        }
        if place(&mut table, *key) {
            list.push(*key);
        }
    }
    list
}

fn place(table: &mut [u64], key: u64) -> bool {
    let mask = table.len() - 1;
    let mut at = key as usize & mask;
    while table[at] != 0 && table[at] != key {
        at = (at + 1) & mask;
    }
    std::mem::replace(&mut table[at], key) != key
}

fn insert(groups: &mut [Group], hash: u64) {
    let i = group_of(hash, groups.len());
    let bits = bits_of(hash);
    (0..4).for_each(|w| groups[i][w] |= bits[w]);
}

fn distinct_bloom(keys: &[u64]) -> Structure {
    let keys = distinct_keys(keys);
    let groups = (keys.len() * 10).div_ceil(256).max(1);
    let group = move |hash: u64| ((u128::from(hash) * groups as u128) >> 64) as usize;
    let mut filter = vec![[0; 4]; groups];
    for key in keys {
        let bits = bits_of(key);
        (0..4).for_each(|w| filter[group(key)][w] |= bits[w]);
    }
    let bytes = groups * GROUP;
    // The filters of the blocks have different lengths, so a query reads the complete filter of each block.
    Structure { bits: bytes * 8, admits: Box::new(move |k| has_all(&filter[group(k)], &bits_of(k))), read: bytes }
}

fn folded(keys: &[u64]) -> Structure {
    let mut full = vec![[0; 4]; FULL];
    keys.iter().for_each(|k| insert(&mut full, *k));
    let mut fill = [Occupancy::of(KeyKind::Hosts, &full, keys.len())];
    set_sizing::fit(&mut fill, FULL * GROUP);
    let Set::Groups(groups) = fill[0].set(&full, keys.len()) else {
        return Structure { bits: 0, admits: Box::new(|_| true), read: 0 };
    };
    let bits = groups.len() * GROUP * 8;
    let admits = move |k| !groups.is_empty() && has_all(&groups[group_of(k, groups.len())], &bits_of(k));
    // A query reads one group of each block; these groups are contiguous.
    Structure { bits, admits: Box::new(admits), read: GROUP }
}

/// Halves the array by OR of neighbouring words, as long as at most the share `most` of its bits is set.
fn fold_words(mut words: Vec<u64>, most: f64) -> Vec<u64> {
    while words.len() > 1 {
        let half: Vec<u64> = words.chunks_exact(2).map(|c| c[0] | c[1]).collect();
        let ones: u32 = half.iter().map(|w| w.count_ones()).sum();
        if f64::from(ones) > most * (half.len() * 64) as f64 {
            break;
        }
        words = half;
    }
    words
}

fn word_index(hash: u64, words: usize) -> usize {
    (hash >> 1 >> (63 - words.trailing_zeros())) as usize
}

fn register(keys: &[u64]) -> Structure {
    let mask = |k: u64| (0..4).fold(0u64, |m, i| m | 1 << (k >> (6 * i) & 63));
    let mut words = vec![0; 4 * FULL];
    keys.iter().for_each(|k| words[word_index(*k, 4 * FULL)] |= mask(*k));
    let words = fold_words(words, 0.3);
    let bits = words.len() * 64;
    let admits = move |k| words[word_index(k, words.len())] & mask(k) == mask(k);
    Structure { bits, admits: Box::new(admits), read: 8 }
}

fn bitmap(keys: &[u64]) -> Structure {
    let mut words = vec![0; 4 * FULL];
    keys.iter().for_each(|k| words[word_index(*k, 4 * FULL)] |= 1 << (k & 63));
    let words = fold_words(words, 0.05);
    let bits = words.len() * 64;
    Structure { bits, admits: Box::new(move |k| words[word_index(k, words.len())] >> (k & 63) & 1 != 0), read: 8 }
}

/// Binary fuse filter with three slots per key (Graf and Lemire, JEA 2022), constructed by peeling.
fn fuse(keys: &[u64]) -> Structure {
    let keys = distinct_keys(keys);
    let n = keys.len().max(2) as f64;
    let segment = (1usize << (n.ln() / 3.33f64.ln() + 2.25).floor().max(2.0) as u32).min(1 << 18);
    let factor = (0.875 + 0.25 * 1e6f64.ln() / n.ln()).max(1.125);
    let count = ((n * factor).round() as usize).div_ceil(segment).max(3);
    let len = (count + 2) * segment;
    for seed in 0.. {
        let places = move |key: u64| {
            let hash = mix64(key.wrapping_add(mix64(seed)));
            let first = ((u128::from(hash) * (count * segment) as u128) >> 64) as usize;
            let second = (first + segment) ^ (hash >> 18) as usize & (segment - 1);
            let third = (first + 2 * segment) ^ hash as usize & (segment - 1);
            ([first, second, third], hash as u8 ^ (hash >> 32) as u8)
        };
        // For each slot: the number of keys that use the slot, and the XOR of these keys.
        let mut held = vec![(0u32, 0u64); len];
        for key in &keys {
            places(*key).0.iter().for_each(|p| held[*p] = (held[*p].0 + 1, held[*p].1 ^ key));
        }
        let mut alone: Vec<usize> = (0..len).filter(|p| held[*p].0 == 1).collect();
        let mut order = Vec::with_capacity(keys.len());
        while let Some(at) = alone.pop() {
            let (1, key) = held[at] else { continue };
            order.push((key, at));
            for p in places(key).0 {
                held[p] = (held[p].0 - 1, held[p].1 ^ key);
                if held[p].0 == 1 {
                    alone.push(p);
                }
            }
        }
        if order.len() < keys.len() {
            continue;
        }
        let mut table = vec![0u8; len];
        for (key, at) in order.into_iter().rev() {
            let (all, print) = places(key);
            table[at] = all.iter().filter(|p| **p != at).fold(print, |x, p| x ^ table[*p]);
        }
        let admits = move |key: u64| {
            let ([a, b, c], print) = places(key);
            table[a] ^ table[b] ^ table[c] == print
        };
        // The filters of the blocks differ in seed and size, so the bytes for one key are not contiguous.
        return Structure { bits: 8 * len, admits: Box::new(admits), read: len };
    }
    unreachable!("no seed gave a binary fuse filter")
}

fn sorted(keys: &[u64]) -> Structure {
    let mut hashes: Vec<u32> = distinct_keys(keys).into_iter().map(|k| (k >> 32) as u32).collect();
    hashes.sort_unstable();
    hashes.dedup();
    let bytes = 4 * hashes.len();
    Structure {
        bits: 8 * bytes,
        admits: Box::new(move |k| hashes.binary_search(&((k >> 32) as u32)).is_ok()),
        read: bytes,
    }
}

/// One inverted list for the complete file: for each key the numbers of its blocks, as a list or a bitmap, whichever is
/// shorter. The file repeats these blocks, either unchanged or with different hosts in each repetition; the hosts of
/// real files repeat in some blocks only.
fn inverted(name: &str, blocks: &[Vec<u64>], keys: usize, of: fn(u64, usize) -> u64) {
    let t = Instant::now();
    let mut lists: BTreeMap<u64, Vec<u16>> = BTreeMap::new();
    let mut inserted = 0;
    for (number, block) in (0..BLOCKS).map(|n| (n as u16, &blocks[n % blocks.len()])) {
        inserted += block.len();
        for key in block {
            let list = lists.entry(of(*key, usize::from(number) / blocks.len())).or_default();
            if list.last() != Some(&number) {
                list.push(number);
            }
        }
    }
    let nanos = t.elapsed().as_nanos() as f64 / inserted as f64;
    let bytes: usize = lists.values().map(|l| 8 + (2 * l.len()).min(BLOCKS / 8)).sum();
    let pairs = keys * BLOCKS / blocks.len();
    // A query reads one page of the sorted keys, one page of the directory of these pages, and the bitmap of the blocks
    // that contain the key.
    let read = 2 * 4096 + BLOCKS / 8;
    println!("{name:<52} {:>8.1} {:>9.3} {nanos:>14.1} {read:>12}", 8.0 * bytes as f64 / pairs as f64, 0.0);
}
