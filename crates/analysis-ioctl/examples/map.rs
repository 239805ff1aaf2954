//! Prints the control codes of driver files.
#![allow(clippy::unwrap_used, clippy::expect_used)]
use analysis_ioctl::analysis::{Question, analyse};
use analysis_ioctl::discover::static_entries;
use analysis_ioctl::pass::Pass;
use code_flow::{CodeImage, Origin, Whole};
use target::Halt;

fn main() {
    for path in std::env::args().skip(1) {
        let bytes = std::fs::read(&path).unwrap();
        let file = pe::FileImage::new(bytes).unwrap();
        let module = target::Module {
            name: "x".into(),
            image_name: "x.sys".into(),
            image_path: path.clone(),
            base: file.pe().image_base,
            size: u64::from(file.pe().size_of_image),
            timestamp: 0,
            checksum: 0,
            pdb: None,
            user_mode: None,
            file_version: None,
        };
        let image = CodeImage::open(&module, Box::new(Whole(file, Origin::ImageFile))).unwrap();
        let halt = Halt::unbounded();
        let found = static_entries(&image, &halt);
        println!("== {path} entries {:x?}", found.entries);
        for entry in found.entries {
            let constants = |address: u64, size: u8| image.constant(address, usize::from(size));
            let mut pass = Pass::new(&image, &constants, entry.major);
            let start = std::time::Instant::now();
            let question = Question {
                entry: entry.address,
                convention: entry.convention,
                major: entry.major,
                framework: None,
                descend: true,
                sweeps: 64,
            };
            let out = analyse(&mut pass, question, &halt);
            println!("  {:?} functions {:x?} insns {}", start.elapsed(), out.functions, out.instructions);
            for site in &out.sites {
                let values = pass.solver.sets.values(site.values, 24);
                let count = pass.solver.sets.count(site.values);
                println!(
                    "  at {:x} lands {:x} {:?} proved {} n={count} {:x?} acc {:?} st {:x?} h {:x?} in {:?} via {:x?}",
                    site.at, site.lands, site.recovered, site.proved, values, site.fate.accepted, site.fate.status,
                    site.fate.handler, site.fate.input.map(|s| (pass.solver.sets.min(s), pass.solver.sets.max(s))), site.via
                );
            }
            if let Some(d) = &out.default {
                println!("  default {:x} n={} acc {:?} st {:x?}", d.lands, pass.solver.sets.count(d.values), d.fate.accepted, d.fate.status);
            }
            println!("  tables {:x?}", out.tables);
            println!(
                "  unresolved {:x?} untracked {:x?} blind {:x?} unsettled {} caps {:?} traced {}",
                out.unresolved, out.untracked, out.blind, out.unsettled, out.caps, out.traced
            );
        }
    }
}
