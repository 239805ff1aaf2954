//! What analyses keep between the calls of one session.

/// Results that cost much and hold for as long as the target is the same. Each part checks that itself.
#[derive(Default)]
pub struct Kept {
    /// References and starts of functions, by image.
    pub indexes: code_flow::IndexCache,
}
