//! Finds the end of a call, and the calls that are active at a position, without expanding the sequence.
//!
//! Each rule is summarised by the number of earlier frames that it closes and the calls that it leaves open, in O(items x open calls). A
//! query takes time proportional to the items in the bodies on one path from the root to a terminal.

use super::{Grammar, GrammarItem, TerminalId};
use crate::events::{Classify, EventClass, classify_terminals};

/// For each rule of a grammar, its effect on the call stack.
#[derive(Clone, Debug)]
pub struct RuleFrameEffects<'a> {
    grammar: &'a Grammar,
    /// The class of each terminal. Empty if this value was created by [`RuleFrameEffects::from_frame_effects`].
    classes: Vec<EventClass>,
    effects: Vec<FrameEffect>,
    rules: Vec<RangeFrameEffect>,
}

/// The effect of a symbol on the call stack. A symbol may first close frames, and then open one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameEffect {
    /// Number of frames closed.
    pub closes: u64,
    /// True if the symbol opens a frame.
    pub opens: bool,
}

/// The effect of a range on the call stack, without frames that the range both opens and closes.
#[derive(Clone, Debug, Default)]
struct RangeFrameEffect {
    closes: u64,
    opens: Vec<TerminalId>,
}

impl RangeFrameEffect {
    fn join(&mut self, closes: u64, opens: &[TerminalId]) {
        let kept = (self.opens.len() as u64).saturating_sub(closes);
        self.closes += closes.saturating_sub(self.opens.len() as u64);
        self.opens.truncate(kept as usize);
        self.opens.extend_from_slice(opens);
    }
}

impl<'a> RuleFrameEffects<'a> {
    /// Computes the effects of all rules from the classes of symbols.
    pub fn new(grammar: &'a Grammar, classify: &impl Classify) -> RuleFrameEffects<'a> {
        let classes = classify_terminals(grammar, classify);
        let effect = |class: &EventClass| match class {
            EventClass::Enter => FrameEffect { closes: 0, opens: true },
            EventClass::Leave => FrameEffect { closes: 1, opens: false },
            EventClass::Subpath { .. } => FrameEffect::default(),
        };
        let effects = classes.iter().map(effect).collect();
        RuleFrameEffects::from_classes_and_effects(grammar, classes, effects)
    }

    /// Computes the effects of all rules from the effects of symbols. Unlike with [`RuleFrameEffects::new`], a symbol may close any number
    /// of frames.
    pub fn from_frame_effects(grammar: &'a Grammar, effect: impl Fn(u64) -> FrameEffect) -> RuleFrameEffects<'a> {
        let effects = grammar.terminals().iter().map(|symbol| effect(*symbol)).collect();
        RuleFrameEffects::from_classes_and_effects(grammar, Vec::new(), effects)
    }

    fn from_classes_and_effects(grammar: &'a Grammar, classes: Vec<EventClass>, effects: Vec<FrameEffect>) -> RuleFrameEffects<'a> {
        let mut frames = RuleFrameEffects { grammar, classes, effects, rules: Vec::new() };
        for rule in grammar.rules() {
            let mut brackets = RangeFrameEffect::default();
            grammar.body(rule).for_each(|item| frames.apply_item_effect(&mut brackets, item));
            frames.rules.push(brackets);
        }
        frames
    }

    /// Returns the class of the symbol at a position; `None` after the end, or if this value was created by
    /// [`RuleFrameEffects::from_frame_effects`].
    pub fn class_at(&self, position: u64) -> Option<EventClass> {
        self.grammar.terminal_ids(self.grammar.root(), position).next().and_then(|terminal| self.classes.get(terminal.0 as usize).copied())
    }

    /// Returns the `Enter` symbols of the calls that are active before a position, outermost first.
    pub fn open_calls(&self, position: u64) -> Vec<u64> {
        let (mut rule, mut rest) = (self.grammar.root(), position);
        let mut brackets = RangeFrameEffect::default();
        'descent: loop {
            for item in self.grammar.body(rule) {
                let length = self.grammar.item_length(item);
                match item {
                    GrammarItem::Rule(child) if rest > 0 && rest < length => {
                        rule = child;
                        continue 'descent;
                    }
                    _ if rest == 0 => break 'descent,
                    _ => self.apply_item_effect(&mut brackets, item),
                }
                rest -= length;
            }
            break;
        }
        brackets.opens.iter().map(|terminal| self.grammar.terminals()[terminal.0 as usize]).collect()
    }

    /// Returns the position of the `Leave` that ends the frame that is innermost at `position`, or the length of the sequence if there is
    /// none.
    pub fn frame_end(&self, position: u64) -> u64 {
        let mut open = self.grammar.terminal_ids(self.grammar.root(), position).open;
        let (mut at, mut depth) = (position, 0_u64);
        while let Some(rest) = open.last_mut() {
            let Some(place) = rest.next() else {
                open.pop();
                continue;
            };
            let item = self.grammar.decode_item(self.grammar.items[place]);
            let (closes, opens) = self.closed_and_opened_counts(item);
            match item {
                GrammarItem::Rule(child) if closes > depth => open.push(self.grammar.body_range(child)),
                _ if closes > depth => return at,
                _ => {
                    depth = depth - closes + opens;
                    at += self.grammar.item_length(item);
                }
            }
        }
        at
    }

    fn closed_and_opened_counts(&self, item: GrammarItem) -> (u64, u64) {
        match item {
            GrammarItem::Rule(rule) => {
                let brackets = &self.rules[rule.0 as usize];
                (brackets.closes, brackets.opens.len() as u64)
            }
            GrammarItem::Terminal(terminal) => {
                let FrameEffect { closes, opens } = self.effects[terminal.0 as usize];
                (closes, u64::from(opens))
            }
        }
    }

    fn apply_item_effect(&self, brackets: &mut RangeFrameEffect, item: GrammarItem) {
        match item {
            GrammarItem::Rule(rule) => {
                let next = &self.rules[rule.0 as usize];
                brackets.join(next.closes, &next.opens);
            }
            GrammarItem::Terminal(terminal) => {
                let FrameEffect { closes, opens } = self.effects[terminal.0 as usize];
                brackets.join(closes, if opens { std::slice::from_ref(&terminal) } else { &[] });
            }
        }
    }
}
