//! Flink's REST shapes: requests, answers, errors, multipart; a JAR's entry classes.
