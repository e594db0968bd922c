//! Statements of random programs.

use super::{ProgramWriter, RandomLanguage};

impl ProgramWriter {
    pub(super) fn write_statement(&mut self, depth: u32) {
        if depth == 0 {
            return self.write_simple_statement();
        }
        match self.dice.below(if self.language == RandomLanguage::Cxx { 15 } else { 12 }) {
            0 | 1 => self.write_branch(depth),
            2 => self.write_counted_loop(depth),
            3 => self.write_uncounted_loop(depth),
            4 => self.write_switch(depth),
            5 if self.may_jump && self.loop_depth == 0 => self.write_forward_jump(depth),
            6 => self.write_call(),
            7 => self.write_unusual_statement(),
            8 => self.write_array_loop(),
            12 => self.write_try_block(depth),
            13 => self.write_guarded_block(depth),
            14 => self.write_virtual_call(),
            _ => self.write_simple_statement(),
        }
    }

    fn write_block(&mut self, depth: u32) {
        for _ in 0..=self.dice.below(2) {
            self.write_statement(depth - 1);
        }
    }

    fn write_simple_statement(&mut self) {
        let to = self.dice.pick(&["a", "b", "c", "d"]);
        let value = self.random_value();
        let operator = self.dice.pick(&["=", "+=", "^=", "-="]);
        self.push_line(&format!("{to} {operator} {value};"));
    }

    pub(super) fn random_value(&mut self) -> String {
        let (x, y) = (self.dice.pick(&["a", "b", "c", "d"]), self.dice.pick(&["a", "b", "c", "d"]));
        let n = self.dice.below(50);
        match self.dice.below(7) {
            0 => format!("{x} + {n}"),
            1 => format!("{x} * {}", 2 * n + 1),
            2 => format!("({x} ^ {y}) >> {}", n % 7),
            3 => format!("twist({x} + {n})"),
            4 => format!("({x} > {y} ? {x} - {y} : {n})"),
            5 => format!("memory[({x} + {n}) % 16]"),
            _ => format!("{x} % {} + {y}", n + 2),
        }
    }

    pub(super) fn random_condition(&mut self) -> String {
        let (x, y) = (self.dice.pick(&["a", "b", "c", "d"]), self.dice.pick(&["a", "b", "c", "d"]));
        let n = self.dice.below(6);
        match self.dice.below(6) {
            0 => format!("{x} >> {n} & 1"),
            1 => format!("{x} % {} == {n}", n + 1 + self.dice.0 % 3),
            2 => format!("{x} < {y}"),
            3 => format!("({x} & 1) && ({y} & 6)"),
            4 => format!("({x} & 3) == 1 || {y} % 5 == 2 || fuel < 20"),
            _ => format!("__builtin_expect(twist({x}) % 16 == {n}, 0)"),
        }
    }

    fn write_branch(&mut self, depth: u32) {
        let condition = self.random_condition();
        self.push_line(&format!("if ({condition}) {{"));
        self.write_block(depth);
        if self.dice.chance(30) {
            let condition = self.random_condition();
            self.push_line(&format!("}} else if ({condition}) {{"));
            self.write_block(depth);
        }
        if self.dice.chance(60) {
            self.push_line("} else {");
            self.write_block(depth);
        }
        self.push_line("}");
    }

    fn write_counted_loop(&mut self, depth: u32) {
        let iterations = self.dice.below(6);
        let variable = format!("i{}", self.loop_depth);
        self.push_line(&format!("for (u64 {variable} = 0; {variable} < {iterations} + (a & 1) && fuel-- > 0; {variable}++) {{"));
        self.write_loop_body(depth);
        self.push_line("}");
    }

    fn write_uncounted_loop(&mut self, depth: u32) {
        let condition = self.random_condition();
        if self.dice.chance(50) {
            self.push_line(&format!("while (fuel-- > 0 && ({condition})) {{ a += 3; b = twist(b);"));
            self.write_loop_body(depth);
            self.push_line("}");
        } else {
            self.push_line("do { c += a; a = twist(a);");
            self.write_loop_body(depth);
            self.push_line(&format!("}} while (fuel-- > 0 && ({condition}));"));
        }
    }

    fn write_loop_body(&mut self, depth: u32) {
        self.loop_depth += 1;
        self.write_block(depth);
        if self.dice.chance(40) {
            let condition = self.random_condition();
            let leave = self.dice.pick(&["break", "continue"]);
            self.push_line(&format!("if ({condition}) {leave};"));
            self.write_statement(depth - 1);
        }
        if self.may_jump && self.dice.chance(15) {
            let condition = self.random_condition();
            self.push_line(&format!("if ({condition}) return a - b;"));
        }
        self.loop_depth -= 1;
    }

    fn write_switch(&mut self, depth: u32) {
        let (cases, sparse) = (2 + self.dice.below(7), self.dice.chance(30));
        let subject = self.dice.pick(&["a", "b", "c"]);
        self.push_line(&format!("switch ({subject} % {}) {{", if sparse { 1000 } else { cases + 1 }));
        for case in 0..cases {
            let value = if sparse { case * 131 % 1000 } else { case };
            self.push_line(&format!("case {value}:"));
            if self.dice.chance(75) {
                self.push_line("{");
                self.write_statement(depth - 1);
                self.push_line("}");
            }
            if self.dice.chance(70) {
                self.push_line("break;");
            }
        }
        match self.dice.below(4) {
            0 if !sparse => self.push_line(&format!("case {cases}: d += 2; break; default: __builtin_unreachable();")),
            1 => {}
            _ => self.push_line("default: c += 9;"),
        }
        self.push_line("}");
    }

    fn write_forward_jump(&mut self, depth: u32) {
        self.labels += 1;
        let label = format!("l{}_{}", self.function, self.labels);
        let condition = self.random_condition();
        self.push_line(&format!("if ({condition}) goto {label};"));
        self.write_block(depth);
        self.push_line(&format!("{label}: b ^= 5;"));
    }

    fn write_call(&mut self) {
        let target = self.dice.below(self.functions as u64);
        let to = self.dice.pick(&["a", "b", "c", "d"]);
        let argument = self.random_value();
        match self.dice.below(4) {
            0 => self.push_line(&format!("{to} += table[{to} % {}]({argument}, c);", self.functions)),
            1 => self.push_line(&format!("if (fuel > 30) {to} ^= f{target}({argument}, d);")),
            _ => self.push_line(&format!("{to} += f{target}({argument}, b);")),
        }
    }

    fn write_unusual_statement(&mut self) {
        let value = self.random_value();
        match self.dice.below(6) {
            0 => self.push_line(&format!("maybe_leave({value});")),
            1 if self.may_jump => self.push_line(&format!("if ({value} % 9 == 4) return c;")),
            2 => self.write_assembly(),
            3 if self.language == RandomLanguage::C => self.push_line(&format!("hop({value});")),
            4 if !self.threads => self.push_line(&format!("if (fuel > 100) printf(\"%lu\\n\", (u64)({value}));")),
            5 if self.language == RandomLanguage::Cxx => self.push_line(&format!("try {{ complain({value}); }} catch (...) {{ a++; }}")),
            _ => self.push_line(&format!("memory[({value}) % 16] ^= a;")),
        }
    }

    fn write_assembly(&mut self) {
        self.labels += 1;
        let label = format!("l{}_{}", self.function, self.labels);
        self.push_line(&format!(
            "asm goto(\"test $1, %b0\\n\\tjnz %l[{label}]\" : : \"q\"((unsigned char)a) : \"cc\" : {label}); c += 11; {label}: d ^= 2;"
        ));
    }

    fn write_array_loop(&mut self) {
        self.push_line("for (int k = 0; k < 16; k++) { memory[k] += a; if (memory[k] & 8) d += memory[k]; }");
    }

    fn write_try_block(&mut self, depth: u32) {
        let value = self.random_value();
        let saved = std::mem::replace(&mut self.may_jump, false);
        let loops = self.loop_depth;
        self.loop_depth += 10;
        self.push_line(&format!("try {{ Guard guard(b, {value}); complain(b + c);"));
        self.write_block(depth);
        self.write_call();
        match self.dice.below(3) {
            0 => self.push_line("} catch (Worse &w) { a += w.x;"),
            1 => self.push_line("} catch (Trouble &t) { b ^= t.x; if (t.x % 3 == 0 && fuel > 50) throw;"),
            _ => self.push_line("} catch (int n) { c += (u64)n;"),
        }
        if self.dice.chance(60) {
            self.push_line("} catch (...) { d++; if (d % 5 == 0 && fuel > 80) throw;");
        }
        self.push_line("}");
        self.loop_depth = loops;
        self.may_jump = saved;
    }

    fn write_guarded_block(&mut self, depth: u32) {
        let value = self.random_value();
        let saved = std::mem::replace(&mut self.may_jump, false);
        self.push_line(&format!("{{ Guard guard(a, {value}); Guard other(c, 3); if (a % 4 == 0) complain(a >> 3);"));
        self.write_block(depth);
        self.push_line("}");
        self.may_jump = saved;
    }

    fn write_virtual_call(&mut self) {
        self.push_line("{ Square square; Shape plain; Shape *s = a & 1 ? &plain : &square; b += s->area(c); }");
    }
}
