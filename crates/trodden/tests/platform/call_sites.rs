//! A unit map has, for each function, the number of call sites in the unit that call it by name.

use crate::place::Place;
use std::collections::BTreeMap;

/// `may_throw` is called by an `invoke` instruction, because `done` must run if it throws. `self` is passed to itself.
const CALLS_PROGRAM: &str = "
extern void may_throw(void);
__attribute__((noinline)) int own(int x) { return x + 1; }
int other(int x) __attribute__((alias(\"own\")));
__attribute__((noinline)) int self(void *p) { return p == (void *)self; }
void done(int *x) { *x = 0; }
int (*table[])(int) = { own, other };
int apply(int (*f)(int), int x) { return f(x); }
int calls(int x) {
    int left __attribute__((cleanup(done))) = x;
    may_throw();
    return self(self) + self(0) + own(x) + own(own(x)) + other(x) + apply(own, x) + table[x & 1](x) + left;
}
";

#[test]
fn each_call_by_name_is_one_call_site() {
    let place = Place::with(&[("calls.c", CALLS_PROGRAM)]);
    place.cc("-O0 -fexceptions -shared -fPIC calls.c -o calls.so");
    let map = place.image("calls.so").frames[0].map().unwrap();
    let sites: BTreeMap<&str, u32> = map.calls.iter().map(|callee| (&*callee.name, callee.sites)).collect();
    // `done` is called at the normal and at the exceptional exit of `calls`.
    let expected = [("apply", 1), ("done", 2), ("may_throw", 1), ("other", 1), ("own", 3), ("self", 2)];
    assert_eq!(sites, BTreeMap::from(expected));
}
