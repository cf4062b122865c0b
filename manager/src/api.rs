//! The HTTP API: one router, routes by resource. What a request may do is decided in [`auth`].

pub(crate) mod types;
