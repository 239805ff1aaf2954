//! The tools, one file each; admission; the trait Sessions.
