//! A test program with matches on enumerations. These need no check of the index, so nothing in the code bounds the jump tables.

#[derive(Clone, Copy)]
#[repr(u8)]
enum State {
    Start,
    Two,
    Three,
    Four,
    Escape,
    Comment,
    Text,
    End,
}

struct Decoder {
    state: State,
    value: u32,
    count: u32,
}

impl Decoder {
    #[inline(never)]
    fn step(&mut self, byte: u8) -> bool {
        match self.state {
            State::Start => match byte {
                0..=0x7f => self.value = u32::from(byte),
                0xc2..=0xdf => self.to(State::Two, byte & 0x1f),
                0xe0 => self.to(State::Three, 0),
                0xe1..=0xec | 0xee => self.to(State::Three, byte & 0xf),
                0xed => self.to(State::Comment, byte & 0xf),
                0xf0 => self.to(State::Four, byte & 7),
                0xf4 => self.to(State::Text, byte & 3),
                _ => return false,
            },
            State::Two => self.last(byte),
            State::Three => self.to(State::Two, byte.wrapping_mul(3)),
            State::Four => self.value = self.value.rotate_left(u32::from(byte) & 7) + 17,
            State::Escape => self.count += u32::from(byte) * 5,
            State::Comment => self.to(State::End, byte >> 1),
            State::Text => self.value ^= u32::from(byte) << 9,
            State::End => self.last(byte ^ 0x55),
        }
        self.count += 1;
        true
    }

    #[inline(always)]
    fn to(&mut self, state: State, bits: u8) {
        self.state = state;
        self.value = self.value << 6 | u32::from(bits);
    }

    #[inline(always)]
    fn last(&mut self, byte: u8) {
        self.value = self.value << 6 | u32::from(byte & 0x3f);
        self.state = State::Start;
    }
}

fn main() {
    let mut decoder = Decoder { state: State::Start, value: 0, count: 0 };
    let mut bad = 0;
    for argument in std::env::args().skip(1) {
        for byte in argument.bytes() {
            bad += u32::from(!decoder.step(byte));
        }
        if argument == "escape" {
            decoder.state = State::Escape;
        }
    }
    println!("{} {} {bad}", decoder.value, decoder.count);
}
