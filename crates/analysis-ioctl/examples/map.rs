//! Prints the control codes of a driver file: `map FILE [RVA CONVENTION [TABLE_RVA [pointer]]]`.
#![allow(clippy::unwrap_used, clippy::expect_used)]
use analysis_ioctl::discover::static_entries;
use analysis_ioctl::map::{MapRequest, convention_named, map_entry, render};
use analysis_ioctl::pass::FrameworkTable;
use analysis_ioctl::taint::{cases, find};
use code_flow::CodeImage;
use target::Halt;

fn hex(text: &str) -> u64 {
    u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap()
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let file = pe::FileImage::new(std::fs::read(&args[0]).unwrap()).unwrap();
    let base = file.pe().image_base;
    let image = CodeImage::of_file("driver", file, base).unwrap();
    let halt = Halt::unbounded();
    let requests: Vec<MapRequest> = match args.get(1) {
        Some(rva) => vec![MapRequest {
            convention: args.get(2).and_then(|name| convention_named(name)),
            framework: args.get(3).map(|table| FrameworkTable {
                table: image.base + hex(table),
                pointer: args.get(4).is_some(),
                count: 512,
            }),
            ..MapRequest::at(image.base + hex(rva))
        }],
        None => static_entries(&image, &halt)
            .entries
            .iter()
            .map(|e| MapRequest {
                convention: Some(e.convention),
                major: e.major,
                ..MapRequest::at(e.address)
            })
            .collect(),
    };
    for request in requests {
        let start = std::time::Instant::now();
        let mapped = map_entry(&image, &request, &halt);
        let (took, map) = (start.elapsed(), &mapped.map);
        println!("{}", render(map));
        for row in map.codes.iter().take(40) {
            for site in &row.sites {
                println!("  {} {site:?}", row.code);
            }
            println!("     {:?}", row.evidence);
        }
        println!(
            "{:?}\nunresolved {:?}\nuntracked {:?}\ndisputed {:?}",
            map.tables, map.unresolved, map.untracked, map.disputed
        );
        let start = std::time::Instant::now();
        let found = find(&image, &mapped.question, &cases(map), &halt);
        for finding in &found.findings {
            println!("  {} at {:#x} {:x?}", finding.class.name(), finding.at, finding.codes);
        }
        println!(
            "map {took:?}, findings {:?}, {} functions, caps {:?}",
            start.elapsed(),
            found.functions.len(),
            found.caps
        );
    }
}
