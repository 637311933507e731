//! Emits the exits of a kernel program. Each packet leaves the program through one exit, which sets the return value of
//! the program and counts the outcome of the packet once.

use super::{Emitter, context, verdict};
use crate::{MapKind, MapRequirement, Metadata, PacketOutcome, QueueGenerations, Role, ToUser, frame, meta};
use ebpf::{Alu, Condition, Helper, Label, Reg as R, Size};

/// These are the registers that the code of the exits uses, in this order: for the return value, for the byte offset of
/// the outcome's counter, and for the queue number.
const VERDICT: R = R::R6;
const OUTCOME: R = R::R7;
const QUEUE: R = R::R8;

const fn offset_of(outcome: PacketOutcome) -> i32 {
    8 * outcome as i32
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
            // User space cannot learn the decision without metadata, so the packet counts as undecided.
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
            // User space cannot learn the decision without metadata, so the packet counts as undecided. This does not
            // apply if user space evaluates every packet from the first stage on: metadata would then contain no
            // verdict, so their absence loses nothing, and the packet keeps its outcome `User` or `Undecided`.
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
            // The host's stack must get the packet without metadata, so the metadata are removed. If the packet has no
            // metadata, the adjustment is by 0 bytes.
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

    /// Loads the number of the receive queue on which the packet arrived.
    fn queue(&mut self) {
        self.asm.load(Size::Dw, R::R1, R::R10, frame::CONTEXT);
        self.asm.load(Size::W, QUEUE, R::R1, context::RX_QUEUE_INDEX);
    }

    /// Loads the address of the [`QueueGenerations`] of the queue into r1. Jumps to `unknown` for a queue that did not
    /// exist when the program was compiled.
    fn known_of_queue(&mut self, unknown: Label) {
        let queues = self.options.queues;
        let slot = self.map(Role::Generations, || MapRequirement {
            role: Role::Generations,
            name: "ng_generations".into(),
            kind: MapKind::Array,
            key: 4,
            value: QueueGenerations::BYTES as u32 * queues,
            entries: 1,
            content: vec![],
            semantics: "generations by queue".into(),
        });
        let a = &mut self.asm;
        a.jump_if(Condition::Ge, QUEUE, queues as i32, unknown);
        a.value_slot(R::R1, slot);
        a.mov_reg(R::R2, QUEUE);
        a.alu(Alu::Shl, R::R2, QueueGenerations::BYTES.ilog2() as i32);
        a.alu_reg(Alu::Add, R::R1, R::R2);
    }

    /// Jumps to `over` if user space has received a packet of this program from the queue: later packets of the program
    /// need no metadata.
    fn unless_generation_known(&mut self, over: Label) {
        let unseen = self.asm.label();
        self.known_of_queue(unseen);
        self.asm.load(Size::W, R::R1, R::R1, QueueGenerations::BY_USER as i16);
        self.asm.jump_if(Condition::Eq, R::R1, self.options.generation as i32, over);
        self.asm.place(unseen);
    }

    /// Writes the generation of this program into `last_untagged` of the queue, because packets of this program arrive
    /// in user space without metadata.
    fn write_last_untagged(&mut self, over: Label) {
        self.known_of_queue(over);
        self.asm.store_imm(Size::W, R::R1, QueueGenerations::LAST_UNTAGGED as i16, self.options.generation as i32);
    }

    /// Copies the verdict record into the space before the packet.
    fn write_record(&mut self) {
        let (a, none) = (&mut self.asm, self.exits.silent);
        a.load(Size::Dw, R::R3, R::R10, frame::CONTEXT);
        a.load(Size::W, R::R1, R::R3, context::DATA_META);
        a.load(Size::W, R::R2, R::R3, context::DATA);
        a.mov_reg(R::R0, R::R1);
        a.alu(Alu::Add, R::R0, meta::METADATA_BYTES as i32);
        // The prologue has reserved the space for metadata, so the test cannot fail, but the kernel's verifier requires
        // the test.
        a.jump_if_reg(Condition::Gt, R::R0, R::R2, none);
        for at in (0..meta::METADATA_BYTES as i16).step_by(8) {
            a.load(Size::Dw, R::R0, R::R10, frame::RECORD + at);
            a.store(Size::Dw, R::R1, at, R::R0);
        }
    }

    /// Writes the compact metadata before the packet. If the driver leaves no space there, jumps to the exit without
    /// metadata.
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

    /// Redirects the packet to the AF_XDP socket of its queue, or passes it to the host's stack if the queue has no
    /// socket.
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

    /// Ends the processing of a packet with verdict `drop`: the packet is dropped, unless the program has requested
    /// that it be sent through a device or passed to the host's stack.
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
            name: "ng_outcomes".into(),
            kind: MapKind::PerCpuArray,
            key: 4,
            value: 8 * PacketOutcome::COUNT as u32,
            entries,
            content: vec![],
            semantics: "outcomes by queue".into(),
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
        // The addition need not be atomic: each CPU has its own value, and XDP programs do not interrupt each other.
        a.load(Size::Dw, R::R1, R::R0, 0);
        a.alu(Alu::Add, R::R1, 1);
        a.store(Size::Dw, R::R0, 0, R::R1);
        a.place(none);
    }
}
