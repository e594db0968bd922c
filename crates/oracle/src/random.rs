//! A generator of random C and C++ programs that terminate, have no undefined behaviour, and print a number that depends on everything they
//! executed. The same seed gives the same program.
//!
//! Programs contain branches, loops with one and several entries, `switch` with fall-through, `goto`, indirect branches, early returns,
//! recursion, indirect calls, `musttail` calls, `setjmp` and `longjmp`, calls to `exit` deep in the stack, and `asm goto`; in C++ also
//! exceptions with cleanups, typed handlers and rethrowing; and optionally threads. Loops and calls consume fuel; each thread has a fixed
//! amount.

/// Language of a random program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RandomLanguage {
    /// C
    C,
    /// C++
    Cxx,
}

/// A random program.
#[derive(Clone, Debug)]
pub struct RandomProgram {
    /// The program's language.
    pub language: RandomLanguage,
    /// The program's source text.
    pub text: String,
}

/// A random number generator (SplitMix64).
#[derive(Clone, Debug)]
pub struct RandomNumbers(u64);

impl RandomNumbers {
    /// Creates a generator from a seed.
    pub fn new(seed: u64) -> RandomNumbers {
        RandomNumbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len() as u64) as usize]
    }
}

/// Generates the program of a seed.
pub fn program(seed: u64) -> RandomProgram {
    let mut dice = RandomNumbers::new(seed);
    let language = if dice.chance(40) { RandomLanguage::Cxx } else { RandomLanguage::C };
    let threads = dice.chance(25);
    let functions = 3 + dice.below(6) as usize;
    let entrances = RandomNumbers::new(seed ^ SECOND_ENTRANCES_SEED_MASK);
    let mut writer = ProgramWriter {
        dice,
        entrances,
        language,
        threads,
        functions,
        function: 0,
        labels: 0,
        loop_depth: 0,
        may_jump: true,
        text: String::new(),
    };
    writer.write_prelude();
    for function in 0..functions {
        writer.write_function(function);
    }
    writer.write_main();
    RandomProgram { language, text: writer.text }
}

/// XORed into the seed, so that [`ProgramWriter::entrances`] and [`ProgramWriter::dice`] have different seeds.
const SECOND_ENTRANCES_SEED_MASK: u64 = 0x5eed_0001;

mod statements;

struct ProgramWriter {
    dice: RandomNumbers,
    /// Decides which functions have loops with several entries. With a separate generator, this decision does not change the rest of the
    /// program.
    entrances: RandomNumbers,
    language: RandomLanguage,
    threads: bool,
    functions: usize,
    function: usize,
    labels: usize,
    loop_depth: usize,
    /// True if `goto` and `return` are allowed at the current position.
    may_jump: bool,
    text: String,
}

const C_PRELUDE: &str = "\
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <pthread.h>
#include <signal.h>
typedef unsigned long u64;
static __thread long fuel = FUEL;
static __thread u64 memory[16];
static __thread jmp_buf landing[8];
static __thread int landings;
static volatile int sink;
__attribute__((noreturn, noinline)) static void leave(int status) { fflush(stdout); sink += status; exit(status); }
__attribute__((noinline)) static void maybe_leave(u64 x) { if (x % 61 == 7 && fuel < LEAVE_BELOW) leave((int)(x % 5)); }
__attribute__((noinline)) static void hop(u64 x) { if (landings > 0 && x % 3 == 0 && fuel-- > 0) longjmp(landing[landings - 1], 1 + \
(int)(x / 3 % 3)); }
__attribute__((noinline)) static u64 twist(u64 x) { x ^= x >> 13; return x * 0x9e3779b97f4a7c15ul; }
";

const CXX_PRELUDE: &str = "\
#include <stdexcept>
struct Trouble { u64 x; };
struct Worse : Trouble { Worse(u64 y) { x = y; } };
struct Guard { u64 &at; u64 by; Guard(u64 &a, u64 b) : at(a), by(b) { at += by; } ~Guard() { if (by % 2) at ^= by; else at -= by; } };
struct Shape { virtual u64 area(u64 x) { return x + 1; } virtual ~Shape() {} };
struct Square : Shape { u64 area(u64 x) override { if (x % 5 == 0 && fuel < 200) throw Trouble{x}; return x * x; } };
__attribute__((noinline)) static void complain(u64 x) { if (x % 7 == 1) throw Worse(x); if (x % 7 == 2) throw Trouble{x}; if (x % 7 == \
3) throw (int)x; }
";

impl ProgramWriter {
    fn push_line(&mut self, text: &str) {
        self.text.push_str(text);
        self.text.push('\n');
    }

    fn write_prelude(&mut self) {
        let fuel = [150, 600, 3000][self.dice.below(3) as usize];
        // Only single-threaded programs call `exit` deep in the stack: if a thread called it while others run, the counts would depend on
        // scheduling.
        let leave = if self.threads { -1_000_000 } else { [-1_000_000, 60, fuel][self.dice.below(3) as usize] };
        self.push_line(&format!("#define FUEL {fuel}\n#define LEAVE_BELOW {leave}"));
        self.push_line(C_PRELUDE);
        if self.language == RandomLanguage::Cxx {
            self.push_line(CXX_PRELUDE);
        }
        for i in 0..self.functions {
            let linkage = if self.dice.chance(60) { "static " } else { "" };
            let inline = self.dice.pick(&["", "", "__attribute__((noinline)) "]);
            self.push_line(&format!("{linkage}{inline}u64 f{i}(u64 a, u64 b);"));
        }
        let all: Vec<String> = (0..self.functions).map(|i| format!("f{i}")).collect();
        self.push_line(&format!("static u64 (*const table[])(u64, u64) = {{{}}};", all.join(", ")));
    }

    fn write_function(&mut self, number: usize) {
        self.function = number;
        self.labels = 0;
        let jumps_back = self.language == RandomLanguage::C && self.dice.chance(35);
        let qualifier = if jumps_back { "volatile " } else { "" };
        let start = self.dice.below(100);
        self.push_line(&format!("u64 f{number}(u64 a0, u64 b0) {{\n{qualifier}u64 a = a0, b = b0, c = {start}, d = 0;"));
        self.push_line("if (fuel-- <= 0) return a ^ b;");
        if jumps_back {
            self.write_setjmp_block();
        }
        if self.dice.chance(30) {
            self.write_indirect_branches(jumps_back);
        }
        if self.dice.chance(15) {
            self.write_many_branches();
        }
        let statements = 2 + self.dice.below(5);
        for _ in 0..statements {
            self.write_statement(3);
        }
        match self.entrances.below(8) {
            0 | 1 => self.write_loop_with_two_entries(),
            2 => self.write_loop_entered_by_switch(),
            _ => {}
        }
        if self.dice.chance(35) {
            self.write_backward_jump();
        }
        let target = self.dice.below(self.functions as u64);
        match self.dice.below(6) {
            0 if !jumps_back => self.push_line(&format!("__attribute__((musttail)) return f{target}(a + 1, b ^ c);")),
            1 | 2 => self.push_line(&format!("return f{target}(a + 1, b ^ c);")),
            3 => self.push_line(&format!("if (a % 3 == 1) return f{target}(c, b); return table[(b + d) % {}](d, a);", self.functions)),
            _ => self.push_line("return a + 3 * b + 5 * c + d;"),
        }
        self.push_line("}");
    }

    /// Writes a block with a `setjmp` that `longjmp` returns to. Control leaves the block only at its end.
    fn write_setjmp_block(&mut self) {
        let target = self.dice.below(self.functions as u64);
        let other = self.dice.below(self.functions as u64);
        let twice = self.dice.chance(30);
        self.push_line("if (landings < 8) { int mine = landings; switch (setjmp(landing[landings++])) {");
        self.push_line(&format!("case 0: a += f{target}(a, b); hop(a); if (b & 1) c += f{other}(c, a); hop(c ^ b); break;"));
        self.push_line("case 1: b += 17; break;\ncase 2: c ^= b; if (a & 4) hop(b * 3 + 1);\ndefault: d++; } landings = mine; }");
        if twice {
            self.push_line(
                "if (landings < 8) { int mine = landings; if (setjmp(landing[landings++])) b++; else hop(a + b); landings = mine; }",
            );
        }
    }

    /// Writes a state machine of one or several indirect branches with the same targets. Control also falls through to some of these
    /// targets.
    fn write_indirect_branches(&mut self, volatile: bool) {
        let states = 3 + self.dice.below(4);
        let f = self.function;
        let labels: Vec<String> = (0..states).map(|i| format!("&&s{f}_{i}")).collect();
        self.push_line(&format!("{{ static void *const states[] = {{{}}};", labels.join(", ")));
        let single = self.dice.chance(30);
        if single {
            self.push_line(&format!("step{f}: if (fuel-- <= 0) goto out{f}; goto *states[(a ^ d) % {states}];"));
        } else if self.dice.chance(50) {
            self.push_line(&format!("if (fuel-- <= 0) goto out{f}; goto *states[a % {states}];"));
        }
        for i in 0..states {
            let factor = 3 + 2 * self.dice.below(9);
            self.push_line(&format!("s{f}_{i}: a = a * {factor} + {i}; d++;"));
            let bit = 1 << self.dice.below(5);
            if !volatile && self.dice.chance(40) {
                let saved = std::mem::replace(&mut self.may_jump, false);
                self.write_statement(1);
                self.may_jump = saved;
            }
            match self.dice.below(4) {
                0 => {}
                1 => self.push_line(&format!("if (b & {bit}) goto out{f};")),
                _ if single => self.push_line(&format!("goto step{f};")),
                _ => self.push_line(&format!("if (fuel-- > 0) goto *states[twist(a) % {states}];")),
            }
        }
        self.push_line(&format!("out{f}: ; }}"));
    }

    /// Writes 8 to 16 branches in a row, whose paths are too many for a small array of counters.
    fn write_many_branches(&mut self) {
        let count = 8 + self.dice.below(9);
        for i in 0..count {
            match self.dice.below(3) {
                0 => self.push_line(&format!("if (a >> {i} & 1) sink++; else sink += 2;")),
                1 => self.push_line(&format!("if (b >> {i} & 1) {{ c += twist(a); maybe_leave(c); }}")),
                _ => self.push_line(&format!("if ((a ^ b) >> {i} & 1) {{ memory[{i} % 16] += c; sink--; }}")),
            }
        }
    }

    fn write_backward_jump(&mut self) {
        let label = format!("again{}", self.function);
        self.push_line(&format!("{label}: a += 7;"));
        let saved = std::mem::replace(&mut self.may_jump, false);
        self.write_statement(2);
        self.may_jump = saved;
        self.push_line(&format!("if (fuel-- > 0 && twist(a) % 4) goto {label};"));
    }

    /// Writes a loop through two labels, both of which can be entered from outside.
    fn write_loop_with_two_entries(&mut self) {
        let f = self.function;
        let (condition, leave) = (self.random_condition(), self.random_condition());
        self.push_line(&format!("if ({condition}) goto second{f};\nfirst{f}: a = twist(a + 3);"));
        let saved = std::mem::replace(&mut self.may_jump, false);
        self.write_statement(1);
        self.push_line(&format!("if (fuel-- <= 0) goto behind{f};\nsecond{f}: b += a >> 3;"));
        self.write_statement(1);
        self.push_line(&format!("if (fuel-- > 0 && ({leave})) goto second{f};\nif (b % 5) goto first{f};"));
        self.may_jump = saved;
        self.push_line(&format!("behind{f}: d++;"));
    }

    /// Writes a loop whose body contains case labels of a switch around it, as in Duff's device.
    fn write_loop_entered_by_switch(&mut self) {
        let condition = self.random_condition();
        self.push_line("switch (a % 4) { case 0: do { a += 5; case 1: b = twist(b);");
        self.push_line("if (b % 7 == 3) continue; d++;");
        self.push_line(&format!("case 2: c ^= b; }} while (fuel-- > 0 && ({condition}) && (a = twist(a)) % 8); default: c++; }}"));
    }

    fn write_main(&mut self) {
        let work = match self.language {
            RandomLanguage::C => {
                "static u64 work(u64 x) { u64 sum = 0; for (u64 i = 0; i < 5; i++) { landings = 0; sum = twist(sum + f0(x + i, i)); } \
                    return sum + memory[x % 16]; }"
            }
            RandomLanguage::Cxx => {
                "static u64 work(u64 x) { u64 sum = 0; for (u64 i = 0; i < 5; i++) { try { sum = twist(sum + f0(x + i, i)); }\n\
                 catch (Trouble &t) { sum += t.x; } catch (int n) { sum ^= (u64)n; } catch (...) { sum++; } } return sum + memory[x % \
                 16]; }"
            }
        };
        self.push_line(work);
        if self.threads {
            self.push_line(
                "static void *thread(void *x) { u64 sum = work((u64)x); if (sum % 2) pthread_exit((void *)sum); return (void *)sum; }",
            );
            let count = 2 + self.dice.below(3);
            self.push_line(&format!("int main(void) {{ pthread_t t[{count}];"));
            self.push_line(&format!("for (u64 i = 0; i < {count}; i++) pthread_create(&t[i], 0, thread, (void *)(i * 77));"));
            self.push_line(&format!(
                "u64 sum = 0; for (int i = 0; i < {count}; i++) {{ void *r; pthread_join(t[i], &r); sum = twist(sum + (u64)r); }}"
            ));
        } else {
            let start = self.dice.below(1000);
            self.push_line(&format!("int main(void) {{ u64 sum = work({start});"));
        }
        let end = ["return 0;", "return 0;", "return 0;", "exit(3);", "_exit(4);", "abort();", "raise(SIGKILL);"];
        let end = end[self.dice.below(end.len() as u64) as usize];
        self.push_line(&format!("printf(\"%lu\\n\", sum); fflush(stdout); {end} }}"));
    }
}
