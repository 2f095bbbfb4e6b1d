//! The binary as an operator meets it: started, asked, stopped, and told nonsense.

mod bad_input;
mod standalone;
mod support;
