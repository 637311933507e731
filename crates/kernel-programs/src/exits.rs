//! Where packets leave the program: each way out decides the verdict, and each counts what became of the packet, once.

use super::compile::{Emitter, context, verdict};
use super::{MapKind, MapRequirement, Metadata, PacketOutcome, QueueGenerations, Role, ToUser, frame, meta};
use ebpf::{Alu, Condition, Helper, Label, Reg as R, Size};

/// Registers of the exits: the verdict, where in the counters the fate is, and the queue.
const VERDICT: R = R::R6;
const OUTCOME: R = R::R7;
const QUEUE: R = R::R8;

const fn offset_of(fate: PacketOutcome) -> i32 {
    8 * fate as i32
}

impl Emitter<'_> {
    pub(super) fn leave(&mut self) {
        let [over, count, stack] = [(); 3].map(|()| self.asm.label());
        let record = self.asm.label();
        self.asm.place(self.exits.undecided);
        if self.metadata == Metadata::Full {
            self.asm.store_imm(Size::B, R::R10, frame::RECORD + meta::at::STAGES as i16, 0);
        }
        self.asm.mov(OUTCOME, offset_of(PacketOutcome::Undecided));
        self.asm.jump(record);

        self.asm.place(self.exits.user);
        self.asm.mov(OUTCOME, offset_of(PacketOutcome::User));
        self.asm.place(record);
        self.queue();
        match self.metadata {
            // As below.
            Metadata::None => self.asm.mov(OUTCOME, offset_of(PacketOutcome::Undecided)),
            Metadata::Full => self.write_record(),
            Metadata::Compact => {
                if self.done == 0 {
                    self.unless_generation_known(over);
                }
                self.write_compact();
            }
        }
        self.asm.place(over);
        self.hand_over(count, stack);

        self.asm.place(self.exits.silent);
        if self.metadata == Metadata::Full || self.done > 0 {
            // What cannot be told is not decided. (Where all is judged again, there was nothing to be told.)
            self.asm.mov(OUTCOME, offset_of(PacketOutcome::Undecided));
        }
        self.queue();
        if self.metadata != Metadata::None {
            self.write_last_untagged(over);
        }
        self.asm.jump(over);

        self.asm.place(self.exits.drop);
        self.queue();
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
        self.count_outcome();
        self.asm.mov_reg(R::R0, VERDICT);
        self.asm.exit();
    }

    /// Which queue it came from.
    fn queue(&mut self) {
        self.asm.load(Size::Dw, R::R1, R::R10, frame::CONTEXT);
        self.asm.load(Size::W, QUEUE, R::R1, context::RX_QUEUE_INDEX);
    }

    /// r1 = what both sides know of the queue, or to `unknown` if the port had fewer queues.
    fn known_of_queue(&mut self, unknown: Label) {
        let queues = self.options.queues;
        let slot = self.map(Role::Generations, || MapRequirement {
            role: Role::Generations,
            name: "ng_seen".into(),
            kind: MapKind::Array,
            key: 4,
            value: QueueGenerations::BYTES as u32 * queues,
            entries: 1,
            content: vec![],
            semantics: "programs seen by queue".into(),
        });
        let a = &mut self.asm;
        a.jump_if(Condition::Ge, QUEUE, queues as i32, unknown);
        a.value_slot(R::R1, slot);
        a.mov_reg(R::R2, QUEUE);
        a.alu(Alu::Shl, R::R2, QueueGenerations::BYTES.ilog2() as i32);
        a.alu_reg(Alu::Add, R::R1, R::R2);
    }

    /// To `over` if the queue's other half has seen a packet of this program: nothing need be said any more.
    fn unless_generation_known(&mut self, over: Label) {
        let say = self.asm.label();
        self.known_of_queue(say);
        self.asm.load(Size::W, R::R1, R::R1, QueueGenerations::BY_USER as i16);
        self.asm.jump_if(Condition::Eq, R::R1, self.options.generation as i32, over);
        self.asm.place(say);
    }

    /// Nothing can be said before a packet, so it is said beside it.
    fn write_last_untagged(&mut self, over: Label) {
        self.known_of_queue(over);
        self.asm.store_imm(Size::W, R::R1, QueueGenerations::LAST_UNTAGGED as i16, self.options.generation as i32);
    }

    /// The record goes before the packet.
    fn write_record(&mut self) {
        let (a, none) = (&mut self.asm, self.exits.silent);
        a.load(Size::Dw, R::R3, R::R10, frame::CONTEXT);
        a.load(Size::W, R::R1, R::R3, context::DATA_META);
        a.load(Size::W, R::R2, R::R3, context::DATA);
        a.mov_reg(R::R0, R::R1);
        a.alu(Alu::Add, R::R0, meta::METADATA_BYTES as i32);
        // It is there, but the verifier wants to see that for itself.
        a.jump_if_reg(Condition::Gt, R::R0, R::R2, none);
        for at in (0..meta::METADATA_BYTES as i16).step_by(8) {
            a.load(Size::Dw, R::R0, R::R10, frame::RECORD + at);
            a.store(Size::Dw, R::R1, at, R::R0);
        }
    }

    /// The least goes before the packet, if there is room.
    fn write_compact(&mut self) {
        let (a, none) = (&mut self.asm, self.exits.silent);
        a.load(Size::Dw, R::R1, R::R10, frame::CONTEXT);
        a.mov(R::R2, -(meta::COMPACT_BYTES as i32));
        a.call(Helper::XdpAdjustMeta);
        a.jump_if(Condition::Ne, R::R0, 0, none);
        a.load(Size::Dw, R::R3, R::R10, frame::CONTEXT);
        a.load(Size::W, R::R1, R::R3, context::DATA_META);
        a.load(Size::W, R::R2, R::R3, context::DATA);
        a.mov_reg(R::R0, R::R1);
        a.alu(Alu::Add, R::R0, meta::COMPACT_BYTES as i32);
        a.jump_if_reg(Condition::Gt, R::R0, R::R2, none);
        let least = |stages| meta::least(self.options.generation, stages) as i32;
        a.store_imm(Size::W, R::R1, 0, least(self.done));
        if self.done > 0 {
            let decided = a.label();
            a.jump_if(Condition::Eq, OUTCOME, offset_of(PacketOutcome::User), decided);
            a.store_imm(Size::W, R::R1, 0, least(0));
            a.place(decided);
        }
    }

    /// To the socket of the queue; to the stack where there is none.
    fn hand_over(&mut self, count: Label, stack: Label) {
        match self.options.to_user {
            ToUser::Verdict(n) => self.asm.mov(VERDICT, n.into()),
            ToUser::Sockets => {
                let entries = self.options.queues;
                let slot = self.map(Role::Sockets, || MapRequirement {
                    role: Role::Sockets,
                    name: "ng_sockets".into(),
                    kind: MapKind::XskMap,
                    key: 4,
                    value: 4,
                    entries,
                    content: vec![],
                    semantics: "sockets by queue".into(),
                });
                let claimed = self.asm.label();
                self.asm.mov_reg(R::R2, QUEUE);
                self.asm.map_slot(R::R1, slot);
                self.asm.mov(R::R3, verdict::PASS);
                self.asm.call(Helper::RedirectMap);
                self.asm.mov_reg(VERDICT, R::R0);
                self.asm.jump_if(Condition::Eq, VERDICT, verdict::REDIRECT, claimed);
                self.asm.mov(OUTCOME, offset_of(PacketOutcome::Unclaimed));
                self.asm.jump(stack);
                self.asm.place(claimed);
            }
        }
        self.asm.jump(count);
    }

    /// Nowhere, or where the program said before.
    fn dropped(&mut self, count: Label, stack: Label) {
        let drop = self.asm.label();
        if self.needs.sink {
            let devices = self.form.program.devices.len() as u32;
            self.asm.load(Size::H, R::R2, R::R10, frame::fact::SINK);
            self.asm.jump_if(Condition::Eq, R::R2, 0, drop);
            self.asm.mov(OUTCOME, offset_of(PacketOutcome::Kernel));
            self.asm.jump_if(Condition::Eq, R::R2, 1, stack);
            if devices > 0 {
                let slot = self.map(Role::Devices, || MapRequirement {
                    role: Role::Devices,
                    name: "ng_devices".into(),
                    kind: MapKind::DevMap,
                    key: 4,
                    value: 4,
                    entries: devices,
                    content: vec![],
                    semantics: "devices".into(),
                });
                self.asm.alu(Alu::Sub, R::R2, 2);
                self.asm.map_slot(R::R1, slot);
                self.asm.mov(R::R3, verdict::DROP);
                self.asm.call(Helper::RedirectMap);
                self.asm.mov_reg(VERDICT, R::R0);
                self.asm.mov(OUTCOME, offset_of(PacketOutcome::Forwarded));
                self.asm.jump_if(Condition::Eq, VERDICT, verdict::REDIRECT, count);
                self.asm.mov(OUTCOME, offset_of(PacketOutcome::Unsent));
                self.asm.jump(count);
            }
        }
        self.asm.place(drop);
        self.asm.mov(VERDICT, verdict::DROP);
        self.asm.mov(OUTCOME, offset_of(PacketOutcome::Dropped));
        self.asm.jump(count);
    }

    fn count_outcome(&mut self) {
        let entries = self.options.queues;
        let slot = self.map(Role::Outcomes, || MapRequirement {
            role: Role::Outcomes,
            name: "ng_fates".into(),
            kind: MapKind::PerCpuArray,
            key: 4,
            value: 8 * PacketOutcome::COUNT as u32,
            entries,
            content: vec![],
            semantics: "fates by queue".into(),
        });
        let none = self.asm.label();
        let a = &mut self.asm;
        a.store(Size::W, R::R10, frame::INDEX, QUEUE);
        a.map_slot(R::R1, slot);
        a.mov_reg(R::R2, R::R10);
        a.alu(Alu::Add, R::R2, frame::INDEX.into());
        a.call(Helper::MapLookupElem);
        a.jump_if(Condition::Eq, R::R0, 0, none);
        a.alu_reg(Alu::Add, R::R0, OUTCOME);
        // Not atomic: the value is this processor's own, and XDP programs do not interrupt each other.
        a.load(Size::Dw, R::R1, R::R0, 0);
        a.alu(Alu::Add, R::R1, 1);
        a.store(Size::Dw, R::R0, 0, R::R1);
        a.place(none);
    }
}
