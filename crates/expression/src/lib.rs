//! The MASM expression subset and the operand guard.
