//! The PKCS#7 of an Authenticode signature, read, not verified (RFC 2315, X.690; Microsoft's
//! "Windows Authenticode Portable Executable Signature Format").

use target::ImageSigner;

/// Deepest nesting followed is fixed by the code below; these bound lists.
const MAX_CERTIFICATES: usize = 64;
const MAX_SIGNERS: usize = 8;
const MAX_NAME: usize = 512;

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const INTEGER: u8 = 2;
const OCTETS: u8 = 4;
const OID: u8 = 6;

/// What a signature says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Signed {
    /// The file's hash that is signed.
    pub(crate) digest: Option<Vec<u8>>,
    pub(crate) digest_algorithm: Option<String>,
    pub(crate) signers: Vec<ImageSigner>,
}

/// One DER value.
#[derive(Clone, Copy)]
struct Value<'a> {
    tag: u8,
    body: &'a [u8],
    /// Tag and length included.
    whole: &'a [u8],
}

/// The first value of `bytes` and what follows it.
fn value(bytes: &[u8]) -> Option<(Value<'_>, &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, after) = rest.split_first()?;
    let (length, after) = if first < 0x80 {
        (usize::from(first), after)
    } else {
        let count = usize::from(first & 0x7f);
        if count == 0 || count > 4 || after.len() < count {
            return None;
        }
        let length = after[..count].iter().fold(0usize, |n, &b| n << 8 | usize::from(b));
        (length, &after[count..])
    };
    let body = after.get(..length)?;
    let whole = &bytes[..bytes.len() - after.len() + length];
    Some((Value { tag, body, whole }, &after[length..]))
}

/// The values inside one.
fn inside(body: &[u8]) -> impl Iterator<Item = Value<'_>> {
    let mut rest = body;
    std::iter::from_fn(move || {
        let (found, after) = value(rest)?;
        rest = after;
        Some(found)
    })
}

fn child<'a>(parent: Value<'a>, index: usize, tag: u8) -> Option<Value<'a>> {
    inside(parent.body).nth(index).filter(|v| v.tag == tag)
}

/// The signature in `data`; `None` when it is not PKCS#7 signed data.
pub(crate) fn parse(data: &[u8]) -> Option<Signed> {
    let (content, _) = value(data).filter(|(v, _)| v.tag == SEQUENCE)?;
    // 1.2.840.113549.1.7.2
    let signed_data = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 7, 2];
    if child(content, 0, OID)?.body != signed_data {
        return None;
    }
    let explicit = child(content, 1, 0xa0)?;
    let signed = inside(explicit.body).next().filter(|v| v.tag == SEQUENCE)?;
    let mut certificates = Vec::new();
    let mut signers = Vec::new();
    for part in inside(signed.body) {
        match part.tag {
            0xa0 => certificates = inside(part.body).take(MAX_CERTIFICATES).filter_map(certificate).collect(),
            // The first set holds the digest algorithms, the last the signers: both may be walked.
            SET => {
                signers =
                    inside(part.body).take(MAX_SIGNERS).filter_map(|v| signer(v, &certificates)).collect()
            }
            _ => {}
        }
    }
    let (digest_algorithm, digest) = file_digest(signed).unzip();
    Some(Signed { digest, digest_algorithm, signers })
}

/// `SpcIndirectDataContent.messageDigest`.
fn file_digest(signed: Value<'_>) -> Option<(String, Vec<u8>)> {
    let info = inside(signed.body).nth(2).filter(|v| v.tag == SEQUENCE)?;
    let content = child(info, 1, 0xa0)?;
    let indirect = inside(content.body).next().filter(|v| v.tag == SEQUENCE)?;
    let digest = child(indirect, 1, SEQUENCE)?;
    let algorithm = child(child(digest, 0, SEQUENCE)?, 0, OID)?;
    Some((algorithm_name(algorithm.body), child(digest, 1, OCTETS)?.body.to_vec()))
}

fn algorithm_name(oid: &[u8]) -> String {
    match oid {
        [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 2, 5] => "md5".to_owned(),
        [0x2b, 0x0e, 3, 2, 0x1a] => "sha1".to_owned(),
        [0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 1] => "sha256".to_owned(),
        [0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 2] => "sha384".to_owned(),
        [0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 3] => "sha512".to_owned(),
        other => other.iter().take(16).map(|b| format!("{b:02x}")).collect(),
    }
}

struct Certificate<'a> {
    serial: &'a [u8],
    issuer: &'a [u8],
    subject: String,
}

fn certificate(whole: Value<'_>) -> Option<Certificate<'_>> {
    let tbs = child(whole, 0, SEQUENCE)?;
    let mut fields = inside(tbs.body).peekable();
    if fields.peek()?.tag == 0xa0 {
        fields.next();
    }
    let serial = fields.next().filter(|v| v.tag == INTEGER)?.body;
    let _algorithm = fields.next()?;
    let issuer = fields.next()?.whole;
    let _validity = fields.next()?;
    let subject = name(fields.next()?);
    Some(Certificate { serial, issuer, subject })
}

/// A `SignerInfo`, named by the certificate it points to.
fn signer(info: Value<'_>, certificates: &[Certificate<'_>]) -> Option<ImageSigner> {
    let identity = child(info, 1, SEQUENCE)?;
    let issuer = child(identity, 0, SEQUENCE)?;
    let serial = child(identity, 1, INTEGER)?.body;
    let certificate = certificates.iter().find(|c| c.serial == serial && c.issuer == issuer.whole);
    Some(ImageSigner {
        subject: certificate
            .map_or_else(|| "(its certificate is not in the file)".to_owned(), |c| c.subject.clone()),
        issuer: name(issuer),
        serial: serial.iter().take(32).map(|b| format!("{b:02x}")).collect(),
    })
}

/// `CN=..., O=..., C=...` in the order of the file.
fn name(sequence: Value<'_>) -> String {
    let mut parts = Vec::new();
    for set in inside(sequence.body).take(32) {
        for pair in inside(set.body).take(4) {
            let mut fields = inside(pair.body);
            let (Some(kind), Some(text)) = (fields.next(), fields.next()) else { continue };
            let key = match kind.body {
                [0x55, 4, 3] => "CN",
                [0x55, 4, 6] => "C",
                [0x55, 4, 7] => "L",
                [0x55, 4, 8] => "ST",
                [0x55, 4, 10] => "O",
                [0x55, 4, 11] => "OU",
                [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1] => "E",
                _ => continue,
            };
            parts.push(format!("{key}={}", text_of(text)));
        }
    }
    parts.join(", ").chars().take(MAX_NAME).collect()
}

fn text_of(value: Value<'_>) -> String {
    let text = if value.tag == 0x1e {
        let units: Vec<u16> = value.body.chunks_exact(2).map(|u| u16::from_be_bytes([u[0], u[1]])).collect();
        String::from_utf16_lossy(&units)
    } else {
        String::from_utf8_lossy(value.body).into_owned()
    };
    text.replace(char::is_control, "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_bounded_by_the_bytes() {
        assert!(value(&[0x30, 0x82, 0xff, 0xff, 1]).is_none());
        assert!(value(&[0x30, 0x85, 1, 1, 1, 1, 1]).is_none());
        assert!(value(&[0x30, 0x80]).is_none());
        assert!(value(&[0x30]).is_none());
        let (found, rest) = value(&[2, 1, 7, 9]).unwrap();
        assert_eq!((found.tag, found.body, rest), (2, &[7u8][..], &[9u8][..]));
        assert!(parse(&[]).is_none());
        assert!(parse(&[0x30, 0]).is_none());
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_parse_or_not(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..300)) {
            let _ = parse(&bytes);
            let mut wrapped = vec![0x30, 0x82, 2, 0, 6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 7, 2, 0xa0, 0x82, 1, 0];
            wrapped.extend(&bytes);
            wrapped.resize(600, 0x30);
            let _ = parse(&wrapped);
        }
    }
}
