//! Captures into captures: between formats, sliced, split, merged in time order, anonymised prefix-preservingly.
#![forbid(unsafe_code)]
