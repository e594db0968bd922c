//! A unit's map says from how many places each function is called by name.

use super::place::Place;
use std::collections::BTreeMap;

/// `may_throw` is called by an `invoke`, for `done` has to run if it throws; `self` is passed to itself.
const CALLS: &str = "
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
fn calls_are_counted_by_name_and_each_once() {
    let place = Place::with(&[("calls.c", CALLS)]);
    place.cc("-O0 -fexceptions -shared -fPIC calls.c -o calls.so");
    let map = place.image("calls.so").frames[0].map().unwrap();
    let sites: BTreeMap<&str, u32> = map.calls.iter().map(|callee| (&*callee.name, callee.sites)).collect();
    // Where control leaves `calls`, and where an exception does.
    let expected = [("apply", 1), ("done", 2), ("may_throw", 1), ("other", 1), ("own", 3), ("self", 2)];
    assert_eq!(sites, BTreeMap::from(expected));
}
