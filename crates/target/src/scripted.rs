//! A scripted target.
