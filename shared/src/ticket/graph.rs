//! Whether a set of tickets is a sound plan (pure).
