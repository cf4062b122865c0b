//! What at least two of Muster's programs use. Module map and nothing else.
//!
//! Who may import whom stands in ARCHITECTURE.md and is enforced by `tests/tidy.rs`:
//! `ticket, goal, lesson, standard, message, tool, prompt, planfile` are pure; `codec -> message`; `store -> codec, ticket, message`;
//! `model -> store`; `workspace -> store, blob, sandbox`; `consumer -> store, service`.

pub mod blob;
pub mod codec;
pub mod config;
pub mod consumer;
pub mod egress;
pub mod goal;
pub mod lesson;
pub mod message;
pub mod model;
pub mod planfile;
pub mod prompt;
pub mod role;
pub mod sandbox;
pub mod service;
pub mod standard;
pub mod store;
pub mod telemetry;
pub mod ticket;
pub mod tool;
pub mod workspace;
