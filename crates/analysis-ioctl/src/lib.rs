//! Control codes a dispatch routine accepts, by data flow over recovered control flow.
