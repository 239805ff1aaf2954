//! What a typed value's leaves are, from the schema of its type.
//!
//! A string leaf is never touched when its type says that it is vocabulary or a value:
//! * its schema has a `pattern` of a value form (`target::value`: address, RVA, code, GUID), an
//!   `enum` or a `const`;
//! * its schema says `"x-verbatim": true` (`target::Verbatim`, or
//!   `#[schemars(extend("x-verbatim" = true))]` on a field);
//! * its field has one of the names that mean one thing in every result (spec 20 section 1.5:
//!   `module`, `symbol`, `session_id`, ...), [`NAMES`].
//!
//! Bytes are the leaves with the pattern of `target::HexBytes`. Everything else is text.

use std::collections::HashMap;

use serde_json::Value;

/// Fields that mean one thing wherever they stand. No path is among them.
const NAMES: [&str; 66] = [
    "ace_type",
    "address_symbol",
    "arch",
    "bug_check_name",
    "build",
    "category",
    "characteristic_names",
    "control_names",
    "ctl_code",
    "device_type",
    "device_type_name",
    "driver",
    "driver_name",
    "ending",
    "engine",
    "execution",
    "facility_name",
    "failure_bucket_id",
    "failure_id_hash",
    "failure_name",
    "file_version",
    "flag_names",
    "function",
    "guid",
    "hresult",
    "irql",
    "kind",
    "level",
    "machine",
    "major_name",
    "majors",
    "mangled_name",
    "minor_name",
    "mnemonic",
    "module",
    "module_name",
    "names",
    "next",
    "ntstatus",
    "pdb_guid",
    "policy",
    "problem_class",
    "product_version",
    "reason",
    "register",
    "registers",
    "rights",
    "run",
    "runtime_module",
    "section",
    "session",
    "session_id",
    "state",
    "status",
    "status_name",
    "subcode_name",
    "subregister",
    "symbol",
    "symbol_name",
    "symbolic",
    "symbols",
    "tool",
    "type_name",
    "unloaded_module",
    "version",
    "win32",
];

/// The keyword by which a type says that its strings are vocabulary.
pub(crate) const VERBATIM: &str = "x-verbatim";
const BYTES: &str = "^([0-9a-f]{2})*$";

/// What a string at a place is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaf {
    Verbatim,
    Text,
    Bytes,
}

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) leaf: Leaf,
    /// Its type has strings at all.
    strings: bool,
    /// In the order they are written in, nearly always.
    fields: Vec<(String, usize)>,
    /// Members no property names.
    other: usize,
    items: usize,
}

impl Node {
    fn unknown() -> Self {
        Self { leaf: Leaf::Text, strings: true, fields: Vec::new(), other: UNTYPED, items: UNTYPED }
    }
}

/// The leaves of a type. Cheap to ask, made once from a schema.
#[derive(Debug)]
pub struct Shape {
    nodes: Vec<Node>,
    /// Whether an untyped field is known by its name.
    names: bool,
}

/// Text whose type says nothing.
pub(crate) const UNTYPED: usize = 0;
/// The root of a typed value.
pub(crate) const ROOT: usize = 1;

fn by_name(name: &str) -> bool {
    NAMES.binary_search(&name).is_ok()
}

impl Shape {
    /// A value without a type: fields are known by their names alone.
    #[must_use]
    pub fn untyped() -> Self {
        Self::of(&Value::Bool(true))
    }

    /// A caller's own words, arguments above all: a field's name promises nothing of what stands in it.
    #[must_use]
    pub fn callers() -> Self {
        Self { names: false, ..Self::untyped() }
    }

    /// The shape of `schema`'s values; `$ref`s into its `$defs` are followed.
    #[must_use]
    pub fn of(schema: &Value) -> Self {
        let untyped = Node::unknown();
        let mut building = Building { root: schema, nodes: vec![untyped], known: HashMap::new() };
        // So that the root is where it is looked for, also when it says nothing.
        let node = Node::unknown();
        building.nodes.push(node);
        let mut branches = Vec::new();
        building.expand(schema, &mut branches, 0);
        building.fill(ROOT, "", &branches, 0);
        Self { nodes: building.nodes, names: true }
    }

    /// The node of a member. `from` is where to look first: behind the member before it.
    pub(crate) fn field(&self, at: usize, name: &str, from: &mut usize) -> usize {
        let node = &self.nodes[at];
        let (before, behind) = node.fields.split_at((*from).min(node.fields.len()));
        let place = behind.iter().position(|(known, _)| known == name).map(|place| place + before.len());
        let Some(place) = place.or_else(|| before.iter().position(|(known, _)| known == name)) else {
            return node.other;
        };
        *from = place + 1;
        node.fields[place].1
    }

    pub(crate) fn items(&self, at: usize) -> usize {
        self.nodes[at].items
    }

    /// What a string is at `at`, in the field `name`.
    pub(crate) fn leaf(&self, at: usize, name: &str) -> Leaf {
        match self.nodes[at].leaf {
            // Typed fields know it already.
            Leaf::Text if self.names && at == UNTYPED && by_name(name) => Leaf::Verbatim,
            leaf => leaf,
        }
    }

    /// Every string leaf of the type with what it is, for tests: `modules[].name`.
    #[doc(hidden)]
    #[must_use]
    pub fn leaves(&self) -> Vec<(String, &'static str)> {
        let mut out = Vec::new();
        let mut path = vec![ROOT];
        self.walk(ROOT, "", "", &mut path, &mut out);
        out.sort();
        out.dedup();
        out
    }

    fn walk(
        &self,
        at: usize,
        name: &str,
        text: &str,
        path: &mut Vec<usize>,
        out: &mut Vec<(String, &'static str)>,
    ) {
        let node = &self.nodes[at];
        let deeper = !node.fields.is_empty() || node.items != UNTYPED || node.other != UNTYPED;
        if !deeper && node.strings {
            let word = match self.leaf(at, name) {
                Leaf::Verbatim => "verbatim",
                Leaf::Text => "text",
                Leaf::Bytes => "bytes",
            };
            out.push((text.to_owned(), word));
        }
        let fields = node.fields.iter().map(|(name, at)| (name.as_str(), *at, format!("{text}.{name}")));
        let items = [(name, node.items, format!("{text}[]")), (name, node.other, format!("{text}{{}}"))];
        for (name, inner, text) in fields.chain(items) {
            if inner != UNTYPED && !path.contains(&inner) {
                path.push(inner);
                self.walk(inner, name, text.trim_start_matches('.'), path, out);
                path.pop();
            }
        }
    }
}

struct Building<'a> {
    root: &'a Value,
    nodes: Vec<Node>,
    /// Nodes by field name and the schemas they are made of: recursive types end here.
    known: HashMap<(String, Vec<*const Value>), usize>,
}

/// Schemas inside schemas inside schemas: more is no type of ours.
const DEEPEST: usize = 64;

impl<'a> Building<'a> {
    /// The plain schemas `schema` stands for: references followed, alternatives side by side.
    fn expand(&self, schema: &'a Value, out: &mut Vec<&'a Value>, depth: usize) {
        if depth > DEEPEST {
            return;
        }
        out.push(schema);
        if let Some(name) =
            schema.get("$ref").and_then(Value::as_str).and_then(|r| r.strip_prefix("#/$defs/"))
            && let Some(target) = self.root.get("$defs").and_then(|defs| defs.get(name))
        {
            self.expand(target, out, depth + 1);
        }
        for key in ["oneOf", "anyOf", "allOf"] {
            for branch in schema.get(key).and_then(Value::as_array).into_iter().flatten() {
                self.expand(branch, out, depth + 1);
            }
        }
    }

    fn node(&mut self, name: &str, schemas: &[&'a Value], depth: usize) -> usize {
        if depth > DEEPEST || schemas.is_empty() {
            return UNTYPED;
        }
        let mut branches = Vec::new();
        for schema in schemas {
            self.expand(schema, &mut branches, depth);
        }
        let key = (name.to_owned(), branches.iter().map(|schema| std::ptr::from_ref(*schema)).collect());
        if let Some(at) = self.known.get(&key) {
            return *at;
        }
        let at = self.nodes.len();
        self.nodes.push(Node::unknown());
        self.known.insert(key, at);
        self.fill(at, name, &branches, depth);
        at
    }

    fn fill(&mut self, at: usize, name: &str, branches: &[&'a Value], depth: usize) {
        let mut named: Vec<(&'a String, Vec<&'a Value>)> = Vec::new();
        let mut items = Vec::new();
        let mut other = Vec::new();
        for branch in branches {
            for (name, schema) in branch.get("properties").and_then(Value::as_object).into_iter().flatten() {
                match named.iter_mut().find(|(known, _)| *known == name) {
                    Some((_, schemas)) => schemas.push(schema),
                    None => named.push((name, vec![schema])),
                }
            }
            items.extend(branch.get("items").filter(|schema| schema.is_object()));
            items.extend(branch.get("prefixItems").and_then(Value::as_array).into_iter().flatten());
            other.extend(branch.get("additionalProperties").filter(|schema| schema.is_object()));
        }
        let kind = leaf(branches);
        self.nodes[at].leaf = match kind {
            None | Some(Leaf::Text) if by_name(name) => Leaf::Verbatim,
            kind => kind.unwrap_or(Leaf::Text),
        };
        self.nodes[at].strings = kind.is_some();
        for (name, schemas) in named {
            let inner = self.node(name, &schemas, depth + 1);
            self.nodes[at].fields.push((name.clone(), inner));
        }
        // Items and members of a map have the meaning of the field that holds them.
        self.nodes[at].items = self.node(name, &items, depth + 1);
        self.nodes[at].other = self.node(name, &other, depth + 1);
    }
}

/// What strings of these alternatives are, text when one of them can be text; `None` when none has
/// strings.
fn leaf(branches: &[&Value]) -> Option<Leaf> {
    let mut kinds = branches.iter().filter_map(|branch| {
        let says = |key: &str| branch.get(key).is_some();
        let is_string = match branch.get("type") {
            Some(Value::String(kind)) => kind == "string",
            Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "string"),
            _ => says("enum") || says("const"),
        };
        if branch.get(VERBATIM) == Some(&Value::Bool(true)) {
            return Some(Leaf::Verbatim);
        }
        if !is_string {
            return None;
        }
        Some(match branch.get("pattern").and_then(Value::as_str) {
            Some(BYTES) => Leaf::Bytes,
            Some(_) => Leaf::Verbatim,
            None if says("enum") || says("const") => Leaf::Verbatim,
            None => Leaf::Text,
        })
    });
    let first = kinds.next()?;
    Some(if kinds.all(|kind| kind == first) { first } else { Leaf::Text })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_are_sorted() {
        assert!(NAMES.is_sorted());
    }

    #[test]
    fn leaves_by_schema_and_by_name() {
        let schema = json!({
            "type": "object",
            "properties": {
                "address": { "type": "string", "pattern": "^0x[0-9a-f]{16}$" },
                "data": { "type": "string", "pattern": "^([0-9a-f]{2})*$" },
                "path": { "type": ["string", "null"] },
                "word": { "type": "string", "enum": ["a"] },
                "name": { "type": "string", "x-verbatim": true },
                "module": { "type": "string" },
                "mixed": { "anyOf": [{ "type": "string", "const": "x" }, { "type": "string" }] },
                "maybe": { "anyOf": [{ "$ref": "#/$defs/Code" }, { "type": "null" }] },
                "rows": { "type": "array", "items": { "$ref": "#/$defs/Row" } },
                "env": { "type": "object", "additionalProperties": { "type": "string" } },
                "symbols": { "type": "array", "items": { "type": "string" } }
            },
            "$defs": {
                "Code": { "type": "string", "pattern": "^0x[0-9a-f]{8}$" },
                "Row": { "type": "object", "properties": {
                    "text": { "type": "string" }, "children": { "type": "array", "items": { "$ref": "#/$defs/Row" } }
                } }
            }
        });
        let leaves = Shape::of(&schema).leaves();
        let row = |path: &str| leaves.iter().find(|(known, _)| known == path).map(|(_, word)| *word);
        for (path, word) in [
            ("address", "verbatim"),
            ("data", "bytes"),
            ("path", "text"),
            ("word", "verbatim"),
            ("name", "verbatim"),
            ("module", "verbatim"),
            ("mixed", "text"),
            ("maybe", "verbatim"),
            ("rows[].text", "text"),
            ("env{}", "text"),
            ("symbols[]", "verbatim"),
        ] {
            assert_eq!(row(path), Some(word), "{path} in {leaves:?}");
        }
    }
}
