//! Muster's manager: plans goals, decides escalations, serves the API.

mod api;

fn main() {}
