//! Where packets leave the program: each way out decides the verdict, and each counts what became of the packet, once.

use super::compile::{Emitter, context, verdict};
use super::{Fate, MapKind, MapNeed, Metadata, Role, ToUser, frame, meta};
use ::ebpf::{Alu, Condition, Helper, Reg as R, Size};

/// Registers of the exits: the verdict, and where in the counters the fate is.
const VERDICT: R = R::R6;
const FATE: R = R::R7;

const fn offset_of(fate: Fate) -> i32 {
    8 * fate as i32
}

impl Emitter<'_> {
    pub(super) fn leave(&mut self) {
        let [over, count, stack] = [(); 3].map(|()| self.asm.label());
        self.asm.place(self.exits.user);
        self.asm.mov(FATE, offset_of(Fate::User));
        let record = self.asm.label();
        self.asm.jump(record);

        self.asm.place(self.exits.undecided);
        self.asm.mov(FATE, offset_of(Fate::Undecided));
        match self.metadata {
            Metadata::None => {
                // What cannot be told is not decided.
                self.asm.place(record);
                self.asm.mov(FATE, offset_of(Fate::Undecided));
            }
            Metadata::Record => {
                self.asm.store_imm(Size::B, R::R10, frame::RECORD + meta::at::STAGES as i16, 0);
                self.asm.place(record);
                self.write_record();
            }
            Metadata::Least => {
                self.asm.place(record);
                self.write_least();
            }
        }
        self.asm.place(over);
        self.hand_over(count, stack);

        self.asm.place(self.exits.silent);
        self.asm.mov(FATE, offset_of(Fate::Undecided));
        self.asm.jump(over);

        self.asm.place(self.exits.drop);
        self.dropped(count, stack);

        self.asm.place(stack);
        if self.metadata != Metadata::None {
            // The stack is to find the packet as it came, whether there is something before it by now or not.
            let a = &mut self.asm;
            a.load(Size::Dw, R::R1, R::R10, frame::CONTEXT);
            a.load(Size::W, R::R2, R::R1, context::DATA);
            a.load(Size::W, R::R3, R::R1, context::DATA_META);
            a.alu_reg(Alu::Sub, R::R2, R::R3);
            a.call(Helper::XdpAdjustMeta);
        }
        self.asm.mov(VERDICT, verdict::PASS);
        self.asm.place(count);
        self.count_fate();
        self.asm.mov_reg(R::R0, VERDICT);
        self.asm.exit();
    }

    /// The record goes before the packet.
    fn write_record(&mut self) {
        let (a, none) = (&mut self.asm, self.exits.silent);
        a.load(Size::Dw, R::R3, R::R10, frame::CONTEXT);
        a.load(Size::W, R::R1, R::R3, context::DATA_META);
        a.load(Size::W, R::R2, R::R3, context::DATA);
        a.mov_reg(R::R0, R::R1);
        a.alu(Alu::Add, R::R0, meta::METADATA as i32);
        // It is there, but the verifier wants to see that for itself.
        a.jump_if_reg(Condition::Gt, R::R0, R::R2, none);
        for at in (0..meta::METADATA as i16).step_by(8) {
            a.load(Size::Dw, R::R0, R::R10, frame::RECORD + at);
            a.store(Size::Dw, R::R1, at, R::R0);
        }
    }

    /// The least goes before the packet, if there is room.
    fn write_least(&mut self) {
        let (a, none) = (&mut self.asm, self.exits.silent);
        a.load(Size::Dw, R::R1, R::R10, frame::CONTEXT);
        a.mov(R::R2, -(meta::LEAST as i32));
        a.call(Helper::XdpAdjustMeta);
        a.jump_if(Condition::Ne, R::R0, 0, none);
        a.load(Size::Dw, R::R3, R::R10, frame::CONTEXT);
        a.load(Size::W, R::R1, R::R3, context::DATA_META);
        a.load(Size::W, R::R2, R::R3, context::DATA);
        a.mov_reg(R::R0, R::R1);
        a.alu(Alu::Add, R::R0, meta::LEAST as i32);
        a.jump_if_reg(Condition::Gt, R::R0, R::R2, none);
        let least = |stages| meta::least(self.wish.generation, stages) as i32;
        a.store_imm(Size::W, R::R1, 0, least(self.done));
        if self.done > 0 {
            let decided = a.label();
            a.jump_if(Condition::Eq, FATE, offset_of(Fate::User), decided);
            a.store_imm(Size::W, R::R1, 0, least(0));
            a.place(decided);
        }
    }

    /// To the socket of the queue; to the stack where there is none.
    fn hand_over(&mut self, count: ::ebpf::Label, stack: ::ebpf::Label) {
        match self.wish.to_user {
            ToUser::Verdict(n) => self.asm.mov(VERDICT, n.into()),
            ToUser::Sockets => {
                let entries = self.wish.queues;
                let slot = self.map(Role::Sockets, || MapNeed {
                    role: Role::Sockets,
                    name: "ng_sockets".into(),
                    kind: MapKind::XskMap,
                    key: 4,
                    value: 4,
                    entries,
                    content: vec![],
                    meaning: "sockets by queue".into(),
                });
                let claimed = self.asm.label();
                self.asm.load(Size::Dw, R::R1, R::R10, frame::CONTEXT);
                self.asm.load(Size::W, R::R2, R::R1, context::RX_QUEUE_INDEX);
                self.asm.map_slot(R::R1, slot);
                self.asm.mov(R::R3, verdict::PASS);
                self.asm.call(Helper::RedirectMap);
                self.asm.mov_reg(VERDICT, R::R0);
                self.asm.jump_if(Condition::Eq, VERDICT, verdict::REDIRECT, claimed);
                self.asm.mov(FATE, offset_of(Fate::Unclaimed));
                self.asm.jump(stack);
                self.asm.place(claimed);
            }
        }
        self.asm.jump(count);
    }

    /// Nowhere, or where the program said before.
    fn dropped(&mut self, count: ::ebpf::Label, stack: ::ebpf::Label) {
        let drop = self.asm.label();
        if self.needs.sink {
            let devices = self.program.devices.len() as u32;
            self.asm.load(Size::H, R::R2, R::R10, frame::fact::SINK);
            self.asm.jump_if(Condition::Eq, R::R2, 0, drop);
            self.asm.mov(FATE, offset_of(Fate::Kernel));
            self.asm.jump_if(Condition::Eq, R::R2, 1, stack);
            if devices > 0 {
                let slot = self.map(Role::Devices, || MapNeed {
                    role: Role::Devices,
                    name: "ng_devices".into(),
                    kind: MapKind::DevMap,
                    key: 4,
                    value: 4,
                    entries: devices,
                    content: vec![],
                    meaning: "devices".into(),
                });
                self.asm.alu(Alu::Sub, R::R2, 2);
                self.asm.map_slot(R::R1, slot);
                self.asm.mov(R::R3, verdict::DROP);
                self.asm.call(Helper::RedirectMap);
                self.asm.mov_reg(VERDICT, R::R0);
                self.asm.mov(FATE, offset_of(Fate::Forwarded));
                self.asm.jump_if(Condition::Eq, VERDICT, verdict::REDIRECT, count);
                self.asm.mov(FATE, offset_of(Fate::Unsent));
                self.asm.jump(count);
            }
        }
        self.asm.place(drop);
        self.asm.mov(VERDICT, verdict::DROP);
        self.asm.mov(FATE, offset_of(Fate::Dropped));
        self.asm.jump(count);
    }

    fn count_fate(&mut self) {
        let entries = self.wish.queues;
        let slot = self.map(Role::Fates, || MapNeed {
            role: Role::Fates,
            name: "ng_fates".into(),
            kind: MapKind::PerCpuArray,
            key: 4,
            value: 8 * Fate::COUNT as u32,
            entries,
            content: vec![],
            meaning: "fates by queue".into(),
        });
        let none = self.asm.label();
        let a = &mut self.asm;
        a.load(Size::Dw, R::R1, R::R10, frame::CONTEXT);
        a.load(Size::W, R::R2, R::R1, context::RX_QUEUE_INDEX);
        a.store(Size::W, R::R10, frame::INDEX, R::R2);
        a.map_slot(R::R1, slot);
        a.mov_reg(R::R2, R::R10);
        a.alu(Alu::Add, R::R2, frame::INDEX.into());
        a.call(Helper::MapLookupElem);
        a.jump_if(Condition::Eq, R::R0, 0, none);
        a.alu_reg(Alu::Add, R::R0, FATE);
        // Not atomic: the value is this processor's own, and XDP programs do not interrupt each other.
        a.load(Size::Dw, R::R1, R::R0, 0);
        a.alu(Alu::Add, R::R1, 1);
        a.store(Size::Dw, R::R0, 0, R::R1);
        a.place(none);
    }
}
