//! Old bytes load for ever, and today's writer still writes them.
