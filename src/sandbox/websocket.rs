//! The server's side of a WebSocket (RFC 6455): whole messages, no extensions.

use std::io::{Error, ErrorKind, Result};

use k8s_openapi::ByteString;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The longest message taken.
const LONGEST_BYTES: u64 = 1 << 20;
/// What RFC 6455 puts behind a client's key.
const MAGIC: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// The answer to a client's `Sec-WebSocket-Key`.
pub(super) fn accept_key(key: &str) -> String {
    let text = format!("{key}{MAGIC}");
    let digest = ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes());
    // A ByteString is base64 in JSON.
    let encoded = serde_json::to_value(ByteString(digest.as_ref().to_vec()));
    let encoded = encoded.unwrap_or_default();
    encoded.as_str().unwrap_or_default().to_owned()
}

/// What a client sent.
#[derive(Debug)]
pub(super) enum Message {
    /// A message, text or not.
    Data(Vec<u8>),
    /// It has closed.
    Closed,
}

/// A connection that has been upgraded.
pub(super) struct WebSocket<C> {
    connection: C,
}

impl<C: AsyncRead + AsyncWrite + Unpin> WebSocket<C> {
    /// Takes over a connection.
    pub(super) fn new(connection: C) -> Self {
        WebSocket { connection }
    }

    /// The next message; pings are answered on the way.
    pub(super) async fn read(&mut self) -> Result<Message> {
        let mut message = Vec::new();
        loop {
            let (last, opcode, mut payload) = self.read_frame().await?;
            match opcode {
                0 | TEXT | BINARY => {
                    message.append(&mut payload);
                    if message.len() as u64 > LONGEST_BYTES {
                        return Err(ErrorKind::InvalidData.into());
                    }
                    if last {
                        return Ok(Message::Data(message));
                    }
                }
                CLOSE => return Ok(Message::Closed),
                PING => self.write_frame(PONG, &payload).await?,
                _ => {}
            }
        }
    }

    async fn read_frame(&mut self) -> Result<(bool, u8, Vec<u8>)> {
        let head = self.connection.read_u16().await?;
        let [first, second] = head.to_be_bytes();
        let length = match second & 0x7f {
            126 => u64::from(self.connection.read_u16().await?),
            127 => self.connection.read_u64().await?,
            short => u64::from(short),
        };
        if length > LONGEST_BYTES || second & 0x80 == 0 {
            // Every frame of a client is masked.
            return Err(Error::new(ErrorKind::InvalidData, "not a client's frame"));
        }
        let mut mask = [0; 4];
        self.connection.read_exact(&mut mask).await?;
        let mut payload = Vec::new();
        let mut limited = (&mut self.connection).take(length);
        limited.read_to_end(&mut payload).await?;
        if (payload.len() as u64) < length {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        for (byte, mask) in payload.iter_mut().zip(mask.iter().cycle()) {
            *byte ^= mask;
        }
        Ok((first & 0x80 != 0, first & 0x0f, payload))
    }

    /// Sends one binary message.
    pub(super) async fn write(&mut self, payload: &[u8]) -> Result<()> {
        self.write_frame(BINARY, payload).await
    }

    /// Says goodbye: a normal end.
    pub(super) async fn close(&mut self) -> Result<()> {
        self.write_frame(CLOSE, &1000_u16.to_be_bytes()).await?;
        self.connection.shutdown().await
    }

    async fn write_frame(&mut self, opcode: u8, payload: &[u8]) -> Result<()> {
        let mut frame = vec![0x80 | opcode];
        match u16::try_from(payload.len()) {
            Ok(short @ 0..=125) => frame.extend(short.to_be_bytes().get(1..).unwrap_or_default()),
            Ok(medium) => {
                frame.push(126);
                frame.extend(medium.to_be_bytes());
            }
            Err(_) => {
                frame.push(127);
                frame.extend((payload.len() as u64).to_be_bytes());
            }
        }
        frame.extend_from_slice(payload);
        self.connection.write_all(&frame).await?;
        self.connection.flush().await
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    #[test]
    fn the_key_of_the_rfc_is_accepted_as_there() {
        assert_eq!(
            accept_key("dGhlIHNhbXBsZSBub25jZQ=="),
            "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
        );
    }

    #[tokio::test]
    async fn masked_frames_are_read_and_plain_ones_refused() {
        let (mut client, server) = tokio::io::duplex(256);
        let mut socket = WebSocket::new(server);
        // "Hello" masked, from RFC 6455 5.7, as a text frame.
        let frame = [
            0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58,
        ];
        client.write_all(&frame).await.unwrap();
        match socket.read().await.unwrap() {
            Message::Data(bytes) => assert_eq!(bytes, b"Hello"),
            other => panic!("{other:?}"),
        }
        client.write_all(&[0x81, 0x01, b'x']).await.unwrap();
        assert!(socket.read().await.is_err());
    }
}
