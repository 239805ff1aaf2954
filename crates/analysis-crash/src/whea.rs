//! `WHEA_ERROR_RECORD` (the UEFI common platform error record) of bug check 0x124.

use target::{MemoryExt as _, Target};

/// What a record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Summary {
    severity: &'static str,
    sections: Vec<&'static str>,
    /// A section of the memory kind is there.
    pub(crate) memory: bool,
}

const HEADER_SIZE: u64 = 128;
const DESCRIPTOR_SIZE: u64 = 72;
/// Sections looked at: a real record has one to four.
const MAX_SECTIONS: u64 = 16;

/// Reads the record at `address`; `None` if it has no `CPER` signature.
pub(crate) fn read(target: &dyn Target, address: u64) -> Option<Summary> {
    let header: [u8; HEADER_SIZE as usize] = target.read_array(address).ok()?;
    if &header[..4] != b"CPER" {
        return None;
    }
    let count = u64::from(u16::from_le_bytes([header[10], header[11]])).min(MAX_SECTIONS);
    let severity = match u32::from_le_bytes([header[12], header[13], header[14], header[15]]) {
        0 => "recoverable",
        1 => "fatal",
        2 => "corrected",
        3 => "informational",
        _ => "of unknown severity",
    };
    let mut sections = Vec::new();
    for index in 0..count {
        let at = address.checked_add(HEADER_SIZE + index * DESCRIPTOR_SIZE + 16)?;
        let Ok(guid) = target.read_array::<16>(at) else { break };
        sections.push(section_name(&target::Guid(guid).to_string()));
    }
    let memory = sections.contains(&"memory");
    Some(Summary { severity, sections, memory })
}

/// Section types of the UEFI specification, appendix N.
fn section_name(guid: &str) -> &'static str {
    match guid {
        "9876CCAD47B44BDBB65E16F193C4F3DB" => "processor (generic)",
        "DC3EA0B0A1444797B95B53FA242B6E1D" => "processor (x86/x64)",
        "A5BC11146F644EDEB8633E83ED7C83B1" => "memory",
        "D995E954BBC1430FAD91B44DCB3C6F35" => "PCI Express",
        "8A1E1D0142F945579C33565E5CC3F7E8" => "machine check",
        "E71254E7C1B94940AB76909703A4320F" => "non-maskable interrupt",
        "C57539633B844095BF78EDDAD3F9C9DD" => "PCI or PCI-X bus",
        "EB5E4685CA664769B6A226068B001326" => "PCI or PCI-X device",
        "81212A9609ED499694718D729C8E69ED" => "firmware error record",
        _ => "of an unnamed kind",
    }
}

impl Summary {
    pub(crate) fn text(&self) -> String {
        let sections = if self.sections.is_empty() { "none".into() } else { self.sections.join(", ") };
        format!("The hardware error record is {}; sections: {sections}.", self.severity)
    }
}

/// The architectural bits of `MCi_STATUS` (Intel SDM volume 3, chapter on machine checks).
pub(crate) fn machine_check_status(high: u64, low: u64) -> String {
    let status = (high & 0xffff_ffff) << 32 | (low & 0xffff_ffff);
    let mut flags = Vec::new();
    for (bit, name) in [
        (63, "valid"),
        (62, "overflow"),
        (61, "uncorrected"),
        (60, "enabled"),
        (59, "misc valid"),
        (58, "address valid"),
        (57, "processor context corrupt"),
    ] {
        if status >> bit & 1 == 1 {
            flags.push(name);
        }
    }
    let code = status & 0xffff;
    let what = match code {
        0x0001 => "unclassified",
        0x0005 => "internal parity",
        0x0400 => "internal timer",
        c if c & 0xf800 == 0x0800 => "bus or interconnect",
        c if c & 0xff00 == 0x0100 => "cache",
        c if c & 0xfff0 == 0x0010 => "TLB",
        c if c & 0xff80 == 0x0080 => "memory controller",
        _ => "other",
    };
    format!("MCi_STATUS {status:#018x}: {}; error code {code:#x} ({what}).", flags.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_bits() {
        let text = machine_check_status(0xfe00_0000, 0x0000_0135);
        assert!(text.contains("uncorrected") && text.contains("cache"), "{text}");
        assert!(machine_check_status(0xb200_0000, 0x0402_0005).contains("internal parity"));
    }
}
