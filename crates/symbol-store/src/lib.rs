//! Symbol paths, symbol stores and symbol servers: finds the file, checks nothing inside it.
