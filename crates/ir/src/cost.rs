//! Computes the cost of a program: its total number of instructions, and the numbers of instructions on the longest and
//! on the shortest path that a packet can take.

use super::Program;

/// The cost of code, in instructions. The end of each block counts as one instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Instructions in the program.
    pub size: usize,
    /// Instructions on the longest path.
    pub longest: usize,
    /// Instructions on the shortest path.
    pub shortest: usize,
}

impl Program {
    /// The cost of all blocks of the program.
    pub fn cost(&self) -> Cost {
        self.cost_of(0..self.blocks.len())
    }

    /// The cost of a range of the program's blocks. A path ends where it jumps to a block outside the range.
    pub fn cost_of(&self, blocks: std::ops::Range<usize>) -> Cost {
        // Visits blocks in reverse order, because the cost of a block includes that of its successors.
        let mut ways = vec![(0, 0); self.blocks.len()];
        let mut size = 0;
        for at in blocks.clone().rev() {
            let block = &self.blocks[at];
            let own = block.code.len() + 1;
            size += own;
            let after = || block.end.targets().map(|t| t.0 as usize);
            let way = |t: usize| if blocks.contains(&t) { ways[t] } else { (0, 0) };
            let longest = after().map(|t| way(t).0).max().unwrap_or(0);
            let shortest = after().map(|t| way(t).1).min().unwrap_or(0);
            ways[at] = (own + longest, own + shortest);
        }
        let (longest, shortest) = ways.get(blocks.start).copied().unwrap_or_default();
        Cost { size, longest, shortest }
    }

    /// The blocks of a stage.
    pub fn blocks_of(&self, stage: usize) -> std::ops::Range<usize> {
        let first = |s: usize| self.stages.get(s).map_or(self.blocks.len(), |s| s.first.0 as usize);
        first(stage)..first(stage + 1)
    }
}
