//! Prints a program as text, one line per instruction. The text is used in golden tests and in the output of `lang
//! explain`.
//!
//! ```text
//! stage ip
//! b0: r0 = outer.family
//!     if r0 == 4 then b2 else b1
//! ```

use super::{
    BlockId, Cmp, End, Expiry, Fact, FragmentScope, Inst, Layer, Log, Map, Meta, Op, Operand, Program, Reg, Set, Var,
};
use std::fmt;

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, map) in self.maps.iter().enumerate() {
            writeln!(f, "map {i} = {map}")?;
        }
        for (i, set) in self.sets.iter().enumerate() {
            match set {
                Set::Ranges(ranges) => writeln!(f, "set {i} = {} ranges", ranges.len())?,
                Set::Host => writeln!(f, "set {i} = addresses of the interface")?,
            }
        }
        for (i, detector) in self.detectors.iter().enumerate() {
            writeln!(f, "detector {i} = within {} ms", detector.window / 1_000_000)?;
        }
        for (i, block) in self.blocks.iter().enumerate() {
            if let Ok(stage) = self.stages.binary_search_by_key(&i, |s| s.first.0 as usize) {
                writeln!(f, "stage {}", self.stages[stage].text)?;
            }
            let mut lead = format!("b{i}:");
            for inst in &block.code {
                writeln!(f, "{lead:<5} {}", Named(self, inst))?;
                lead.clear();
            }
            writeln!(f, "{lead:<5} {}", block.end)?;
        }
        Ok(())
    }
}

impl fmt::Display for Map {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} by {} ({} words), {} entries", self.name, self.key, self.words, self.capacity)?;
        match self.expiry {
            Expiry::Never => Ok(()),
            Expiry::Idle(ns) => write!(f, ", idle {} ms", ns / 1_000_000),
            Expiry::Lifetime(ns) => write!(f, ", for {} ms", ns / 1_000_000),
        }
    }
}

/// Prints an instruction with the names of the egress interfaces, messages, maps and sets to which it refers.
struct Named<'a>(&'a Program, &'a Inst);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let map = |m: &u16| self.0.maps.get(usize::from(*m)).map_or("?", |m| &m.name);
        let text = |table: &[String], i: &u16| format!("{:?}", table.get(usize::from(*i)).map_or("?", |t| t));
        match self.1 {
            Inst::Const { to, value } => write!(f, "{to} = {}", Operand::Imm(*value)),
            Inst::Copy { to, from } => write!(f, "{to} = {from}"),
            Inst::Op { to, op, a, b } => write!(f, "{to} = {a} {op} {b}"),
            Inst::Is { to, cmp, a, b } => write!(f, "{to} = {a} {cmp} {b}"),
            Inst::Mix { to, from } => write!(f, "{to} = mix {from}"),
            Inst::Fact { to, layer, fact } => write!(f, "{to} = {layer}.{fact}"),
            Inst::Meta { to, meta } => write!(f, "{to} = packet.{meta}"),
            Inst::Load { to, base, offset, width } => {
                write!(f, "{to} = {}:{width}", Location(*base, *offset))
            }
            Inst::Get { to, var } => write!(f, "{to} = {var}"),
            Inst::Set { var, from } => write!(f, "{var} = {from}"),
            Inst::Member { to, set, hi, lo } => write!(f, "{to} = {hi} {lo} in set {set}"),
            Inst::Has { to, map: m, key } => write!(f, "{to} = has {}[{}]", map(m), InstText(key)),
            Inst::MapGet { to, map: m, key } => write!(f, "{to} = {}[{}]", map(m), InstText(key)),
            Inst::MapPut { map: m, key, value } => write!(f, "{}[{}] = {value}", map(m), InstText(key)),
            Inst::MapAdd { to, map: m, key, by } => write!(f, "{to} = {}[{}] += {by}", map(m), InstText(key)),
            Inst::MapDelete { map: m, key } => write!(f, "delete {}[{}]", map(m), InstText(key)),
            Inst::Datagram { to, parts, form, value } => write!(f, "{to} = {parts}.datagram {form:#x} else {value}"),
            Inst::Duplicate { to, detector } => write!(f, "{to} = duplicate {detector}"),
            Inst::Count { counter, by } => write!(f, "counter {counter} += {by}"),
            Inst::Forward { interface } => write!(f, "forward {}", text(&self.0.egress_interfaces, interface)),
            Inst::Kernel => f.write_str("kernel"),
            Inst::Log(Log::Message(m)) => write!(f, "log {}", text(&self.0.messages, m)),
            Inst::Log(Log::Packet) => f.write_str("log packet"),
            Inst::Log(Log::Buffer) => f.write_str("log bytes"),
            Inst::Log(Log::Trace) => f.write_str("log record"),
        }
    }
}

struct InstText<'a>(&'a [Reg]);

impl fmt::Display for InstText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, r) in self.0.iter().enumerate() {
            let gap = if i == 0 { "" } else { " " };
            write!(f, "{gap}{r}")?;
        }
        Ok(())
    }
}

struct Location(Option<Reg>, u32);

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => write!(f, "[{}]", self.1),
            Some(base) => write!(f, "[{base} + {}]", self.1),
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Jump(to) => write!(f, "to {to}"),
            Self::If { cmp, a, b, yes, no } => write!(f, "if {a} {cmp} {b} then {yes} else {no}"),
            Self::Fits { base, offset, len, yes, no } => {
                write!(f, "if {} has {len} bytes then {yes} else {no}", Location(*base, *offset))
            }
            Self::Pass => f.write_str("pass"),
            Self::Drop => f.write_str("drop"),
        }
    }
}

impl fmt::Display for Reg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "r{}", self.0)
    }
}

impl fmt::Display for BlockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b{}", self.0)
    }
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reg(r) => r.fmt(f),
            Self::Imm(n) if *n < 10_000 => write!(f, "{n}"),
            Self::Imm(n) => write!(f, "{n:#x}"),
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Add => "+",
            Self::Sub => "-",
            Self::Mul => "*",
            Self::Div => "/",
            Self::Rem => "%",
            Self::And => "&",
            Self::Or => "|",
            Self::Xor => "^",
            Self::Shl => "<<",
            Self::Shr => ">>",
            Self::Min => "min",
            Self::Max => "max",
        })
    }
}

impl fmt::Display for Cmp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Eq => "==",
            Self::Ne => "!=",
            Self::Lt => "<",
            Self::Le => "<=",
            Self::Gt => ">",
            Self::Ge => ">=",
            Self::AnyBit => "any",
            Self::AllBits => "all",
        })
    }
}

/// Prints the name of an enum variant in lower case.
macro_rules! lower_case {
    ($($t:ty),*) => {$(
        impl fmt::Display for $t {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&format!("{self:?}").to_lowercase())
            }
        }
    )*};
}

lower_case!(Layer, FragmentScope, Fact, Meta, Var, super::VerdictKind);
