//! The only user of bincode: the envelope of a delivery in a list.
//!
//! An envelope is an ASCII header that Lua reads too, then the bincode body:
//! version byte, 32 hex digits of the ticket's id, `:`, the epoch as 10 digits, `|`, body.
//! At most [`ENVELOPE_BYTES_MAX`]; bytes left over are an error; readers take version N and N−1.
//! bincode is unmaintained (RUSTSEC-2025-0141) and was asked for; the way out is postcard, and only
//! this file and the prelude's `envelope` function would change.

use crate::message::Delivery;

/// What writers write.
pub const VERSION: u8 = b'1';
/// The oldest version that is still read.
pub const VERSION_MIN: u8 = b'1';
/// Longest envelope, header included.
pub const ENVELOPE_BYTES_MAX: usize = 4096;
const HEADER_BYTES: usize = 1 + 32 + 1 + 10 + 1;
const BODY_BYTES_MAX: usize = ENVELOPE_BYTES_MAX - HEADER_BYTES;

/// Why an envelope is not taken. It goes to the dead letters unchanged, with this as the reason.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum WireError {
    #[error("envelope of {0} bytes is outside {HEADER_BYTES}..={ENVELOPE_BYTES_MAX}")]
    Size(usize),
    #[error("envelope version {0:#04x} is not known")]
    Version(u8),
    #[error("envelope header is malformed")]
    Header,
    #[error("body does not decode: {0}")]
    Body(String),
    #[error("{0} bytes left over after the body")]
    TrailingBytes(usize),
    #[error("header and body name different tickets or epochs")]
    Mismatch,
}

/// Ticket id and epoch of a header.
///
/// # Errors
/// [`WireError`] for a size, version or header that does not parse.
pub fn header(bytes: &[u8]) -> Result<(&str, u64), WireError> {
    if bytes.len() < HEADER_BYTES || bytes.len() > ENVELOPE_BYTES_MAX {
        return Err(WireError::Size(bytes.len()));
    }
    if !(VERSION_MIN..=VERSION).contains(&bytes[0]) {
        return Err(WireError::Version(bytes[0]));
    }
    let text = std::str::from_utf8(&bytes[1..HEADER_BYTES]).map_err(|_| WireError::Header)?;
    let (id, rest) = text.split_at_checked(32).ok_or(WireError::Header)?;
    let epoch = rest.strip_prefix(':').and_then(|r| r.strip_suffix('|')).ok_or(WireError::Header)?;
    if !id.bytes().all(|b| b.is_ascii_hexdigit()) || !epoch.bytes().all(|b| b.is_ascii_digit()) {
        return Err(WireError::Header);
    }
    Ok((id, epoch.parse().map_err(|_| WireError::Header)?))
}

/// Fixed-size little-endian integers, so that Lua's `struct.pack` writes the same bytes.
fn layout() -> bincode::config::Configuration<
    bincode::config::LittleEndian,
    bincode::config::Fixint,
    bincode::config::Limit<BODY_BYTES_MAX>,
> {
    bincode::config::standard().with_fixed_int_encoding().with_limit::<BODY_BYTES_MAX>()
}

/// Writes an envelope.
///
/// # Errors
/// [`WireError`] when the delivery does not fit in [`ENVELOPE_BYTES_MAX`].
pub fn encode(delivery: &Delivery) -> Result<Vec<u8>, WireError> {
    let body =
        bincode::serde::encode_to_vec(delivery, layout()).map_err(|e| WireError::Body(e.to_string()))?;
    let mut out = Vec::with_capacity(HEADER_BYTES + body.len());
    out.push(VERSION);
    out.extend_from_slice(format!("{}:{:010}|", delivery.ticket, delivery.epoch).as_bytes());
    out.extend_from_slice(&body);
    if out.len() > ENVELOPE_BYTES_MAX {
        return Err(WireError::Size(out.len()));
    }
    Ok(out)
}

/// Reads an envelope.
///
/// # Errors
/// [`WireError`] for anything that is not exactly one envelope of a known version. Never allocates more
/// than the envelope's limit, never panics.
pub fn decode(bytes: &[u8]) -> Result<Delivery, WireError> {
    let (id, epoch) = header(bytes)?;
    let body = &bytes[HEADER_BYTES..];
    let (delivery, used): (Delivery, usize) =
        bincode::serde::decode_from_slice(body, layout()).map_err(|e| WireError::Body(e.to_string()))?;
    if used != body.len() {
        return Err(WireError::TrailingBytes(body.len() - used));
    }
    if delivery.ticket != id || delivery.epoch != epoch {
        return Err(WireError::Mismatch);
    }
    Ok(delivery)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Kind;
    use proptest::prelude::*;

    fn sample() -> Delivery {
        Delivery {
            kind: Kind::Review,
            ticket: "0123456789abcdef0123456789abcdef".into(),
            epoch: 7,
            traceparent: "00-aa".into(),
            enqueued_at_ms: 1_700_000_000_123,
        }
    }

    /// Golden bytes of version 1: a change here is a new version, not an edit.
    #[test]
    fn golden_bytes_of_version_1() {
        let bytes = encode(&sample()).unwrap();
        let mut want = b"10123456789abcdef0123456789abcdef:0000000007|".to_vec();
        want.extend([1, 0, 0, 0]);
        want.extend([32, 0, 0, 0, 0, 0, 0, 0]);
        want.extend(b"0123456789abcdef0123456789abcdef");
        want.extend([7, 0, 0, 0, 0, 0, 0, 0]);
        want.extend([5, 0, 0, 0, 0, 0, 0, 0]);
        want.extend(b"00-aa");
        want.extend(1_700_000_000_123_u64.to_le_bytes());
        assert_eq!(bytes, want);
        assert_eq!(decode(&bytes).unwrap(), sample());
    }

    #[test]
    fn q35_bad_envelopes_are_named_not_panicked_over() {
        let good = encode(&sample()).unwrap();
        assert_eq!(decode(b""), Err(WireError::Size(0)));
        assert_eq!(decode(&vec![b'1'; 5000]), Err(WireError::Size(5000)));
        let mut future = good.clone();
        future[0] = b'9';
        assert_eq!(decode(&future), Err(WireError::Version(b'9')));
        let mut trailing = good.clone();
        trailing.push(0);
        assert_eq!(decode(&trailing), Err(WireError::TrailingBytes(1)));
        let mut huge = good.clone();
        huge[HEADER_BYTES + 4..HEADER_BYTES + 12].copy_from_slice(&(1_u64 << 32).to_le_bytes());
        assert!(matches!(decode(&huge), Err(WireError::Body(_))));
        assert!(matches!(decode(&good[..good.len() - 3]), Err(WireError::Body(_))));
        let mut other = good;
        other[1] = b'f';
        assert_eq!(decode(&other), Err(WireError::Mismatch));
    }

    proptest! {
        #[test]
        fn any_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = decode(&bytes);
        }

        #[test]
        fn any_body_behind_a_good_header_never_panics(body in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut bytes = b"10123456789abcdef0123456789abcdef:0000000007|".to_vec();
            bytes.extend(body);
            let _ = decode(&bytes);
        }

        #[test]
        fn round_trip(epoch in 0u64..9_999_999_999, at in any::<u64>(), trace in "[ -~]{0,200}") {
            let d = Delivery { kind: Kind::Work, ticket: crate::ticket::new_id(), epoch, traceparent: trace, enqueued_at_ms: at };
            prop_assert_eq!(decode(&encode(&d).unwrap()).unwrap(), d);
        }
    }

    /// Mutated envelopes for `MUSTER_FUZZ_SECONDS` (`tests/soak.sh fuzz`); what is read is read again as the same.
    #[test]
    fn fuzz_the_envelope() {
        use rand::RngExt as _;
        let seconds = std::env::var("MUSTER_FUZZ_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(3);
        let end = std::time::Instant::now() + std::time::Duration::from_secs(seconds);
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/fuzz/envelope");
        let mut corpus = vec![encode(&sample()).unwrap()];
        corpus.extend(std::fs::read_dir(folder).unwrap().map(|f| std::fs::read(f.unwrap().path()).unwrap()));
        let mut rng = rand::rng();
        let (mut tried, mut read) = (0, 0);
        while tried < corpus.len() || std::time::Instant::now() < end {
            let mut bytes = corpus[tried % corpus.len()].clone();
            for _ in 0..if tried < corpus.len() { 0 } else { rng.random_range(1..=4) } {
                let at = rng.random_range(0..=bytes.len());
                match rng.random_range(0..4) {
                    0 => bytes.truncate(at),
                    1 => bytes.insert(at, rng.random()),
                    2 => bytes.extend(vec![rng.random::<u8>(); 8]),
                    _ => bytes.iter_mut().skip(at).take(1).for_each(|b| *b = rng.random()),
                }
            }
            tried += 1;
            let _ = header(&bytes);
            if let Ok(delivery) = decode(&bytes) {
                read += 1;
                assert_eq!(decode(&encode(&delivery).unwrap()).unwrap(), delivery, "{bytes:?}");
            }
        }
        assert!(read > 0 && tried > read, "{read} of {tried} were envelopes");
    }
}
