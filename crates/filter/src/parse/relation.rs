//! Parses the arithmetic of filters: expressions that contain numbers and bytes of the packet, and comparisons of such
//! expressions.

use super::Parser;
use crate::error::FilterError;
use crate::lex::Token;
use crate::names;
use crate::tree::{ArithExpr, Cmp, Op, Primitive};

impl Parser<'_> {
    /// Parses `a compare b`; returns `None` if the following tokens are not arithmetic.
    pub(super) fn relation(&mut self) -> Result<Option<Primitive>, FilterError> {
        let Some(left) = self.sum(0)? else { return Ok(None) };
        let Some(cmp) = Cmp::of(self.peek().text) else { return Ok(None) };
        self.take();
        let t = self.peek();
        let right = self.sum(0)?.ok_or_else(|| {
            t.error("a number is missing here; write one, such as `100`, or a value of the packet, such as `len`")
        })?;
        Ok(Some(Primitive::Relation(left, cmp, right)))
    }

    /// The operators by precedence, from the weakest (level 0) to the strongest. libpcap's grammar declares no
    /// precedence for `%` and `^`, so its generated parser shifts: the left operand of `%` and `^` is a single operand,
    /// and their right operand is the whole rest of the expression (`len % 7 + 1` is `len % 8`).
    fn sum(&mut self, level: usize) -> Result<Option<ArithExpr>, FilterError> {
        const LEVELS: [&[(&str, Op)]; 5] = [
            &[("|", Op::Or)],
            &[("&", Op::And)],
            &[("<<", Op::Shl), (">>", Op::Shr)],
            &[("+", Op::Add), ("-", Op::Sub)],
            &[("*", Op::Mul), ("/", Op::Div)],
        ];
        const GREEDY: [(&str, Op); 2] = [("^", Op::Xor), ("%", Op::Rem)];
        let Some(operators) = LEVELS.get(level) else {
            let Some(left) = self.operand()? else { return Ok(None) };
            return match self.operator(&GREEDY)? {
                Some((sign, op)) => self.deeper(|p| p.operation(left, sign, op, 0)),
                None => Ok(Some(left)),
            };
        };
        let Some(mut left) = self.sum(level + 1)? else { return Ok(None) };
        while let Some((sign, op)) = self.operator(operators)? {
            let Some(both) = self.operation(left, sign, op, level + 1)? else { return Ok(None) };
            left = both;
        }
        Ok(Some(left))
    }

    /// Removes and returns the next token if it is one of these operators.
    fn operator(&mut self, operators: &[(&'static str, Op)]) -> Result<Option<(Token<'static>, Op)>, FilterError> {
        let Some((sign, op)) = operators.iter().find(|o| o.0 == self.peek().text).copied() else { return Ok(None) };
        self.counted()?;
        Ok(Some((Token { text: sign, ..self.take() }, op)))
    }

    /// Parses the right operand of an operator with this precedence level, and returns the complete operation.
    fn operation(
        &mut self,
        left: ArithExpr,
        sign: Token<'_>,
        op: Op,
        level: usize,
    ) -> Result<Option<ArithExpr>, FilterError> {
        let Some(right) = self.sum(level)? else { return Ok(None) };
        // The parser checks only literal divisors and shift counts. The value of an expression is checked for each
        // packet.
        if let ArithExpr::Is(n) = right {
            match op {
                Op::Div | Op::Rem if n == 0 => return Err(sign.error("division by 0")),
                Op::Shl | Op::Shr if n > 31 => return Err(sign.error("a shift by more than 31 bits")),
                _ => {}
            }
        }
        Ok(Some(ArithExpr::Op(op, Box::new(left), Box::new(right))))
    }

    fn operand(&mut self) -> Result<Option<ArithExpr>, FilterError> {
        let t = self.peek();
        if t.escaped {
            return Ok(None);
        }
        if t.text == "-" {
            self.take();
            // As in libpcap, a minus sign applies to the result of a following `%` or `^`.
            let inner = self.deeper(|p| p.sum(usize::MAX))?;
            return Ok(inner.map(|n| ArithExpr::Negative(Box::new(n))));
        }
        if t.text == "(" {
            self.take();
            let inner = self.deeper(|p| p.sum(0))?;
            return Ok(inner.filter(|_| self.takes(&[")"])));
        }
        if t.text == "len" {
            self.take();
            return Ok(Some(ArithExpr::Len));
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
            let protocol = names::protocol_word(t.text)
                .filter(|p| !matches!(*p, "ah" | "esp"))
                .ok_or_else(|| t.error("the bytes of this protocol cannot be read"))?;
            return Ok(Some(ArithExpr::Load { protocol, index: Box::new(index), width: width as u8, span: t.span() }));
        }
        match names::value(t.text).filter(|_| !matches!(t.text, "tcp" | "udp")) {
            Some(n) => {
                self.take();
                Ok(Some(ArithExpr::Is(n)))
            }
            None => Ok(None),
        }
    }
}
