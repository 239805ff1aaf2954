//! Everything there is to ask of a file of symbols.

use symbols::SymbolFile;

pub(crate) fn ask(file: &dyn SymbolFile) {
    let _ = file.identity();
    let found = file.matching("*", 24).unwrap_or_default();
    for rva in
        found.iter().flat_map(|symbol| [symbol.rva, symbol.rva.wrapping_add(5)]).chain([0x1040, u64::MAX])
    {
        let _ = (file.symbol_at(rva), file.line_at(rva), file.inline_chain(rva), file.locals_at(rva));
        let _ = (file.frame_program(rva), file.function_bounds(rva));
    }
    for symbol in found.iter().take(4) {
        let _ = (file.by_name(&symbol.name), file.type_of(&symbol.name));
    }
    let _ = file.matching("*a*", 100);
    for name in file.types_matching("*", 100).unwrap_or_default() {
        let _ = file.type_layout(&name);
    }
}
