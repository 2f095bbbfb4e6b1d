//! Values of a job's configuration that are nobody else's business: answers show stars, as Flink's do.

/// Parts of a key that make its value a secret, in Flink's list.
const SENSITIVE: [&str; 11] = [
    "password",
    "secret",
    "fs.azure.account.key",
    "apikey",
    "api-key",
    "auth-params",
    "service-key",
    "token",
    "basic-auth",
    "jaas.config",
    "http-headers",
];

/// What stands for a secret.
const HIDDEN: &str = "******";

/// The value of a key as it may be shown.
pub fn shown<'a>(key: &str, value: &'a str) -> &'a str {
    let key = key.to_ascii_lowercase();
    if SENSITIVE.iter().any(|part| key.contains(part)) { HIDDEN } else { value }
}

#[cfg(test)]
mod tests {
    use super::shown;

    #[test]
    fn secrets_are_hidden_whatever_the_case_of_their_key() {
        for key in ["s3.secret-key", "db.Password", "my.API-KEY", "security.kerberos.jaas.config"] {
            assert_eq!(shown(key, "x"), "******", "{key}");
        }
        for key in ["parallelism.default", "restart-strategy.type", "pass.word"] {
            assert_eq!(shown(key, "x"), "x", "{key}");
        }
    }
}
