//! Every image of the test data, against the crate `object`.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};

use object::read::pe::{ImageNtHeaders, ImageOptionalHeader, PeFile};
use object::{LittleEndian as LE, Object, ObjectSection};
use pe::{DirectoryIndex, ExportTarget, FileImage, ImageSource, ImageSourceExt, MappedImage, Pe};
use target::RegionMemory;

fn collect(folder: &Path, out: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, out);
        } else if path.extension().is_some_and(|e| ["exe", "dll", "sys"].iter().any(|x| e == *x)) {
            out.push(path);
        }
    }
}

fn images() -> Vec<(PathBuf, Vec<u8>)> {
    let Some(data) = test_data::shared() else { return Vec::new() };
    let mut out = Vec::new();
    for folder in ["pe", "drivers", "user", "synthetic", "symsrv"] {
        collect(&data.join(folder), &mut out);
    }
    out.sort();
    out.into_iter().map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
}

/// Answers the number of relocated values compared.
fn compare<N: ImageNtHeaders>(bytes: &[u8], name: &str) -> usize {
    let image = FileImage::new(bytes).unwrap();
    let pe = image.pe();
    let reference: PeFile<'_, N> = PeFile::parse(bytes).unwrap();
    let header = reference.nt_headers();
    let optional = header.optional_header();
    assert_eq!(pe.image_machine, header.file_header().machine.get(LE).0, "{name}");
    assert_eq!(pe.timestamp, header.file_header().time_date_stamp.get(LE), "{name}");
    assert_eq!(pe.size_of_image, optional.size_of_image(), "{name}");
    assert_eq!(pe.checksum, optional.check_sum(), "{name}");
    assert_eq!(pe.image_base, optional.image_base(), "{name}");
    assert_eq!(pe.entry_point, optional.address_of_entry_point(), "{name}");
    assert_eq!(pe.subsystem, optional.subsystem().0, "{name}");
    let sections: Vec<_> = reference.sections().collect();
    assert_eq!(pe.sections.len(), sections.len(), "{name}");
    for (ours, theirs) in pe.sections.iter().zip(&sections) {
        let raw = theirs.data().unwrap();
        let length = raw.len().min(ours.virtual_size as usize);
        assert_eq!(image.prefix(ours.rva, length), raw[..length], "{name} {}", ours.name);
    }
    let identity = pe.pdb(&image);
    let theirs = reference.pdb_info().unwrap();
    assert_eq!(identity.as_ref().map(|p| (p.guid.0, p.age)), theirs.map(|p| (p.guid(), p.age())), "{name}");
    let mut names: Vec<Vec<u8>> =
        reference.exports().unwrap().filter_map(|e| e.unwrap().name().name().map(<[u8]>::to_vec)).collect();
    names.sort();
    let mut ours: Vec<Vec<u8>> = pe
        .exports(&image)
        .into_iter()
        .filter(|e| matches!(e.target, ExportTarget::Rva(_)))
        .filter_map(|e| e.name.map(String::into_bytes))
        .collect();
    ours.sort();
    assert_eq!(ours, names, "{name}");
    let theirs: Vec<Vec<u8>> =
        reference.imports().unwrap().filter_map(|i| i.unwrap().name().name().map(<[u8]>::to_vec)).collect();
    let ours: Vec<Vec<u8>> = pe
        .imports(&image)
        .into_iter()
        .flat_map(|d| d.imports)
        .filter_map(|i| i.name.map(String::into_bytes))
        .collect();
    assert_eq!(ours, theirs, "{name}");
    relocations(&reference, &image, name)
}

/// Every 64- or 32-bit relocated value, read at another base, is moved by the distance.
fn relocations<N: ImageNtHeaders>(reference: &PeFile<'_, N>, image: &FileImage<&[u8]>, name: &str) -> usize {
    let directories = reference.data_directories();
    let Some(mut blocks) =
        directories.relocation_blocks(reference.data(), &reference.section_table()).unwrap()
    else {
        return 0;
    };
    let base = image.pe().image_base + 0x1234_0000;
    let mut seen = 0;
    // One image's last block is padding that `object` calls damaged.
    while let Ok(Some(block)) = blocks.next() {
        for relocation in block {
            let size = match relocation.typ.0 {
                3 => 4,
                10 => 8,
                _ => continue,
            };
            let rva = relocation.virtual_address;
            let (mut plain, mut moved) = ([0; 8], [0; 8]);
            assert_eq!(image.read_rva(rva, &mut plain[..size]), size);
            assert_eq!(image.read_rva_at(rva, base, &mut moved[..size]), size);
            let expected = u64::from_le_bytes(plain).wrapping_add(0x1234_0000);
            assert_eq!(moved[..size], expected.to_le_bytes()[..size], "{name} {rva:#x}");
            // A read that begins inside the value gives the same bytes.
            let mut tail = [0; 3];
            image.read_rva_at(rva + 1, base, &mut tail);
            assert_eq!(tail[..], moved[1..4], "{name} {rva:#x}");
            seen += 1;
        }
    }
    seen
}

#[test]
fn all_images_agree_with_object() {
    let images = images();
    let mut relocated = 0;
    for (path, bytes) in &images {
        let name = path.display().to_string();
        if name.ends_with("cfi_chained_loop.exe") {
            continue; // object refuses its headers; ours reads them (unwind's acceptance case 18)
        }
        let pe = FileImage::new(&bytes[..]).unwrap_or_else(|e| panic!("{name}: {e}"));
        relocated += if pe.pe().is_64 {
            compare::<object::pe::ImageNtHeaders64>(bytes, &name)
        } else {
            compare::<object::pe::ImageNtHeaders32>(bytes, &name)
        };
    }
    println!("{} images, {relocated} relocated values", images.len());
    assert!(images.is_empty() || relocated > 1000);
}

#[test]
fn an_image_in_memory_reads_like_its_file() {
    let Some(data) = test_data::shared() else { return };
    let bytes = std::fs::read(data.join("user/crash_x86/crash.exe")).unwrap();
    let file = FileImage::new(&bytes[..]).unwrap();
    let base = 0x2a_0000;
    let mut whole = vec![0; file.pe().size_of_image as usize];
    for section in &file.pe().sections {
        let start = section.rva as usize;
        let end = (start + section.virtual_size as usize).min(whole.len());
        file.read_rva_at(section.rva, base, &mut whole[start..end]);
    }
    let headers = file.pe().size_of_headers;
    file.read_rva(0, &mut whole[..headers as usize]);
    let mut memory = RegionMemory::new();
    memory.add(base, whole);
    let mapped = MappedImage::new(&memory, base);
    let pe = Pe::parse(&mapped).unwrap();
    assert_eq!(&pe, file.pe());
    let identity = pe.pdb(&mapped).unwrap();
    assert_eq!(identity.guid.to_string(), "3249D99D0C4049318610F4E4FB0B6936");
    assert_eq!(identity.file_name(), "crash.pdb");
    assert_eq!(pe.imports(&mapped), file.pe().imports(&file));
    let config = pe.load_config(&mapped).unwrap();
    let cookie = config.security_cookie.unwrap();
    assert!(pe.section_at((cookie - base) as u32).unwrap().is_writable(), "{cookie:#x}");
    assert_eq!(pe.is_executable(pe.entry_point), Some(true));
    assert_eq!(pe.is_executable(0), Some(false));
}

#[test]
fn functions_are_found_by_binary_search() {
    let Some(data) = test_data::shared() else { return };
    for (name, width) in [("pe/ms_seh/x64/xcpt4.exe", 12), ("pe/arm64test.exe", 8)] {
        let bytes = std::fs::read(data.join(name)).unwrap();
        let file = FileImage::new(&bytes[..]).unwrap();
        let table = file.pe().exception_table(&file).unwrap();
        assert_eq!(table.len() * width, file.pe().directory(DirectoryIndex::Exception).unwrap().1);
        for index in 0..table.len() {
            let entry = table.get(index).unwrap();
            assert_eq!(table.find(entry.begin).unwrap(), Some(entry));
            assert_eq!(table.find(entry.begin + 1).unwrap(), Some(entry));
        }
        assert_eq!(table.find(0).unwrap(), None);
    }
}

#[test]
fn versions_where_images_have_them() {
    let mut versions = Vec::new();
    for (path, bytes) in images() {
        let Ok(file) = FileImage::new(&bytes[..]) else { continue };
        if let Some(version) = file.pe().version(&file) {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            versions.push(format!(
                "{name}: {:?} {:?}",
                version.file_version,
                version.string("FileDescription")
            ));
        }
    }
    println!("{versions:#?}");
    assert!(test_data::shared().is_none() || !versions.is_empty());
}
