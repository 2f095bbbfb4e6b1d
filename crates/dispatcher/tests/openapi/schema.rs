//! JSON schemas, as far as the description uses them: whether one is sound, and whether a value is as it says.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

const TYPES: [&str; 7] = ["string", "integer", "number", "boolean", "object", "array", "null"];

/// What a reference leads to.
fn resolve<'a>(document: &'a Value, schema: &'a Value) -> &'a Value {
    let Some(reference) = schema["$ref"].as_str() else { return schema };
    let pointer = reference.strip_prefix('#').unwrap_or_else(|| panic!("{reference} leads elsewhere"));
    document.pointer(pointer).unwrap_or_else(|| panic!("{reference} leads nowhere"))
}

fn types(schema: &Value) -> Vec<&str> {
    match &schema["type"] {
        Value::String(one) => vec![one.as_str()],
        Value::Array(several) => several.iter().map(|one| one.as_str().unwrap()).collect(),
        Value::Null => vec![],
        other => panic!("type {other}"),
    }
}

/// The schemas that a value must be as: one of them, or all.
fn combined<'a>(schema: &'a Value, how: &str) -> Option<&'a Vec<Value>> {
    schema[how].as_array()
}

/// A schema has known types, references that lead somewhere, and demands only properties that it knows.
pub fn check(document: &Value, at: &str, schema: &Value) {
    if schema["$ref"].is_string() {
        // What it leads to is checked among the components.
        resolve(document, schema);
        return;
    }
    assert!(types(schema).iter().all(|one| TYPES.contains(one)), "{at}: {schema}");
    assert!(schema["nullable"].is_null(), "{at}: nullable is of OpenAPI 3.0");
    for how in ["oneOf", "anyOf", "allOf"] {
        combined(schema, how).into_iter().flatten().for_each(|part| check(document, at, part));
    }
    let properties = schema["properties"].as_object();
    properties.into_iter().flatten().for_each(|(name, of)| check(document, &format!("{at}.{name}"), of));
    for name in schema["required"].as_array().into_iter().flatten() {
        let known = properties.is_some_and(|properties| properties.contains_key(name.as_str().unwrap()));
        assert!(known, "{at}: {name} is required and not known");
    }
    if types(schema).contains(&"array") {
        check(document, &format!("{at}[]"), &schema["items"]);
    }
}

/// What an object may and must have, all parts taken together.
fn members<'a>(document: &'a Value, schema: &'a Value) -> (BTreeMap<&'a str, &'a Value>, BTreeSet<&'a str>) {
    let schema = resolve(document, schema);
    let (mut known, mut required) = (BTreeMap::new(), BTreeSet::new());
    for part in combined(schema, "allOf").into_iter().flatten() {
        let (more, demanded) = members(document, part);
        known.extend(more);
        required.extend(demanded);
    }
    known
        .extend(schema["properties"].as_object().into_iter().flatten().map(|(name, of)| (name.as_str(), of)));
    required.extend(schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str));
    (known, required)
}

fn has_type(value: &Value, of: &str) -> bool {
    match of {
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "object" => value.is_object(),
        "array" => value.is_array(),
        _ => value.is_null(),
    }
}

/// A value is as a schema says, and has nothing that the schema does not tell of.
pub fn conforms(document: &Value, schema: &Value, value: &Value) -> Result<(), String> {
    let schema = resolve(document, schema);
    for how in ["oneOf", "anyOf"] {
        if let Some(parts) = combined(schema, how) {
            let tried: Vec<_> = parts.iter().map(|part| conforms(document, part, value)).collect();
            return if tried.iter().any(Result::is_ok) { Ok(()) } else { Err(format!("none of {tried:?}")) };
        }
    }
    let types = types(schema);
    if !types.is_empty() && !types.iter().any(|of| has_type(value, of)) {
        return Err(format!("{value} is no {types:?}"));
    }
    if let Some(words) = schema["enum"].as_array()
        && !words.contains(value)
    {
        return Err(format!("{value} is none of {words:?}"));
    }
    if let Some(items) = value.as_array() {
        let each =
            |(at, item)| conforms(document, &schema["items"], item).map_err(|why| format!("[{at}] {why}"));
        items.iter().enumerate().try_for_each(each)?;
    }
    let (known, required) = members(document, schema);
    let (Some(object), false) = (value.as_object(), known.is_empty()) else { return Ok(()) };
    if let Some(name) = required.iter().find(|name| !object.contains_key(**name)) {
        return Err(format!("{name} is missing"));
    }
    object.iter().try_for_each(|(name, value)| {
        let of = known.get(name.as_str()).ok_or_else(|| format!("{name} is not described"))?;
        conforms(document, of, value).map_err(|why| format!(".{name} {why}"))
    })
}
