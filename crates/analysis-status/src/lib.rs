//! Status codes, bug checks and fast-fail codes: names, meanings and their many readings.
