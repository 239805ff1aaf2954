//! What must not leave the process, kept out of every channel.
//!
//! Three nets, from the surest to the loosest:
//! * **by value**: every [`Secret`] this process was handed is masked wherever it occurs, for as
//!   long as the process lives ([`mask_secrets`]);
//! * **by pattern**: `key=` and `password=` and their JSON spellings ([`mask_pairs`]), and members
//!   of arguments that are secret by name ([`mask_arguments`]): for transcripts and logs;
//! * **by rule**: the `--redact` file's sets and patterns ([`Filter`]), for users of real dumps.
//!
//! [`Redactor`] is the one thing a channel asks: [`Redactor::text`] for text, [`Redactor::value`]
//! for a typed value, whose [`Shape`] says which leaves are vocabulary that is never touched.
//!
//! ```
//! use redaction::{Filter, Redactor};
//!
//! let filter = Filter::parse("builtin = [\"user_paths\"]").unwrap();
//! let redactor = Redactor::with(filter);
//! assert_eq!(redactor.text(r"C:\Users\jane\a.dmp"), r"C:\Users\<user_paths:1>\a.dmp");
//! ```

mod bytes;
mod counts;
mod filter;
mod hints;
mod pairs;
mod redactor;
mod rules;
mod secret;
mod sets;
mod shape;
mod value;

pub use counts::Counts;
pub use filter::Filter;
pub use pairs::{is_secret_member, mask_arguments, mask_pairs};
pub use redactor::Redactor;
pub use rules::BadRules;
pub use secret::{MASK, Secret, learn_arguments, mask_secrets};
pub use shape::Shape;
