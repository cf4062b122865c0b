//! The client against a real HTTP server that checks every request.
