//! What the tests of the whole fleet stand on: real servers, real programs, and an oracle. Module map and nothing else.
//!
//! Everything here is started for one test, on loopback, with a folder of its own, and dies with the test.

pub mod browser;
pub mod collector;
pub mod desk;
pub mod fleet;
pub mod history;
pub mod limited;
pub mod model;
pub mod oracle;
pub mod preload;
pub mod process;
pub mod prometheus;
pub mod proxy;
pub mod python;
pub mod redis;
pub mod resp;
pub mod scale;
pub mod script;
pub mod service;
pub mod topology;
pub mod turnstile;
pub mod wait;
