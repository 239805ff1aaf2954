#![no_main]
//! Any file as a PE image: headers, every directory, relocated reads.

use pe::{CoffSymbols, FileImage, ImageSource};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Ok(image) = FileImage::new(data) else { return };
    let pe = image.pe();
    let _ = (pe.exports(&image), pe.imports(&image), pe.pdb(&image), pe.version(&image));
    let _ = (pe.load_config(&image), pe.relocations(&image, 0, 0x1_0000), pe.export_name(&image));
    let _ = image.facts(pe.image_base);
    let mut buffer = [0; 256];
    for section in pe.sections.iter().take(8) {
        let _ = image.read_rva(section.rva, &mut buffer);
        let _ = image.read_rva_at(section.rva, 0x1234_0000, &mut buffer);
    }
    if let Some(table) = pe.exception_table(&image) {
        let _ = (table.find(0x1000), table.get(table.len().saturating_sub(1)));
    }
    if let Some(table) = CoffSymbols::new(pe, data) {
        let _ = table.symbols(pe);
    }
});
