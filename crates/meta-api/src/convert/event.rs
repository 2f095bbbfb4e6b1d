//! Watch events.

use meta_types::{Event, EventKind};

use super::BadAnswer;
use super::kv::{key_value_from_wire, key_value_to_wire};
use crate::pb::mvccpb;
use crate::pb::mvccpb::event::EventType;

/// An event, to the wire, with the version before it only where it was asked for.
pub fn event_to_wire(event: &Event, prev_kv: bool) -> mvccpb::Event {
    let kind = match event.kind {
        EventKind::Put => EventType::Put,
        EventKind::Delete => EventType::Delete,
    };
    mvccpb::Event {
        r#type: kind.into(),
        kv: Some(key_value_to_wire(&event.kv)),
        prev_kv: event.prev.as_deref().filter(|_| prev_kv).map(key_value_to_wire),
    }
}

/// An event, from the wire.
pub fn event_from_wire(event: mvccpb::Event) -> Result<Event, BadAnswer> {
    let kind = match EventType::try_from(event.r#type) {
        Ok(EventType::Put) => EventKind::Put,
        Ok(EventType::Delete) => EventKind::Delete,
        Err(_) => return Err(BadAnswer("a known event type")),
    };
    let kv = event.kv.ok_or(BadAnswer("the event's key"))?;
    Ok(Event { kind, kv: key_value_from_wire(kv), prev: event.prev_kv.map(key_value_from_wire) })
}
