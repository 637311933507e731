//! Splits a program between two of its stages, so that the two parts can run in different places.

use super::{Block, BlockId, End, Program};

impl Program {
    /// Returns two programs: the first `stages` stages, and the other stages. In the first part, each jump to the
    /// second part is replaced by `pass`. The second part begins with the verdict record that the first part produced;
    /// it does not run for packets that the first part dropped. Both parts contain all tables of the complete program,
    /// so that indices of tables mean the same in both.
    pub fn split(&self, stages: usize) -> (Self, Self) {
        let cut = self.stages.get(stages).map_or(self.blocks.len(), |s| s.first.0 as usize);
        let mut head = Self { blocks: self.blocks[..cut].to_vec(), ..self.tables() };
        head.stages = self.stages[..stages.min(self.stages.len())].to_vec();
        let leaves = head.blocks.iter().any(|b| b.end.targets().any(|t| t.0 as usize >= cut));
        for block in &mut head.blocks {
            redirect(&mut block.end, |t| BlockId(t.0.min(cut as u32)));
        }
        if leaves || head.blocks.is_empty() {
            head.blocks.push(Block { code: vec![], end: End::Pass });
        }
        let mut tail = Self { blocks: self.blocks[cut..].to_vec(), ..self.tables() };
        tail.stages = self.stages[stages.min(self.stages.len())..].to_vec();
        for block in &mut tail.blocks {
            redirect(&mut block.end, |t| BlockId(t.0.saturating_sub(cut as u32)));
        }
        tail.stages.iter_mut().for_each(|s| s.first.0 -= cut as u32);
        if tail.blocks.is_empty() {
            tail.blocks.push(Block { code: vec![], end: End::Pass });
        }
        (head, tail)
    }

    fn tables(&self) -> Self {
        Self { blocks: vec![], stages: vec![], ..self.clone() }
    }
}

fn redirect(end: &mut End, to: impl Fn(BlockId) -> BlockId) {
    match end {
        End::Jump(t) => *t = to(*t),
        End::If { yes, no, .. } | End::Fits { yes, no, .. } => (*yes, *no) = (to(*yes), to(*no)),
        End::Pass | End::Drop => (),
    }
}
