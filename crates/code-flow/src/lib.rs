//! Functions, control flow, references: code recovered from bytes by recursive descent.
