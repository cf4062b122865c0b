//! CSV files: readable, with these columns, with enough rows below the header.

use super::{Found, head};

pub(super) fn check(bytes: &[u8], min: u64, columns: &[String]) -> Found {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let mut reader = csv::ReaderBuilder::new().from_reader(bytes);
    let header: Vec<String> = match reader.byte_headers() {
        Ok(header) => header.iter().map(|c| String::from_utf8_lossy(c).trim().to_owned()).collect(),
        Err(error) => return Found::Fails(format!("it is not CSV: {error}")),
    };
    let missing: Vec<&str> =
        columns.iter().map(String::as_str).filter(|c| !header.iter().any(|h| h == c.trim())).collect();
    if !missing.is_empty() {
        return Found::Fails(format!(
            "the columns {} are missing; the header is {}",
            missing.join(", "),
            head(&header.join(", "), 300)
        ));
    }
    let (mut rows, mut row) = (0u64, csv::ByteRecord::new());
    loop {
        match reader.read_byte_record(&mut row) {
            Ok(true) if row.iter().all(|field| field.trim_ascii().is_empty()) => {}
            Ok(true) => rows += 1,
            Ok(false) => break,
            Err(error) => return Found::Fails(format!("it is not CSV: {error}")),
        }
    }
    Found::of(rows >= min, format!("it has {rows} rows below the header"))
}
