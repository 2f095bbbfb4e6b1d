//! Forms (multipart/form-data) from strangers. What a parser must hold in memory at once is bounded, a body that comes
//! too slowly is given up, and a file name that cannot be read is refused: a part without one would be passed over.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, BodyDataStream, Bytes};
use axum::extract::multipart::{Field, Multipart, MultipartError};
use axum::extract::{FromRequest, Request};
use futures_util::stream::poll_fn;
use futures_util::{Stream, StreamExt};
use http::header::CONTENT_DISPOSITION;
use parking_lot::Mutex;
use thiserror::Error;
use tokio::time::{Instant, Sleep, sleep_until};

/// Bytes around the content of a part: what stands before the first part, a boundary and a part's own head, and what
/// stands behind the last one.
pub const MAX_HEAD_BYTES: usize = 64 * 1024;
/// So long a body may be silent.
pub const IDLE: Duration = Duration::from_secs(60);
/// Beyond [`IDLE`], a body may take a second for each so many bytes.
pub const MIN_BYTES_PER_SECOND: u64 = 1024;

/// Why a body is no whole form.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FormError {
    /// It does not say that it is one, or names no boundary.
    #[error("the body is no form: {0}")]
    NoForm(String),
    /// It broke off, or is not as a form is written.
    #[error("the multipart body is broken: {0}")]
    Broken(String),
    /// More than is held in memory.
    #[error(
        "the multipart body is broken: more than {MAX_HEAD_BYTES} bytes stand around the content of a part"
    )]
    Head,
    /// A part that is a file whose name is not known.
    #[error("a part's file name cannot be read: wanted is filename=\"...\" in UTF-8, and no filename*")]
    FileName,
    /// Its sender is too slow.
    #[error(
        "the upload stopped midway: nothing for {IDLE:?}, or less than {MIN_BYTES_PER_SECOND} bytes a second; send \
         it again"
    )]
    TooSlow,
}

/// A form that is being read.
#[derive(Debug)]
pub struct Form {
    parts: Multipart,
    intake: Arc<Mutex<Intake>>,
}

/// One part of a form. It must be read or skipped to its end before the next one is asked for.
#[derive(Debug)]
pub struct Part<'a> {
    field: Field<'a>,
    intake: &'a Mutex<Intake>,
}

impl Form {
    /// Of a request's body; bounded in total only by a body limit that the request has.
    pub async fn of(request: Request) -> Result<Self, FormError> {
        let (parts, body) = request.into_parts();
        let intake = Arc::new(Mutex::new(Intake::new(body.into_data_stream())));
        let body = Body::from_stream(chunks(intake.clone()));
        let parts = Multipart::from_request(Request::from_parts(parts, body), &()).await;
        Ok(Self { parts: parts.map_err(|error| FormError::NoForm(error.body_text()))?, intake })
    }

    /// The next part; `None` at the end of a whole form.
    pub async fn next_part(&mut self) -> Result<Option<Part<'_>>, FormError> {
        self.intake.lock().head = Some(0);
        let next = self.parts.next_field().await;
        match next {
            Ok(Some(field)) if field.file_name().is_none() && says_file_name(&field) => {
                Err(FormError::FileName)
            }
            Ok(Some(field)) => {
                self.intake.lock().head = None;
                Ok(Some(Part { field, intake: &self.intake }))
            }
            Ok(None) => finish(&self.intake).await,
            Err(error) => Err(why(&self.intake, &error)),
        }
    }
}

/// The parser stops at the last boundary. Whatever comes behind it has no meaning, but it must come: a body that breaks
/// off there is not what its sender meant to send.
async fn finish<T>(intake: &Arc<Mutex<Intake>>) -> Result<Option<T>, FormError> {
    let mut rest = Box::pin(chunks(intake.clone()));
    while let Some(chunk) = rest.next().await {
        if let Err(error) = chunk {
            let given_up = intake.lock().given_up.clone();
            return Err(given_up.unwrap_or_else(|| FormError::Broken(error.to_string())));
        }
    }
    Ok(None)
}

fn chunks(intake: Arc<Mutex<Intake>>) -> impl Stream<Item = io::Result<Bytes>> + Send {
    poll_fn(move |cx| intake.lock().poll_chunk(cx))
}

impl Part<'_> {
    /// Its name in the form.
    pub fn name(&self) -> Option<&str> {
        self.field.name()
    }

    /// The file's name, if it is a file.
    pub fn file_name(&self) -> Option<&str> {
        self.field.file_name()
    }

    /// More of its content.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, FormError> {
        self.field.chunk().await.map_err(|error| why(self.intake, &error))
    }

    /// Reads over what is left of it.
    pub async fn skip(mut self) -> Result<(), FormError> {
        while self.chunk().await?.is_some() {}
        Ok(())
    }
}

/// The parser reads one spelling of the parameter only.
fn says_file_name(field: &Field<'_>) -> bool {
    let head = field.headers().get(CONTENT_DISPOSITION).map(|value| value.as_bytes().to_ascii_lowercase());
    head.is_some_and(|head| head.windows(8).any(|window| window == b"filename"))
}

fn why(intake: &Mutex<Intake>, error: &MultipartError) -> FormError {
    let given_up = intake.lock().given_up.clone();
    given_up.unwrap_or_else(|| FormError::Broken(error.body_text()))
}

/// The body on its way to the parser.
#[derive(Debug)]
struct Intake {
    body: BodyDataStream,
    begun: Instant,
    bytes: u64,
    deadline: Pin<Box<Sleep>>,
    /// Bytes that came since the content of the next part was asked for.
    head: Option<usize>,
    /// The parser looks at what it has before it gets more.
    paused: bool,
    ended: bool,
    /// Why the body was given up.
    given_up: Option<FormError>,
}

impl Intake {
    fn new(body: BodyDataStream) -> Self {
        let begun = Instant::now();
        Self {
            body,
            begun,
            bytes: 0,
            deadline: Box::pin(sleep_until(begun + IDLE)),
            head: None,
            paused: false,
            ended: false,
            given_up: None,
        }
    }

    fn give_up(&mut self, why: FormError) -> Poll<Option<io::Result<Bytes>>> {
        self.given_up = Some(why.clone());
        Poll::Ready(Some(Err(io::Error::other(why))))
    }

    fn take(&mut self, chunk: &Bytes) {
        self.bytes += chunk.len() as u64;
        let paced = self.begun + IDLE + Duration::from_secs(self.bytes / MIN_BYTES_PER_SECOND);
        self.deadline.as_mut().reset(paced.min(Instant::now() + IDLE));
        if let Some(head) = &mut self.head {
            *head += chunk.len();
        }
        // It would buffer all that is there otherwise.
        self.paused = true;
    }

    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        if std::mem::take(&mut self.paused) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if self.ended {
            return Poll::Ready(None);
        }
        if self.head.is_some_and(|bytes| bytes > MAX_HEAD_BYTES) {
            return self.give_up(FormError::Head);
        }
        match self.body.poll_next_unpin(cx) {
            Poll::Ready(Some(Ok(chunk))) => {
                self.take(&chunk);
                Poll::Ready(Some(Ok(chunk)))
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(io::Error::other(error)))),
            Poll::Ready(None) => {
                self.ended = true;
                Poll::Ready(None)
            }
            Poll::Pending => match self.deadline.as_mut().poll(cx) {
                Poll::Ready(()) => self.give_up(FormError::TooSlow),
                Poll::Pending => Poll::Pending,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;

    use super::*;

    async fn form(body: Body) -> Form {
        let request = Request::builder().header("content-type", "multipart/form-data; boundary=B").body(body);
        Form::of(request.unwrap()).await.unwrap()
    }

    /// What comes of a body: each part's file name and size.
    async fn read(body: Body) -> Result<Vec<(Option<String>, usize)>, FormError> {
        let mut form = form(body).await;
        let mut read = Vec::new();
        while let Some(mut part) = form.next_part().await? {
            let (name, mut size) = (part.file_name().map(str::to_owned), 0);
            while let Some(chunk) = part.chunk().await? {
                size += chunk.len();
            }
            read.push((name, size));
        }
        Ok(read)
    }

    fn slow(every: Duration, chunks: impl Iterator<Item = Bytes> + Send + 'static) -> Body {
        Body::from_stream(stream::iter(chunks).then(move |chunk| async move {
            tokio::time::sleep(every).await;
            io::Result::Ok(chunk)
        }))
    }

    fn one_file(head: &str, size: usize) -> Vec<u8> {
        let mut body = format!("--B\r\ncontent-disposition: {head}\r\n\r\n").into_bytes();
        body.resize(body.len() + size, b'x');
        body.extend_from_slice(b"\r\n--B--\r\n");
        body
    }

    #[tokio::test]
    async fn files_of_any_size_are_read() {
        for size in [0, 1, MAX_HEAD_BYTES * 3] {
            let body = one_file("form-data; name=\"f\"; filename=\"a.jar\"", size);
            let read = read(Body::from(body)).await;
            assert_eq!(read.unwrap(), [(Some("a.jar".to_owned()), size)]);
        }
    }

    #[tokio::test]
    async fn a_file_name_that_cannot_be_read_is_not_passed_over() {
        for head in ["filename*=UTF-8''a.jar", "FILENAME=\"a.jar\"", "filename=\"a.jar"] {
            let body = one_file(&format!("form-data; name=\"f\"; {head}"), 3);
            assert_eq!(read(Body::from(body)).await, Err(FormError::FileName), "{head}");
        }
        let mut body = one_file("form-data; name=\"f\"; filename=\"aX.jar\"", 3);
        let at = body.iter().position(|byte| *byte == b'X').unwrap();
        body[at] = 0xff;
        assert_eq!(read(Body::from(body)).await, Err(FormError::FileName), "not UTF-8");
        let text = read(Body::from(one_file("form-data; name=\"note\"", 3))).await;
        assert_eq!(text.unwrap(), [(None, 3)]);
    }

    #[tokio::test]
    async fn what_stands_before_a_part_is_bounded() {
        let piece = Bytes::from(vec![b'h'; 4096]);
        let starts = [&b""[..], b"--B\r\n", b"--B\r\ncontent-disposition: form-data; filename=\"a\"; x="];
        for start in starts {
            let taken = Arc::new(Mutex::new(0));
            let (counted, endless) = (taken.clone(), piece.clone());
            let body = stream::once(async move { io::Result::Ok(Bytes::from_static(start)) })
                .chain(stream::repeat_with(move || Ok(endless.clone())))
                .inspect(move |_| *counted.lock() += 4096);
            assert_eq!(read(Body::from_stream(body)).await, Err(FormError::Head));
            let taken = *taken.lock();
            assert!(taken <= MAX_HEAD_BYTES + 4 * 4096, "{taken} bytes were held");
        }
    }

    #[tokio::test]
    async fn a_body_that_breaks_off_behind_its_form_is_broken() {
        let whole = Bytes::from(one_file("form-data; filename=\"a\"", 3));
        let with = |then: io::Result<Bytes>| Body::from_stream(stream::iter([Ok(whole.clone()), then]));
        assert_eq!(read(with(Ok(Bytes::from_static(b"epilogue")))).await.unwrap().len(), 1);
        let broken = read(with(Err(io::Error::other("reset")))).await.unwrap_err();
        assert!(matches!(broken, FormError::Broken(_)), "{broken}");
        let endless = stream::repeat_with(|| Ok(Bytes::from(vec![b'x'; 4096])));
        let endless = stream::iter([io::Result::Ok(whole.clone())]).chain(endless);
        assert_eq!(read(Body::from_stream(endless)).await, Err(FormError::Head));
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_body_is_given_up_and_a_steady_one_is_not() {
        let second = Duration::from_secs(1);
        let start = || std::iter::once(Bytes::from(one_file("form-data; filename=\"a\"", 0)[..50].to_vec()));
        let begun = Instant::now();
        let one_byte = start().chain(std::iter::repeat(Bytes::from_static(b"x")));
        assert_eq!(read(slow(second, one_byte)).await, Err(FormError::TooSlow));
        assert_eq!(begun.elapsed().as_secs(), IDLE.as_secs());
        let silent = slow(second, start()).into_data_stream().chain(stream::pending());
        assert_eq!(read(Body::from_stream(silent)).await, Err(FormError::TooSlow));

        // Two kilobytes a second, for ten minutes.
        let pieces = vec![Bytes::from(vec![b'x'; 2048]); 600];
        let whole = one_file("form-data; filename=\"a\"", 2048 * 600);
        let head = whole.len() - 2048 * 600 - b"\r\n--B--\r\n".len();
        let first = std::iter::once(Bytes::from(whole[..head].to_vec()));
        let last = std::iter::once(Bytes::from_static(b"\r\n--B--\r\n"));
        let steady = slow(second, first.chain(pieces).chain(last));
        assert_eq!(read(steady).await.unwrap(), [(Some("a".to_owned()), 2048 * 600)]);
    }
}
