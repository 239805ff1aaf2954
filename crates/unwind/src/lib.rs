//! Stack frames from unwind data, FPO programs, frame pointers and scans; each frame says how it was found.
