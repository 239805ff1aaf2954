//! The session transcript: records, rotation, and its rendering.
