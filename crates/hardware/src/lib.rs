//! A model of the programmable hardware path profiler (thesis, chapter 5): path detector, hot path table, processor. Pure.
#![forbid(unsafe_code)]
