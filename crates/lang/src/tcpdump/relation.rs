//! The grammar of arithmetic: sums of bytes of the packet, compared.

use super::arith::{Guarded, Number};
use super::lex::{FilterError, Token};
use super::names;
use super::parse::Parser;
use super::test::Test;
use crate::ir::{Cmp, Op};

impl Parser<'_> {
    /// `a compare b`; `None` if what follows is no arithmetic.
    pub(super) fn relation(&mut self) -> Result<Option<Test>, FilterError> {
        let Some(left) = self.sum(0)? else { return Ok(None) };
        let cmp = match self.peek().text {
            ">" => Cmp::Gt,
            ">=" => Cmp::Ge,
            "<" => Cmp::Lt,
            "<=" => Cmp::Le,
            "=" | "==" => Cmp::Eq,
            "!=" => Cmp::Ne,
            _ => return Ok(None),
        };
        self.take();
        let t = self.peek();
        let right = self.sum(0)?.ok_or_else(|| t.error("a number is missing here"))?;
        let test = Test::Relation(left.number, cmp, right.number);
        Ok(Some(match super::arith::both(left.needs, right.needs) {
            Some(needs) => needs.and(test),
            None => test,
        }))
    }

    /// Operators from the weakest (level 0) to the strongest.
    fn sum(&mut self, level: usize) -> Result<Option<Guarded>, FilterError> {
        const LEVELS: [&[(&str, Op)]; 4] = [
            &[("&", Op::And), ("|", Op::Or), ("^", Op::Xor)],
            &[("<<", Op::Shl), (">>", Op::Shr)],
            &[("+", Op::Add), ("-", Op::Sub)],
            &[("*", Op::Mul), ("/", Op::Div), ("%", Op::Rem)],
        ];
        let Some(operators) = LEVELS.get(level) else { return self.operand() };
        let Some(mut left) = self.sum(level + 1)? else { return Ok(None) };
        while let Some((sign, op)) = operators.iter().find(|o| o.0 == self.peek().text).copied() {
            self.counted()?;
            let sign = Token { text: sign, ..self.take() };
            let Some(right) = self.sum(level + 1)? else { return Ok(None) };
            if matches!(op, Op::Div | Op::Rem) && right.number.constant() == Some(0) {
                return Err(sign.error("division by 0"));
            }
            if matches!(op, Op::Shl | Op::Shr) && right.number.constant().is_some_and(|n| n > 31) {
                return Err(sign.error("a shift by more than 31 bits"));
            }
            left = Guarded::op(op, left, right);
        }
        Ok(Some(left))
    }

    fn operand(&mut self) -> Result<Option<Guarded>, FilterError> {
        let t = self.peek();
        if t.escaped {
            return Ok(None);
        }
        if t.text == "-" {
            self.take();
            let inner = self.deeper(Self::operand)?;
            return Ok(inner.map(Guarded::negative));
        }
        if t.text == "(" {
            self.take();
            let inner = self.deeper(|p| p.sum(0))?;
            return Ok(inner.filter(|_| self.takes(&[")"])));
        }
        if t.text == "len" {
            self.take();
            return Ok(Some(Guarded { number: Number::Len, needs: None }));
        }
        if self.peek_at(1).text == "[" && t.is_word() {
            self.take();
            self.take();
            let missing = self.peek();
            let index = self.deeper(|p| p.sum(0))?.ok_or_else(|| missing.error("an index is missing"))?;
            let width = if self.takes(&[":"]) {
                let w = self.take();
                names::number(w.text)
                    .filter(|n| matches!(n, 1 | 2 | 4))
                    .ok_or_else(|| w.error("1, 2 or 4 bytes can be read at once"))?
            } else {
                1
            };
            self.expect("]")?;
            return Guarded::load(t.text, index, width as u8, &self.at).map(Some).map_err(|why| t.error(why));
        }
        match names::value(t.text).filter(|_| !matches!(t.text, "tcp" | "udp")) {
            Some(n) => {
                self.take();
                Ok(Some(Guarded::is(n)))
            }
            None => Ok(None),
        }
    }
}
