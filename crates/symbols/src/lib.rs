//! PDB, ISF, COFF, DWARF and export symbols; type layouts; demangling.
