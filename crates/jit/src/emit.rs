//! Translates the IR to Cranelift's IR. The result is one function that evaluates a batch of packets: the blocks of the
//! program are inside a loop over packets.
//!
//! ```text
//! entry:  end = packets + count · size
//! head:   packet == end → return, else a new verdict record        registers and record are SSA variables
//! tests:  common case? → b0 of the program for this case           `emit/common_case.rs`
//! look:   parse the headers, unless they are parsed → b0 of the whole program
//! b0 … bn the blocks of the program                                once for each form
//! exit:   record → verdict; next packet → head                     once for each form
//! ```
//! The *tests* recognise packets of a common case, for which a smaller program runs. *b0 … bn* are the blocks of a
//! program. They are emitted once for each specialisation of the program (*form* in the drawing).
//!
//! **The generated code cannot fault.** Only [`Emitter::bytes`] (`emit/bytes.rs`) loads packet bytes, and the verifier
//! has proved that every path to such a load passes an [`End::Fits`] that tests these bytes. Division by zero is
//! excluded. All other loads and stores have a fixed offset in a packet, a verdict or the context. Hence no traps or
//! signal handlers are needed.
//!
//! Packet bytes and the facts from the capture source do not change while a program runs, so their loads are marked as
//! movable: the optimizer may merge the loads and move them *down* to the uses of their values. The optimizer does not
//! move a load up across a branch, because it hoists only values that do not depend on the loop, and every load depends
//! on the packet.
//!
//! The same program is also emitted as a prefetch function ([`Task::Prefetch`]). This function has no effects; at each
//! access to a flow map it only announces the key to the table of the map, and continues with 0 as the result of the
//! access. Because of this result, the prefetch function may take another path than the evaluation. It then announces
//! keys that are not needed, which costs time but does not change a result.

mod bytes;
mod common_case;
mod number;

use crate::frame;
use crate::host::{self, HostCall};
use crate::packet::{ParseDepth, at};
use crate::refusal::Refusal;
use crate::specialisations::Specialisations;
use crate::task::{PARAMETERS, Task};
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

/// The fields of the verdict record, with their types and their offsets in a verdict.
const RECORD: [(Var, Type, usize); 6] = [
    (Var::Classes, I64, at::CLASSES),
    (Var::Hash, I32, at::HASH),
    (Var::Hash2, I32, at::HASH2),
    (Var::Mark, I32, at::OUT_MARK),
    (Var::State, I32, at::STATE),
    (Var::Kind, I8, at::KIND),
];

/// Flags of loads from aligned addresses in mapped memory that is not written while the code runs.
const FIXED: MemFlagsData = MemFlagsData::trusted().with_readonly().with_can_move();
/// Flags of loads of packet facts that were computed from the headers. Unlike [`FIXED`], they do not mark the memory as
/// constant, because the generated code itself writes some of these facts before the blocks of the program run.
const FOUND: MemFlagsData = MemFlagsData::trusted();

/// Emits the function into `func`.
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
        .map_err(|_| Refusal::Bug("a parameter of the function is missing".into()))?;
    let key = b.create_sized_stack_slot(StackSlotData::new(StackSlotKind::ExplicitSlot, 8 * MAX_KEY_WORDS as u32, 3));
    let mut variable = |ty| b.declare_var(ty);
    let [packet, verdict, number] = [I64; 3].map(&mut variable);
    let record = [I64; 6].map(&mut variable);
    let (kernel, registers) = (variable(I8), (0..form.whole.registers).map(|_| variable(I64)).collect());
    let [head, start, finish] = [(); 3].map(|()| b.create_block());

    let (packet_size, verdict_size) = match task {
        Task::Match => (frame::at::FRAME, 1),
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

/// For each block of the program: true if it is reachable.
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
    /// The stack slot in which the words of a key are passed to a function of a flow map.
    key: StackSlot,
    context: Value,
    /// Address of the packet.
    here: Value,
    /// Address of the packet's bytes.
    start: Value,
    len: Value,
    number: Variable,
    verdict: Variable,
    record: [Variable; 6],
    kernel: Variable,
    registers: Vec<Variable>,
    /// The blocks of the program that is being emitted.
    blocks: Vec<Option<ir::Block>>,
    /// The block to which the program jumps at its end.
    exit: ir::Block,
}

impl Emitter<'_> {
    /// Continues code generation in a block whose predecessors are all emitted.
    fn on_in(&mut self, block: ir::Block) {
        self.b.switch_to_block(block);
        self.b.seal_block(block);
    }

    /// Emits a program as code that begins at the current position and ends with the jump to the next packet.
    fn run(&mut self, program: &Program, head: ir::Block, step: &[(Variable, usize)]) -> Result<(), Refusal> {
        self.blocks = reached(program).iter().map(|r| r.then(|| self.b.create_block())).collect();
        self.exit = self.b.create_block();
        let first = self.label(BlockId(0));
        self.b.ins().jump(first, &[]);
        for (at, block) in program.blocks.iter().enumerate() {
            let Some(label) = self.blocks[at] else { continue };
            // Jumps lead only to later blocks, so all predecessors of this block are already emitted.
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

    /// Emits a call of the header parser. The code skips the call for packets whose headers are already parsed to this
    /// depth.
    fn look(&mut self, depth: ParseDepth) -> Result<(), Refusal> {
        let [look, known] = [(); 2].map(|()| self.b.create_block());
        let far = self.b.ins().load(I16, FOUND, self.here, at::KNOWN as i32);
        let enough = self.b.ins().icmp_imm_s(IntCC::UnsignedGreaterThanOrEqual, far, depth as i64);
        self.b.ins().brif(enough, known, &[], look, &[]);
        self.on_in(look);
        let depth = self.number(depth as u64);
        self.call(HostCall::ParseDepth, 0, &[self.here, depth])?;
        self.b.ins().jump(known, &[]);
        self.on_in(known);
        Ok(())
    }

    /// Emits the initial values of the verdict record.
    fn begin(&mut self, start: ir::Block) {
        self.on_in(start);
        let zero = self.number(0);
        let mark = if self.task == Task::Match {
            self.start = self.fixed(I64, self.here, frame::at::START);
            self.len = self.wide(I32, frame::at::LEN);
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

    /// Emits the stores of the verdict record into the verdict. A filter ([`Task::Match`]) stores only whether the
    /// frame matches, a prefetch function stores nothing, and an evaluation stores all variables of the record.
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
        // A reachable block has only reachable targets, so the block `exit` stands only for targets of unreachable
        // blocks.
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
            Inst::Meta { meta: Meta::WireLen, .. } if self.task == Task::Match => self.wide(I32, frame::at::WIRE_LEN),
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
            Inst::Duplicate { detector, .. } => self.duplicate(*detector)?,
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
            Inst::Forward { interface } => self.act(Action::Forward(interface))?,
            Inst::Log(log) => {
                if log == Log::Trace {
                    // The function that records the trace reads the verdict record from the verdict. So its present
                    // values are stored there before the call; the stores at the end of the program overwrite them.
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
            // A verdict kind with an unknown number is stored as `Drop`.
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

    /// Emits code that computes the value of [`Inst::Datagram`]. For a fragment, the code calls fragment tracking; the
    /// call is marked as cold code, because few packets are fragments. The prefetch function must not have effects, so
    /// it does not call fragment tracking and uses the operand `value`.
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

    /// Emits a call of a detector of duplicates. The prefetch function must not have effects, so it does not call the
    /// detector and continues as for a packet that is no duplicate.
    fn duplicate(&mut self, detector: u16) -> Result<Value, Refusal> {
        if !self.task.is_evaluation() {
            return Ok(self.number(0));
        }
        let detectors = self.fixed(I64, self.context, host::at::DETECTORS);
        let detector = self.number(detector.into());
        self.call(HostCall::Duplicate, 0, &[detectors, self.here, detector])
    }

    /// Emits a call of a function of a flow map, whose table is in the context.
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

    /// Emits a call of a Rust function. The result is 0 if the function returns no value.
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
            Some(value) => Ok(*value),
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

    /// Emits a load of a fact that was computed from the headers.
    fn found(&mut self, ty: Type, at: usize) -> Value {
        let value = self.b.ins().load(ty, FOUND, self.here, at as i32);
        self.b.ins().uextend(I64, value)
    }

    /// Emits a load of a fact from the capture source.
    fn wide(&mut self, ty: Type, at: usize) -> Value {
        let value = self.fixed(ty, self.here, at);
        if ty == I64 { value } else { self.b.ins().uextend(I64, value) }
    }
}

fn signature(module: &dyn Module, host: HostCall) -> ir::Signature {
    let mut signature = module.make_signature();
    let (arguments, returns_value) = host.shape();
    signature.params.extend(arguments.iter().map(|bits| ir::AbiParam::new(if *bits == 32 { I32 } else { I64 })));
    if returns_value {
        signature.returns.push(ir::AbiParam::new(I64));
    }
    signature
}

/// The symbol of a Rust function, by which the linker finds the function.
pub(crate) fn symbol(host: HostCall, words: u8) -> String {
    format!("netgrain_{host:?}_{words}")
}
