#[allow(dead_code, reason = "the agent loop that calls it is being written")]
mod tools;

fn main() {}
