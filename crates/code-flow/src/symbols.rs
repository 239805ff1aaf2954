//! Names, given by whoever has symbols. Everything works without.

/// What is known of an image's names. Unqualified (`KeBugCheckEx`, not `nt!KeBugCheckEx`).
pub trait Names {
    /// The symbol at or before `address`, and the distance.
    fn nearest(&self, address: u64) -> Option<(String, u64)>;
    /// Addresses of functions in `[start, end)`, in no order.
    fn functions(&self, start: u64, end: u64) -> Vec<u64>;

    /// The image and name of the routine at `address` of another image.
    fn bound(&self, _address: u64) -> Option<(String, String)> {
        None
    }

    /// The symbol exactly at `address`.
    fn at(&self, address: u64) -> Option<String> {
        self.nearest(address).filter(|(_, displacement)| *displacement == 0).map(|(name, _)| name)
    }
}

/// No names at all.
pub struct NoNames;

impl Names for NoNames {
    fn nearest(&self, _: u64) -> Option<(String, u64)> {
        None
    }
    fn functions(&self, _: u64, _: u64) -> Vec<u64> {
        Vec::new()
    }
}
