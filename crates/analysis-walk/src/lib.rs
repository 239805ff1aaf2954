//! Lists, arrays and chains of structures, node by node.
