//! From the intermediate form to Cranelift's: one function over a batch, the program's blocks inside a loop over packets.
//!
//! ```text
//! entry:  end = packets + count · size
//! head:   packet == end → return, else a fresh record              registers and record are SSA variables
//! tests:  is it plain? → b0 of the program for such packets        `emit/common_case.rs`
//! look:   are its headers known? else find them → b0 of the whole program
//! b0 … bn a program's, one for one                                 once for each form
//! exit:   record → verdict; next packet → head                     once for each form
//! ```
//! **Nothing here can fault.** Bytes of a packet are loaded by [`Emitter::bytes`] alone (`emit/bytes.rs`), which the verifier has proved to lie behind
//! a [`End::Fits`] on every way; division is kept from 0; everything else that is read or written has a fixed place in a packet, a
//! verdict or the context. So there are no traps to handle and no signal handlers.
//!
//! Bytes and what the source said do not change while a program runs, so their loads are marked as free to be merged and moved *down* to their
//! uses. The optimizer moves none up across a branch: it hoists only what does not depend on the loop, and every load
//! depends on the packet.
//!
//! The same program is emitted a second time as a *scout* ([`Task::Prefetch`]): without effects, and with each access to a table
//! replaced by a word to the table that this key will be asked about. What an access would have answered is taken to be 0; a
//! scout that is led astray by that announces in vain and harms nothing.

mod bytes;
mod common_case;
mod number;

use crate::host::{self, HostCall};
use crate::matcher;
use crate::packet::{ParseDepth, at};
use crate::refusal::Refusal;
use crate::specialisations::Specialisations;
use ::ir::interp::Action;
use ::ir::{
    BlockId, DEFAULT_CLASS, End, FragmentScope, Inst, Log, MAX_KEY_WORDS, Meta, Operand, Program, Reg, Set, Var,
    VerdictKind,
};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I8, I16, I32, I64};
use cranelift_codegen::ir::{self, InstBuilder, MemFlagsData, StackSlot, StackSlotData, StackSlotKind, Type, Value};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext, Variable};
use cranelift_module::{Linkage, Module};
use std::collections::HashMap;

/// What a function is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Task {
    /// Judging.
    Evaluate = 0,
    /// The same, from the record that the verdict holds already: the first part of the program ran elsewhere.
    Resume,
    /// Announcing the keys that judging will ask tables about.
    Prefetch,
    /// Saying whether frames match; no context, no record that leaves the loop but for its kind.
    Match,
}

impl Task {
    const fn is_evaluation(self) -> bool {
        matches!(self, Self::Evaluate | Self::Resume)
    }
}

/// Where the record is in a verdict, and how wide.
const RECORD: [(Var, Type, usize); 6] = [
    (Var::Classes, I64, at::CLASSES),
    (Var::Hash, I32, at::HASH),
    (Var::Hash2, I32, at::HASH2),
    (Var::Mark, I32, at::OUT_MARK),
    (Var::State, I32, at::STATE),
    (Var::Kind, I8, at::KIND),
];

/// The parameters of both functions: context, packets, verdicts, how many, and the number of the first among those judged
/// together.
pub(crate) const PARAMETERS: usize = 5;

/// Fixed places: they are aligned, they exist, and nothing writes them while the code runs.
const FIXED: MemFlagsData = MemFlagsData::trusted().with_readonly().with_can_move();
/// What was found of the headers: written before the program begins, by the code itself if need be.
const FOUND: MemFlagsData = MemFlagsData::trusted();

/// Writes the function into `func`.
pub(crate) fn emit(
    form: &Specialisations,
    task: Task,
    module: &mut dyn Module,
    func: &mut ir::Function,
    scratch: &mut FunctionBuilderContext,
) -> Result<(), Refusal> {
    let config = module.target_config();
    let mut b = FunctionBuilder::new(func, scratch);
    let entry = b.create_block();
    b.append_block_params_for_function_params(entry);
    b.switch_to_block(entry);
    b.seal_block(entry);
    let [context, packets, verdicts, count, first] = <[Value; PARAMETERS]>::try_from(b.block_params(entry))
        .map_err(|_| Refusal::Bug("a parameter of the batch is missing".into()))?;
    let key = b.create_sized_stack_slot(StackSlotData::new(StackSlotKind::ExplicitSlot, 8 * MAX_KEY_WORDS as u32, 3));
    let mut variable = |ty| b.declare_var(ty);
    let [packet, verdict, number] = [I64; 3].map(&mut variable);
    let record = [I64; 6].map(&mut variable);
    let (kernel, registers) = (variable(I8), (0..form.whole.registers).map(|_| variable(I64)).collect());
    let [head, start, finish] = [(); 3].map(|()| b.create_block());

    let (packet_size, verdict_size) = match task {
        Task::Match => (matcher::at::FRAME, 1),
        Task::Evaluate | Task::Resume | Task::Prefetch => (at::PACKET, at::VERDICT),
    };
    let size = b.ins().iconst(I64, packet_size as i64);
    let bytes = b.ins().imul(count, size);
    let end = b.ins().iadd(packets, bytes);
    b.def_var(packet, packets);
    b.def_var(verdict, verdicts);
    b.def_var(number, first);
    b.ins().jump(head, &[]);

    b.switch_to_block(head);
    let here = b.use_var(packet);
    let done = b.ins().icmp(IntCC::Equal, here, end);
    b.ins().brif(done, finish, &[], start, &[]);

    let mut e = Emitter {
        b,
        sets: &form.whole.sets,
        task,
        module,
        imports: HashMap::new(),
        key,
        context,
        here,
        start: here,
        len: here,
        number,
        verdict,
        record,
        kernel,
        registers,
        blocks: vec![],
        exit: head,
    };
    e.begin(start);
    let step = [(packet, packet_size), (verdict, verdict_size), (number, 1)];
    if !form.common_case.is_empty() {
        let any = e.b.create_block();
        e.is_unparsed_ethernet(any);
        for (shape, program) in &form.common_case {
            let other = e.b.create_block();
            e.is_common_case(*shape, form.parse_depth, other);
            e.run(program, head, &step)?;
            e.on_in(other);
        }
        e.b.ins().jump(any, &[]);
        e.on_in(any);
    }
    if form.parse_depth > ParseDepth::Bytes {
        e.look(form.parse_depth)?;
    }
    e.run(&form.whole, head, &step)?;
    e.b.seal_block(head);

    e.on_in(finish);
    e.b.ins().return_(&[]);
    e.b.finalize(config);
    Ok(())
}

/// Which blocks something leads to.
fn reached(program: &Program) -> Vec<bool> {
    let mut reached = vec![false; program.blocks.len()];
    reached[0] = true;
    for (at, block) in program.blocks.iter().enumerate() {
        if reached[at] {
            block.end.targets().for_each(|t| reached[t.0 as usize] = true);
        }
    }
    reached
}

struct Emitter<'a> {
    b: FunctionBuilder<'a>,
    sets: &'a [Set],
    task: Task,
    module: &'a mut dyn Module,
    imports: HashMap<(HostCall, u8), ir::FuncRef>,
    /// Where the words of a key are put for the call about it.
    key: StackSlot,
    context: Value,
    /// The packet.
    here: Value,
    /// Its bytes.
    start: Value,
    len: Value,
    number: Variable,
    verdict: Variable,
    record: [Variable; 6],
    kernel: Variable,
    registers: Vec<Variable>,
    /// Of the program that is being written.
    blocks: Vec<Option<ir::Block>>,
    /// Of the same.
    exit: ir::Block,
}

impl Emitter<'_> {
    /// Goes on in a block to which everything leads already that ever will.
    fn on_in(&mut self, block: ir::Block) {
        self.b.switch_to_block(block);
        self.b.seal_block(block);
    }

    /// A program, from here to the next packet.
    fn run(&mut self, program: &Program, head: ir::Block, step: &[(Variable, usize)]) -> Result<(), Refusal> {
        self.blocks = reached(program).iter().map(|r| r.then(|| self.b.create_block())).collect();
        self.exit = self.b.create_block();
        let first = self.label(BlockId(0));
        self.b.ins().jump(first, &[]);
        for (at, block) in program.blocks.iter().enumerate() {
            let Some(label) = self.blocks[at] else { continue };
            // Control goes forward only: whatever leads here has been written.
            self.on_in(label);
            for inst in &block.code {
                self.inst(inst)?;
            }
            self.end(&block.end);
        }
        self.on_in(self.exit);
        self.write();
        for (variable, step) in step {
            let now = self.b.use_var(*variable);
            let step = self.number(*step as u64);
            let next = self.b.ins().iadd(now, step);
            self.b.def_var(*variable, next);
        }
        self.b.ins().jump(head, &[]);
        Ok(())
    }

    /// Finds the headers, as far as the program asks for them, unless that was done.
    fn look(&mut self, sight: ParseDepth) -> Result<(), Refusal> {
        let [look, known] = [(); 2].map(|()| self.b.create_block());
        let far = self.b.ins().load(I16, FOUND, self.here, at::KNOWN as i32);
        let enough = self.b.ins().icmp_imm_s(IntCC::UnsignedGreaterThanOrEqual, far, sight as i64);
        self.b.ins().brif(enough, known, &[], look, &[]);
        self.on_in(look);
        let sight = self.number(sight as u64);
        self.call(HostCall::ParseDepth, 0, &[self.here, sight])?;
        self.b.ins().jump(known, &[]);
        self.on_in(known);
        Ok(())
    }

    /// The record that a program begins with.
    fn begin(&mut self, start: ir::Block) {
        self.on_in(start);
        let zero = self.number(0);
        let mark = if self.task == Task::Match {
            self.start = self.fixed(I64, self.here, matcher::at::START);
            self.len = self.wide(I32, matcher::at::LEN);
            zero
        } else {
            self.start = self.fixed(I64, self.here, at::START);
            self.len = self.fixed(I64, self.here, at::LEN);
            self.wide(I32, at::MARK)
        };
        if self.task == Task::Resume {
            let from = self.b.use_var(self.verdict);
            for (var, width, at) in RECORD {
                let value = self.b.ins().load(width, MemFlagsData::trusted(), from, at as i32);
                let value = if width == I64 { value } else { self.b.ins().uextend(I64, value) };
                self.b.def_var(self.record[var as usize], value);
            }
        } else {
            for var in [Var::Hash, Var::Hash2, Var::State] {
                self.b.def_var(self.record[var as usize], zero);
            }
            let (kind, classes) = (self.number(VerdictKind::Copy as u64), self.number(DEFAULT_CLASS));
            self.b.def_var(self.record[Var::Kind as usize], kind);
            self.b.def_var(self.record[Var::Classes as usize], classes);
            self.b.def_var(self.record[Var::Mark as usize], mark);
        }
        let no = self.b.ins().iconst(I8, 0);
        self.b.def_var(self.kernel, no);
    }

    /// The record into the verdict, as far as the task wants it.
    fn write(&mut self) {
        let to = self.b.use_var(self.verdict);
        if self.task == Task::Match {
            let (kind, drop) = (self.b.use_var(self.record[Var::Kind as usize]), self.number(VerdictKind::Drop as u64));
            let passes = self.b.ins().icmp(IntCC::NotEqual, kind, drop);
            self.b.ins().store(MemFlagsData::trusted(), passes, to, 0);
        }
        if !self.task.is_evaluation() {
            return;
        }
        for (var, width, at) in RECORD {
            let value = self.b.use_var(self.record[var as usize]);
            let value = if width == I64 { value } else { self.b.ins().ireduce(width, value) };
            self.b.ins().store(MemFlagsData::trusted(), value, to, at as i32);
        }
        let kernel = self.b.use_var(self.kernel);
        self.b.ins().store(MemFlagsData::trusted(), kernel, to, at::KERNEL as i32);
    }

    fn label(&mut self, block: BlockId) -> ir::Block {
        // A block that is led to is reached; the exit stands in for what cannot be.
        self.blocks[block.0 as usize].unwrap_or(self.exit)
    }

    fn end(&mut self, end: &End) {
        match *end {
            End::Jump(to) => {
                let to = self.label(to);
                self.b.ins().jump(to, &[]);
            }
            End::If { cmp, a, b, yes, no } => {
                let holds = self.holds(cmp, a, b);
                self.branch(holds, yes, no);
            }
            End::Fits { base, offset, len, yes, no } => {
                let fits = self.fits(base, offset + len);
                self.branch(fits, yes, no);
            }
            End::Pass => _ = self.b.ins().jump(self.exit, &[]),
            End::Drop => {
                let kind = self.number(VerdictKind::Drop as u64);
                self.b.def_var(self.record[Var::Kind as usize], kind);
                self.b.ins().jump(self.exit, &[]);
            }
        }
    }

    fn branch(&mut self, condition: Value, yes: BlockId, no: BlockId) {
        let (yes, no) = (self.label(yes), self.label(no));
        self.b.ins().brif(condition, yes, &[], no, &[]);
    }

    fn inst(&mut self, inst: &Inst) -> Result<(), Refusal> {
        let value = match inst {
            Inst::Const { value, .. } => self.number(*value),
            Inst::Copy { from, .. } => self.reg(*from),
            Inst::Op { op, a, b, .. } => self.op(*op, *a, *b),
            Inst::Is { cmp, a, b, .. } => {
                let holds = self.holds(*cmp, *a, *b);
                self.b.ins().uextend(I64, holds)
            }
            Inst::Mix { from, .. } => self.mix(*from),
            Inst::Fact { layer, fact, .. } => {
                let (at, width) = at::fact(*layer, *fact);
                self.found(width, at)
            }
            Inst::Meta { meta: meta @ (Meta::Ethernet | Meta::Vlan | Meta::Depth | Meta::Part), .. } => {
                match at::meta(*meta) {
                    Some((at, width)) => self.found(width, at),
                    None => self.number(0),
                }
            }
            Inst::Meta { meta: Meta::Sequence, .. } => {
                let first = self.fixed(I64, self.context, host::at::SEQUENCE);
                let number = self.b.use_var(self.number);
                self.b.ins().iadd(first, number)
            }
            Inst::Meta { meta: Meta::CapLen, .. } => self.len,
            Inst::Meta { meta: Meta::WireLen, .. } if self.task == Task::Match => self.wide(I32, matcher::at::WIRE_LEN),
            Inst::Meta { meta, .. } => match at::meta(*meta) {
                Some((at, width)) => self.wide(width, at),
                None => self.fixed(I64, self.context, host::at::HASH_KEY),
            },
            Inst::Load { base, offset, width, .. } => self.bytes(*base, *offset, *width),
            Inst::Get { var, .. } => self.b.use_var(self.record[*var as usize]),
            Inst::Set { var, from } => {
                self.set(*var, *from);
                return Ok(());
            }
            Inst::Member { set, hi, lo, .. } => self.member(*set, *hi, *lo)?,
            Inst::Datagram { parts, form, value, .. } => self.datagram(*parts, *form, *value)?,
            Inst::Has { map, key, .. } => self.table(HostCall::Has, *map, key, None)?,
            Inst::MapGet { map, key, .. } => self.table(HostCall::Get, *map, key, None)?,
            Inst::MapAdd { map, key, by, .. } => self.table(HostCall::Add, *map, key, Some(*by))?,
            Inst::MapPut { map, key, value } => {
                self.table(HostCall::Put, *map, key, Some(*value))?;
                return Ok(());
            }
            Inst::MapDelete { map, key } => {
                self.table(HostCall::Delete, *map, key, None)?;
                return Ok(());
            }
            Inst::Count { .. } | Inst::Forward { .. } | Inst::Kernel | Inst::Log(_) => return self.effect(inst),
        };
        if let Some(to) = inst.target() {
            self.b.def_var(self.registers[usize::from(to.0)], value);
        }
        Ok(())
    }

    fn effect(&mut self, inst: &Inst) -> Result<(), Refusal> {
        if !self.task.is_evaluation() {
            return Ok(());
        }
        match *inst {
            Inst::Count { counter, by } => {
                let (by, counters) = (self.operand(by), self.fixed(I64, self.context, host::at::COUNTERS));
                let (flags, at) = (MemFlagsData::trusted(), 8 * i32::from(counter));
                let before = self.b.ins().load(I64, flags, counters, at);
                let after = self.b.ins().iadd(before, by);
                self.b.ins().store(flags, after, counters, at);
            }
            Inst::Kernel => {
                let yes = self.b.ins().iconst(I8, 1);
                self.b.def_var(self.kernel, yes);
            }
            Inst::Forward { device } => self.act(Action::Forward(device))?,
            Inst::Log(log) => {
                if log == Log::Trace {
                    // What stands there at the end is written once more.
                    self.write();
                    let (traces, so_far) =
                        (self.fixed(I64, self.context, host::at::TRACES), self.b.use_var(self.verdict));
                    self.call(HostCall::Trace, 0, &[traces, so_far])?;
                }
                self.act(Action::Log(log))?;
            }
            _ => (),
        }
        Ok(())
    }

    fn act(&mut self, action: Action) -> Result<(), Refusal> {
        let (acts, number) = (self.fixed(I64, self.context, host::at::ACTS), self.b.use_var(self.number));
        let code = self.b.ins().iconst(I32, i64::from(host::code(action)));
        self.call(HostCall::Act, 0, &[acts, number, code]).map(drop)
    }

    fn set(&mut self, var: Var, from: Operand) {
        let value = self.operand(from);
        let kept = match var {
            Var::Classes => value,
            // An unknown number is a drop.
            Var::Kind => {
                let (most, drop) = (self.number(VerdictKind::Pick as u64), self.number(VerdictKind::Drop as u64));
                let known = self.b.ins().icmp(IntCC::UnsignedLessThanOrEqual, value, most);
                self.b.ins().select(known, value, drop)
            }
            Var::Hash | Var::Hash2 | Var::Mark | Var::State => {
                let low = self.b.ins().ireduce(I32, value);
                self.b.ins().uextend(I64, low)
            }
        };
        self.b.def_var(self.record[var as usize], kept);
    }

    /// Few packets are parts of a datagram. A scout leaves no trace, and takes what the packet says itself.
    fn datagram(&mut self, parts: FragmentScope, form: u32, value: Operand) -> Result<Value, Refusal> {
        let value = self.operand(value);
        if !self.task.is_evaluation() {
            return Ok(value);
        }
        if let Some(here) = self.b.current_block() {
            self.b.set_cold_block(here);
        }
        let datagrams = self.fixed(I64, self.context, host::at::DATAGRAMS);
        let of = self.number(host::of_datagram(parts, form));
        self.call(HostCall::Datagram, 0, &[datagrams, self.here, of, value])
    }

    /// Asks a table of the context about a key.
    fn table(&mut self, host: HostCall, map: u16, key: &[Reg], value: Option<Operand>) -> Result<Value, Refusal> {
        for (i, word) in key.iter().enumerate() {
            let word = self.reg(*word);
            self.b.ins().stack_store(I64, word, self.key, 8 * i as i32);
        }
        let tables = self.fixed(I64, self.context, host::at::TABLES);
        let table = self.fixed(I64, tables, 8 * usize::from(map));
        let key_at = self.b.ins().stack_addr(I64, self.key, 0);
        let mut arguments = vec![table, key_at];
        let host = if self.task == Task::Prefetch { HostCall::Announce } else { host };
        if !matches!(host, HostCall::Announce | HostCall::Delete) {
            let now = self.fixed(I64, self.here, at::TIME);
            arguments.push(now);
            arguments.extend(value.map(|v| self.operand(v)));
        }
        self.call(host, key.len() as u8, &arguments)
    }

    /// Calls Rust; 0 if it does not answer.
    fn call(&mut self, host: HostCall, words: u8, arguments: &[Value]) -> Result<Value, Refusal> {
        let function = match self.imports.get(&(host, words)) {
            Some(function) => *function,
            None => {
                let signature = signature(self.module, host);
                let id = self.module.declare_function(&symbol(host, words), Linkage::Import, &signature)?;
                let function = self.module.declare_func_in_func(id, self.b.func);
                self.imports.insert((host, words), function);
                function
            }
        };
        let call = self.b.ins().call(function, arguments);
        match self.b.inst_results(call).first() {
            Some(answer) => Ok(*answer),
            None => Ok(self.number(0)),
        }
    }

    fn number(&mut self, n: u64) -> Value {
        self.b.ins().iconst(I64, n as i64)
    }

    fn reg(&mut self, r: Reg) -> Value {
        self.b.use_var(self.registers[usize::from(r.0)])
    }

    fn operand(&mut self, o: Operand) -> Value {
        match o {
            Operand::Reg(r) => self.reg(r),
            Operand::Imm(n) => self.number(n),
        }
    }

    fn fixed(&mut self, ty: Type, from: Value, at: usize) -> Value {
        self.b.ins().load(ty, FIXED, from, at as i32)
    }

    /// A number of the headers.
    fn found(&mut self, ty: Type, at: usize) -> Value {
        let value = self.b.ins().load(ty, FOUND, self.here, at as i32);
        self.b.ins().uextend(I64, value)
    }

    /// A number that the source said.
    fn wide(&mut self, ty: Type, at: usize) -> Value {
        let value = self.fixed(ty, self.here, at);
        if ty == I64 { value } else { self.b.ins().uextend(I64, value) }
    }
}

fn signature(module: &dyn Module, host: HostCall) -> ir::Signature {
    let mut signature = module.make_signature();
    let (arguments, answers) = host.shape();
    signature.params.extend(arguments.iter().map(|bits| ir::AbiParam::new(if *bits == 32 { I32 } else { I64 })));
    if answers {
        signature.returns.push(ir::AbiParam::new(I64));
    }
    signature
}

/// What a function of ours is called where the code is linked.
pub(crate) fn symbol(host: HostCall, words: u8) -> String {
    format!("netgrain_{host:?}_{words}")
}
