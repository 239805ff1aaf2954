//! The command line for people: triage, call, tools, doctor.
