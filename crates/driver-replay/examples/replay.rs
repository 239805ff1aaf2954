//! Prints the replay of each driver named: `cargo run -p driver-replay --example replay FILE...`
use std::rc::Rc;

fn main() {
    for path in std::env::args().skip(1) {
        let Ok(bytes) = std::fs::read(&path) else { continue };
        let Ok(file) = pe::FileImage::new(bytes) else { continue };
        let Some(image) = driver_replay::PlacedImage::of_file(Rc::new(file), None, &path) else { continue };
        let started = std::time::Instant::now();
        let replay = driver_replay::replay(&image, &target::Halt::unbounded());
        let elapsed = started.elapsed();
        let entries = driver_replay::discover(&image, &replay);
        println!("{path}: {elapsed:?}\n{}", serde_json::to_string_pretty(&replay).unwrap_or_default());
        println!("{}", serde_json::to_string(&entries).unwrap_or_default());
    }
}
