//! Reads PE images from a file or from target memory, holes and lies included.
