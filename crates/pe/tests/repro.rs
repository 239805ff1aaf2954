//! Whether an image's time stamp is a time.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use pe::{FileImage, Pe};

#[test]
fn an_image_linked_reproducibly_says_so() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
    let bytes = std::fs::read(root.join("crash.exe")).unwrap();
    let image = FileImage::new(bytes).unwrap();
    assert_eq!(Pe::parse(&image).unwrap().is_reproducible(&image), Some(true));
}
