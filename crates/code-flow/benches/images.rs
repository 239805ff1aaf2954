//! An index of a whole image, cold: the generated image of ten megabytes (`cargo xtask drivers
//! speed`) and a driver of a megabyte; an answer from it; a listing.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, unreachable_pub)]

#[path = "../tests/driver_image/mod.rs"]
mod driver_image;

use std::path::PathBuf;

use code_flow::{ImageIndex, Structural, listing};
use criterion::{Criterion, criterion_group, criterion_main};
use target::Halt;

fn generated(name: &str) -> Option<PathBuf> {
    let path = test_data::fixture("").join("../target/drivers/speed").join(name);
    if path.is_file() {
        return Some(path);
    }
    test_data::not_run(&format!("{name}: cargo xtask drivers speed makes it"));
    None
}

fn images(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("index");
    group.sample_size(10);
    for name in ["references.dll", "large.sys"] {
        let Some(path) = generated(name) else { continue };
        let bytes = std::fs::read(&path).unwrap();
        group.bench_function(name, |b| {
            b.iter(|| {
                let image = driver_image::open_bytes("image", bytes.clone()).unwrap();
                let index = ImageIndex::build(&image, &Halt::unbounded());
                assert!(index.coverage.is_complete());
                index.references().count()
            });
        });
    }
    let Some(path) = generated("large.sys") else { return };
    let image = driver_image::open(&path);
    let index = ImageIndex::build(&image, &Halt::unbounded());
    let middle = index.references().count() / 2;
    let target = index.references().nth(middle).unwrap().target;
    group.bench_function("references of one address", |b| b.iter(|| index.to(target).count()));
    let entry = image.base + u64::from(image.pe.entry_point);
    group.bench_function("listing of DriverEntry", |b| {
        b.iter(|| listing(&image, entry, &Structural, &Halt::unbounded()).instructions.len());
    });
}

criterion_group!(benches, images);
criterion_main!(benches);
