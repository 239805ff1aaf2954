//! Text to numbers: the MASM subset every engine evaluates alike (spec 20 section 2.11), the guard
//! operands pass before any engine sees them (spec 20 section 6.4), and numbers in address fields
//! (spec 00 decision 6).

mod address;
mod error;
mod evaluate;
mod guard;
mod imports;
mod scope;
mod token;

pub use address::{AddressError, parse_address};
pub use error::ExpressionError;
pub use evaluate::{evaluate, evaluate_prefix};
pub use guard::{GuardError, NOT_IN_AN_OPERAND, guard, guard_data_model, guard_path, guard_reload};
pub use imports::{import_address, imports, slot_name, why_unresolved};
pub use scope::{Scope, TargetScope};
