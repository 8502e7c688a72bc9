//! The writer's side of the lines, for commands and tests. Blocks.

use crate::PendingWriter;
use crate::line::{self, Malformed, Token, Whose};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use thiserror::Error;

/// Why something was not done, or why nobody knows whether it was.
#[derive(Debug, Error)]
pub enum ClientError {
    /// The tags cannot be sent so.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// Nobody answers, or no more. An update may be pending all the same, which is safe.
    #[error("the writers' socket: {0}")]
    Io(#[from] io::Error),
    /// It was refused.
    #[error("refused: {0}")]
    Refused(String),
    /// The other side speaks otherwise.
    #[error("an answer that does not fit: {0:?}")]
    WrongAnswer(String),
}

/// What came of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It is ended now.
    Now,
    /// Nothing of it was pending: it had been ended or settled, or its table is lost.
    Before,
}

/// A connection to a site's writers' socket.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<UnixStream>,
}

impl Client {
    /// Connects; each answer may take `timeout`.
    ///
    /// # Errors
    /// Nobody listens there.
    pub fn connect(path: &Path, timeout: Duration) -> Result<Self, ClientError> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(timeout))?;
        stream.set_write_timeout(Some(timeout))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Marks tags as pending. Commit only when this has succeeded.
    ///
    /// # Errors
    /// Nothing may be committed then.
    pub fn begin<T: AsRef<[u8]>>(&mut self, tags: &[T]) -> Result<Token, ClientError> {
        let answer = self.ask(&line::tag_line("begin", tags)?)?;
        Token::parse(answer.as_bytes()).ok_or(ClientError::WrongAnswer(answer))
    }

    /// After the commit.
    ///
    /// # Errors
    /// The tags stay pending, which is safe; try again with the same token.
    pub fn end(&mut self, token: Token) -> Result<Ended, ClientError> {
        self.close("end", token)
    }

    /// After the rollback.
    ///
    /// # Errors
    /// As for [`Client::end`].
    pub fn abort(&mut self, token: Token) -> Result<Ended, ClientError> {
        self.close("abort", token)
    }

    fn close(&mut self, word: &str, token: Token) -> Result<Ended, ClientError> {
        self.ended(format!("{word} {token}\n").as_bytes())
    }

    fn ended(&mut self, line: &[u8]) -> Result<Ended, ClientError> {
        match self.ask(line)?.as_str() {
            "" => Ok(Ended::Now),
            "gone" => Ok(Ended::Before),
            other => Err(ClientError::WrongAnswer(other.to_owned())),
        }
    }

    /// Voids what carries these tags, whose data changed before this call.
    ///
    /// # Errors
    /// It may not be done; try again.
    pub fn invalidate<T: AsRef<[u8]>>(&mut self, tags: &[T]) -> Result<(), ClientError> {
        let answer = self.ask(&line::tag_line("invalidate", tags)?)?;
        if answer.is_empty() { Ok(()) } else { Err(ClientError::WrongAnswer(answer)) }
    }

    /// Waits until nobody writes a document, and nobody who came before waits to; then it may be
    /// read, until [`Client::read_end`] or the end of the connection.
    ///
    /// # Errors
    /// It may not be read. After a time-out the connection is of no more use: drop it, which frees
    /// the place.
    pub fn read(&mut self, document: &str) -> Result<(), ClientError> {
        self.enter("read", document)
    }

    /// It has been read.
    ///
    /// # Errors
    /// Nobody answers: then the place is free too.
    pub fn read_end(&mut self, document: &str) -> Result<Ended, ClientError> {
        self.leave("read-end", document)
    }

    /// Waits until nobody reads or writes a document; then this one may, until
    /// [`Client::write_end`] or the end of the connection. Caches know nothing of it: begin an
    /// update too.
    ///
    /// # Errors
    /// As for [`Client::read`].
    pub fn write(&mut self, document: &str) -> Result<(), ClientError> {
        self.enter("write", document)
    }

    /// It has been written.
    ///
    /// # Errors
    /// As for [`Client::read_end`].
    pub fn write_end(&mut self, document: &str) -> Result<Ended, ClientError> {
        self.leave("write-end", document)
    }

    fn enter(&mut self, word: &str, document: &str) -> Result<(), ClientError> {
        let answer = self.ask(&line::tag_line(word, &[document])?)?;
        if answer.is_empty() { Ok(()) } else { Err(ClientError::WrongAnswer(answer)) }
    }

    fn leave(&mut self, word: &str, document: &str) -> Result<Ended, ClientError> {
        let line = line::tag_line(word, &[document])?;
        self.ended(&line)
    }

    /// What is pending, and whether the table serves hits.
    ///
    /// # Errors
    /// The socket's owner and root may ask.
    pub fn pending(&mut self) -> Result<(Vec<PendingWriter>, bool), ClientError> {
        let answer = self.ask(b"pending\n")?;
        let counted = answer.split_once(' ').and_then(|(n, open)| Some((n.parse().ok()?, open)));
        let Some((count, open)) = counted else { return Err(ClientError::WrongAnswer(answer)) };
        let (count, is_open): (usize, bool) = (count, open == "open");
        let mut all = Vec::new();
        for _ in 0..count {
            let line = self.line()?;
            all.push(PendingWriter::parse(&line).ok_or(ClientError::WrongAnswer(line))?);
        }
        Ok((all, is_open))
    }

    /// Says that transactions are decided; how many writers were settled.
    ///
    /// # Errors
    /// The socket's owner and root may say so.
    pub fn settle(&mut self, whose: Whose) -> Result<usize, ClientError> {
        let answer = self.ask(format!("settle {whose}\n").as_bytes())?;
        answer.parse().map_err(|_| ClientError::WrongAnswer(answer))
    }

    /// What follows `ok`, or `gone`.
    fn ask(&mut self, line: &[u8]) -> Result<String, ClientError> {
        self.stream.get_mut().write_all(line)?;
        let answer = self.line()?;
        match answer.split_once(' ') {
            Some(("ok", rest)) => Ok(rest.to_owned()),
            Some(("error", why)) => Err(ClientError::Refused(why.to_owned())),
            None if answer == "ok" => Ok(String::new()),
            None if answer == "gone" => Ok(answer),
            _ => Err(ClientError::WrongAnswer(answer)),
        }
    }

    fn line(&mut self) -> Result<String, ClientError> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        match line.strip_suffix('\n') {
            Some(line) => Ok(line.to_owned()),
            None => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
        }
    }
}
