//! Replays of the test drivers, and of WinDivert's where the lab has them.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, unreachable_pub)]

use std::path::PathBuf;
use std::rc::Rc;

use criterion::{Criterion, criterion_group, criterion_main};
use driver_replay::{PlacedImage, discover, replay};
use pe::FileImage;
use target::Halt;

fn replays(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("replay");
    group.sample_size(20);
    let fixtures = test_data::fixture("drivers/bin");
    let lab = fixtures.join("../../../.lab/pydivert");
    let paths = [
        fixtures.join("x64-gcc-o2/d01.sys"),
        fixtures.join("x64-gcc-o2/d28.sys"),
        fixtures.join("x86-gcc/d28.sys"),
        fixtures.join("arm64-clang/d28.sys"),
        lab.join("windivert-1.3-x86.sys"),
        lab.join("windivert-2.2-x64.sys"),
    ];
    for path in paths.iter().filter(|path: &&PathBuf| path.is_file()) {
        let file = Rc::new(FileImage::new(std::fs::read(path).unwrap()).unwrap());
        let name = format!(
            "{} {}",
            path.parent().unwrap().file_name().unwrap().display(),
            path.file_name().unwrap().display()
        );
        group.bench_function(name, |b| {
            b.iter(|| {
                let image = PlacedImage::of_file(Rc::clone(&file), None, "bench.sys").unwrap();
                let result = replay(&image, &Halt::unbounded());
                discover(&image, &result).entries.len()
            });
        });
    }
    group.finish();
}

criterion_group!(benches, replays);
criterion_main!(benches);
