//! Configuration: flat dotted keys, four layers (flag > environment > file > default), every value with its source.
//!
//! A config struct is written with [`config!`](crate::config!): each field has a key, a default and a doc
//! comment; from the same text come the loader, `--print-config` and the annotated files in `conf/`. A TOML file
//! may use tables, dotted keys or quoted dotted keys: they are flattened before anything looks at them.

mod error;
mod load;
mod render;
mod value;

pub use error::ConfigError;
pub use load::{Loaded, Note, Shown, Source, Sources, Values, load};
pub use render::{ConfFile, render};
pub use value::{ByteSize, ConfigValue};

/// One key: what it is called, what it is when nobody says anything, what it does.
#[derive(Debug, Clone)]
pub struct Row {
    /// The dotted key.
    pub key: &'static str,
    /// The default as TOML; empty if the key has none.
    pub default: String,
    /// What it does, line by line.
    pub text: Vec<&'static str>,
    /// The value that some layer says, as TOML.
    pub said: fn(&Values) -> Option<String>,
}

/// A struct that is filled from config keys. Implemented by [`config!`](crate::config!).
pub trait Config: Sized {
    /// Every key, in the order of the struct.
    fn rows() -> Vec<Row>;
    /// Fills the struct.
    fn read(values: &Values) -> Result<Self, ConfigError>;
    /// Every key with the value that this one has, as plain text.
    fn settings(&self) -> Vec<(&'static str, String)>;
}

/// Every key once: two sections of a role may share a key, which then means the same to both.
pub fn rows_of<C: Config>() -> Vec<Row> {
    let mut rows = C::rows();
    let mut seen = std::collections::BTreeSet::new();
    rows.retain(|row| seen.insert(row.key));
    rows
}

/// Defines a config struct, its defaults and its [`Config`].
///
/// ```
/// process_kit::config! {
///     /// Where a thing lives.
///     pub struct ThingConfig {
///         include { log: process_kit::telemetry::LogConfig }
///         /// Directory of the thing.
///         "thing.dir" => dir: std::path::PathBuf = "thing".into(),
///     }
/// }
/// let config = ThingConfig::default();
/// assert_eq!(config.dir.to_str(), Some("thing"));
/// assert_eq!(config.log.level, "info,openraft=warn");
/// let settings = process_kit::config::Config::settings(&config);
/// assert!(settings.contains(&("thing.dir", "thing".to_owned())));
/// ```
#[macro_export]
macro_rules! config {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident {
            $(include { $($section:ident : $section_type:ty),* $(,)? })?
            $($(#[doc = $doc:literal])+ $key:literal => $field:ident : $type:ty = $default:expr),* $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone)]
        $vis struct $name {
            $($(
                #[doc = concat!("Keys of [`", stringify!($section_type), "`].")]
                pub $section: $section_type,
            )*)?
            $($(#[doc = $doc])+ pub $field: $type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self {
                    $($($section: Default::default(),)*)?
                    $($field: $default,)*
                }
            }
        }

        impl $crate::config::Config for $name {
            fn rows() -> Vec<$crate::config::Row> {
                #[allow(unused_mut)]
                let mut rows = Vec::new();
                $($(rows.extend(<$section_type as $crate::config::Config>::rows());)*)?
                $({
                    let default: $type = $default;
                    rows.push($crate::config::Row {
                        key: $key,
                        default: $crate::config::ConfigValue::show(&default),
                        text: vec![$($doc.trim()),+],
                        said: |values| {
                            let said = values.get::<$type>($key).ok().flatten()?;
                            Some($crate::config::ConfigValue::show(&said))
                        },
                    });
                })*
                rows
            }

            fn read(
                values: &$crate::config::Values,
            ) -> Result<Self, $crate::config::ConfigError> {
                Ok(Self {
                    $($($section: $crate::config::Config::read(values)?,)*)?
                    $($field: values.get::<$type>($key)?.unwrap_or_else(|| $default),)*
                })
            }

            fn settings(&self) -> Vec<(&'static str, String)> {
                #[allow(unused_mut)]
                let mut settings = vec![$(($key, $crate::config::ConfigValue::plain(&self.$field))),*];
                $($(settings.extend($crate::config::Config::settings(&self.$section));)*)?
                settings
            }
        }

        $($(
            impl AsRef<$section_type> for $name {
                fn as_ref(&self) -> &$section_type {
                    &self.$section
                }
            }
        )*)?
    };
}
