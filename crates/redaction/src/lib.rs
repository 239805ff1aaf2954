//! Secrets as a type, and the filter that keeps them and personal data out of every channel.
