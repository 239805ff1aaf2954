//! The committed drivers in this process: a device type's codes at a time, which takes milliseconds.

#![cfg(all(unix, target_arch = "x86_64"))]
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::PathBuf;

use driver_harness::image::Image;
use driver_harness::{Driver, Lengths};

const DEFAULT: u32 = 0xc000_0010;
const BUILDS: [&str; 4] = ["x64-gcc-o0", "x64-gcc-o2", "x64-gcc-os", "x64-clang"];

fn bytes(build: &str, name: &str) -> Vec<u8> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/drivers/bin");
    std::fs::read(folder.join(build).join(name).with_extension("sys")).unwrap()
}

fn loaded(build: &str, name: &str) -> Driver {
    // SAFETY: a driver of this repository.
    unsafe { Driver::load(&bytes(build, name)).unwrap() }
}

fn accepted(driver: &mut Driver, device_type: u32) -> Vec<u32> {
    let codes = device_type << 16..=device_type << 16 | 0xffff;
    driver.sweep(codes, DEFAULT, 1 << 16).into_iter().map(|(code, _)| code).collect()
}

#[test]
fn every_compilers_build_accepts_the_same() {
    for build in BUILDS {
        let mut sparse = loaded(build, "d01");
        assert_eq!(sparse.default_status().unwrap(), DEFAULT);
        let found: Vec<u32> = [0x2d, 0x6d, 0x7, 0x22, 0x9c40]
            .into_iter()
            .flat_map(|kind| accepted(&mut sparse, kind))
            .collect();
        assert_eq!(found, [0x2d_1400, 0x6d_0008, 0x7_0000, 0x22_e004, 0x9c40_2580], "{build}");
        assert_eq!(accepted(&mut sparse, 0x8000), Vec::<u32>::new());
        let dense = accepted(&mut loaded(build, "d02"), 0x22);
        assert!(dense.len() == 10 && !dense.contains(&0x22_2013), "{build}: {dense:x?}");
        assert_eq!(accepted(&mut loaded(build, "d05"), 0x22).len(), 96, "{build}");
    }
}

#[test]
fn lengths_reach_the_driver() {
    let mut driver = loaded("x64-gcc-o2", "d07");
    let mut send = |code, input, output| {
        driver.set_lengths(Lengths { input, output }).unwrap();
        driver.send(code)
    };
    assert_eq!((send(0x22_2000, 32, 0), send(0x22_2000, 31, 0)), (0, 0xc000_000d));
    assert_eq!((send(0x22_2004, 0, 16), send(0x22_2004, 0, 15)), (0, 0xc000_0023));
    assert_eq!(send(0x22_2008, 32, 32), 0xc000_0022);
    assert!(driver.set_lengths(Lengths { input: u32::MAX, output: 0 }).is_err());
}

#[test]
fn an_image_is_read_or_refused() {
    let file = bytes("x64-gcc-o2", "d01");
    let image = Image::read(&file).unwrap();
    let names: Vec<&str> = image.imports.iter().map(|(_, name)| name.as_str()).collect();
    assert!(names.contains(&"IofCompleteRequest") && names.contains(&"IoCreateDevice"), "{names:?}");
    assert!(!image.pointers.is_empty());
    assert!(Image::read(&bytes("x86-gcc", "d01")).unwrap_err().to_string().contains("not an x64"));
    for cut in (0..file.len()).step_by(97) {
        // Cut anywhere: an error or an image, no panic.
        let _ = Image::read(&file[..cut]);
    }
}
